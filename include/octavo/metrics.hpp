// SPDX-License-Identifier: Apache-2.0
// How far a result is from a reference.
#pragma once

#include <cstdint>

#include "octavo/tensor_view.hpp"

namespace octavo {

// All sums in FP64. With D the result and R the reference:
struct ErrorMetrics {
  double relative_frobenius = 0;  // |D - R| / |R|; |D| if R is all zeros
  double sqnr_db = 0;             // -20 log10(relative_frobenius)
  double max_abs = 0;             // max |D - R|
  double max_relative = 0;        // max |D - R| / max |R|
  double cosine_distance = 0;     // 1 - <D,R> / (|D||R|)
  double mean_signed = 0;         // sum(D - R) / sum |R|: the bias
  std::int64_t num_elements = 0;
  std::int64_t num_not_finite = 0;  // elements where exactly one side is not finite, or both are
                                    // and differ; these are left out of the sums
  std::int64_t num_different_bits = 0;  // elements whose FP32 values differ
  std::int64_t first_different = -1;    // row-major position of the first of those, -1 if none
  std::int64_t worst = -1;              // row-major position of max_abs
};

// Same shape required; any value dtypes. Throws Error kInvalidArgument.
[[nodiscard]] ErrorMetrics compare(const TensorView& result, const TensorView& reference);

}  // namespace octavo
