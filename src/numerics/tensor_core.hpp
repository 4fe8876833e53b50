// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 tensor core (wgmma with FP32 accumulators) as an algorithm, to the bit:
// docs/numerics.md, section "The tensor core". step() and dot() are the algorithm read aloud;
// tensor_core_products() gives the same bits for whole tiles, vectorised.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo {

struct TensorCoreModel {
  int fraction_bits = 13;         // every term is cut to these below the largest exponent
  int result_fraction_bits = 13;  // the sum is cut to these after normalisation
  int group = 32;                 // products that one instruction adds at once
};

// wgmma on sm_90a, as measured (docs/numerics.md says how).
inline constexpr TensorCoreModel kHopper{13, 13, 32};
// FP8 mma.sync on sm_89, from published vectors.
inline constexpr TensorCoreModel kAda{13, 13, 16};

// FP8 codes of a matrix [rows, k]: element (row, k) is codes[row * row_stride + k * k_stride].
struct CodeMatrix {
  const std::uint8_t* codes = nullptr;
  DType format = DType::kE4M3;
  std::int64_t row_stride = 0;
  std::int64_t k_stride = 1;
};

// One instruction: sum of a[i] * b[i], i < count, and *c; c may be null (no accumulator is read).
// Missing products up to the model's group are zeros. Strides count codes.
[[nodiscard]] float tensor_core_step(const TensorCoreModel& model, const std::uint8_t* a,
                                     std::int64_t a_stride, DType a_format, const std::uint8_t* b,
                                     std::int64_t b_stride, DType b_format, int count,
                                     const float* c) noexcept;

// Row a_row of a times row b_row of b: k / group chained instructions; the last is filled up with
// zeros. k = 0 gives *c or +0.
[[nodiscard]] float tensor_core_dot(const TensorCoreModel& model, const CodeMatrix& a,
                                    std::int64_t a_row, const CodeMatrix& b, std::int64_t b_row,
                                    std::int64_t k, const float* c) noexcept;

// A row-major FP32 matrix; stride is the distance between rows.
struct ProductRows {
  float* values = nullptr;
  std::int64_t stride = 0;
};

// out(row, col) = tensor_core_dot(model, a, row, b, col, k, &out(row, col) or null) for
// row < num_rows and col < num_cols; chained says whether out holds accumulators to start from.
// Runs on the calling thread and does not allocate. Cheapest for many rows: b is decoded once per
// call, 64 columns at a time.
enum class ChainStart : unsigned char { kAbsent, kFromOutput };
void tensor_core_products(const TensorCoreModel& model, const CodeMatrix& a, std::int64_t num_rows,
                          const CodeMatrix& b, std::int64_t num_cols, std::int64_t k,
                          ChainStart start, const ProductRows& out) noexcept;

}  // namespace octavo
