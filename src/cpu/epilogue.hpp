// SPDX-License-Identifier: Apache-2.0
// What happens to an FP32 sum before it becomes an element of D, in this order: + D, + bias,
// * (1 / d_scale), one rounding to D's type (docs/numerics.md, section "Epilogue"). The reference
// product does the same in FP64 by itself, so that the two can disagree.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "cpu/gemm_operand.hpp"
#include "numerics/codec.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cpu {

// x86 and the GPU make different NaNs; results hold only the GPU's.
[[nodiscard]] inline float canonical_nan(float value) noexcept {
  return std::isnan(value) ? std::bit_cast<float>(kCanonicalNan) : value;
}

class Epilogue {
 public:
  Epilogue(const GemmProblem& problem, std::int64_t batch_idx) noexcept
      : dtype_(problem.d.dtype), accumulate_(problem.output_mode == OutputMode::kAccumulate) {
    const StridedMatrix d = matrix_of(problem.d, batch_idx);
    // The view was const only on the way through matrix_of: D is a mutable tensor.
    data_ = const_cast<void*>(d.data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    row_stride_ = d.row_stride;
    col_stride_ = d.col_stride;
    if (problem.bias.present()) {
      bias_ = problem.bias.data;
      bias_dtype_ = problem.bias.dtype;
      bias_stride_ = problem.bias.strides[0];
    }
    if (problem.d_scale.present()) {
      inverse_scale_ = 1.0F / load_element(problem.d_scale.data, problem.d_scale.dtype, 0);
      scaled_ = true;
    }
  }

  // The sum that stands for "no products" (K = 0): adding it to an element of D, even to -0,
  // leaves that element as it is.
  [[nodiscard]] float empty_sum() const noexcept { return accumulate_ ? -0.0F : 0.0F; }

  // D[row, col] from its scaled sum.
  void store(std::int64_t row, std::int64_t col, float sum) const noexcept {
    const std::int64_t offset = row * row_stride_ + col * col_stride_;
    float value = sum;
    if (accumulate_) value = value + load_element(data_, dtype_, offset);
    if (bias_ != nullptr) value = value + load_element(bias_, bias_dtype_, col * bias_stride_);
    if (scaled_) value = value * inverse_scale_;
    store_element(data_, dtype_, offset, canonical_nan(value));
  }

  // D[row, col_begin + i] from sums[i], i < count.
  void store_row(std::int64_t row, std::int64_t col_begin, const float* sums,
                 std::int64_t count) const noexcept {
    for (std::int64_t i = 0; i < count; ++i) store(row, col_begin + i, sums[i]);
  }

 private:
  void* data_ = nullptr;
  DType dtype_;
  std::int64_t row_stride_ = 0;
  std::int64_t col_stride_ = 0;
  bool accumulate_;
  const void* bias_ = nullptr;
  DType bias_dtype_ = DType::kF32;
  std::int64_t bias_stride_ = 0;
  bool scaled_ = false;
  float inverse_scale_ = 1.0F;
};

}  // namespace octavo::cpu
