// SPDX-License-Identifier: Apache-2.0
// One batch entry of a product's operands as strided matrices, and the scale of an element of them.
// Not a kernel. What happens to a sum afterwards: epilogue.hpp.
#pragma once

#include <cstdint>

#include "numerics/codec.hpp"
#include "octavo/gemm.hpp"
#include "octavo/scale.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo::cpu {

// M, N, K and the number of products of a validated problem.
struct GemmExtents {
  std::int64_t batch;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

[[nodiscard]] inline GemmExtents extents(const GemmProblem& problem) noexcept {
  const auto last = static_cast<std::size_t>(problem.a.rank - 1);
  return {problem.a.rank > 2 ? problem.a.shape[0] : 1, problem.a.shape[last - 1],
          problem.b.shape[last - 1], problem.a.shape[last]};
}

// K in [begin, end): split split_idx of num_splits, in whole blocks of kScaleBlock. Empty where
// there are more splits than blocks, which only K = 0 allows.
struct KRange {
  std::int64_t begin;
  std::int64_t end;
};

[[nodiscard]] inline KRange split_range(std::int64_t k, int split_idx, int num_splits) noexcept {
  const std::int64_t num_blocks = num_scale_blocks(k);
  const std::int64_t begin = split_idx * num_blocks / num_splits * kScaleBlock;
  const std::int64_t end = (split_idx + 1) * num_blocks / num_splits * kScaleBlock;
  return {begin, end < k ? end : k};
}

// A matrix inside somebody else's tensor. Offsets are in elements.
struct StridedMatrix {
  const void* data = nullptr;
  DType dtype = DType::kF32;
  std::int64_t row_stride = 0;
  std::int64_t col_stride = 0;

  [[nodiscard]] const void* address(std::int64_t row, std::int64_t col) const noexcept {
    return static_cast<const char*>(data) +
           (row * row_stride + col * col_stride) * size_bytes(dtype);
  }
  [[nodiscard]] float at(std::int64_t row, std::int64_t col) const noexcept {
    return load_element(data, dtype, row * row_stride + col * col_stride);
  }
};

// The last two dimensions of entry batch_idx of a [rows, cols] or [batch, rows, cols] tensor.
[[nodiscard]] inline StridedMatrix matrix_of(const TensorView& view,
                                             std::int64_t batch_idx) noexcept {
  const auto last = static_cast<std::size_t>(view.rank - 1);
  StridedMatrix matrix{view.data, view.dtype, view.strides[last - 1], view.strides[last]};
  if (view.rank > 2) {
    matrix.data =
        static_cast<const char*>(view.data) + batch_idx * view.strides[0] * size_bytes(view.dtype);
  }
  return matrix;
}

// Scales of one operand of one batch entry; 1 everywhere for an operand without a scale tensor.
class OperandScale {
 public:
  OperandScale(const TensorView& scale, ScaleGranularity granularity, bool batched,
               std::int64_t batch_idx) noexcept
      : granularity_(scale.absent() ? ScaleGranularity::kNone : granularity) {
    if (granularity_ == ScaleGranularity::kNone) return;
    std::size_t dim = 0;
    data_ = scale.data;
    dtype_ = scale.dtype;
    if (batched) {
      data_ =
          static_cast<const char*>(scale.data) + batch_idx * scale.strides[0] * size_bytes(dtype_);
      dim = 1;
    }
    row_stride_ = scale.strides[dim];
    // Row scales may come as [rows, 1]; their column position is always 0.
    if (static_cast<std::size_t>(scale.rank) > dim + 1) block_stride_ = scale.strides[dim + 1];
  }

  // The scale of every element (row, k) with k / kScaleBlock == k_block_idx.
  [[nodiscard]] float at(std::int64_t row, std::int64_t k_block_idx) const noexcept {
    if (granularity_ == ScaleGranularity::kNone) return 1.0F;
    const ScaleShape index = scale_index(granularity_, row, k_block_idx * kScaleBlock);
    return load_element(data_, dtype_, index.rows * row_stride_ + index.cols * block_stride_);
  }

 private:
  ScaleGranularity granularity_;
  const void* data_ = nullptr;
  DType dtype_ = DType::kF32;
  std::int64_t row_stride_ = 0;
  std::int64_t block_stride_ = 0;
};

[[nodiscard]] inline OperandScale a_scale_of(const GemmProblem& problem,
                                             std::int64_t batch_idx) noexcept {
  return {problem.a_scale, a_granularity(problem.recipe), problem.a.rank > 2, batch_idx};
}

[[nodiscard]] inline OperandScale b_scale_of(const GemmProblem& problem,
                                             std::int64_t batch_idx) noexcept {
  return {problem.b_scale, b_granularity(problem.recipe), problem.b.rank > 2, batch_idx};
}

}  // namespace octavo::cpu
