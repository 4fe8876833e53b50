// SPDX-License-Identifier: Apache-2.0
// TMA descriptors of matrices in device memory.
#pragma once

#include <cstdint>

#include "cuda/driver.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "octavo/dtype.hpp"

namespace octavo::cuda {

// A matrix [rows, columns], contiguous along columns, copied in boxes of box_rows rows of 128 bytes
// with 128-byte swizzle. What TMA asks for: the address and the row stride in bytes are multiples
// of 16, the stride is below 2^40, extents are below 2^32, box_rows is at most 256. Loads fill up
// with zeros from the first element behind a row's end; stores write whole 16 bytes.
struct MatrixBoxes {
  const void* data;
  DType dtype;
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t row_stride;  // elements
  int box_rows;
  // Of a stack of them, a 3-D tensor: how many, and from one to the next, as row_stride. Boxes have
  // rows of one matrix only. 0: a 2-D tensor.
  std::int64_t num_matrices = 0;
  std::int64_t matrix_stride = 0;

  friend bool operator==(const MatrixBoxes&, const MatrixBoxes&) = default;
};

[[nodiscard]] Result<TensorMap> make_tensor_map(const Driver& api, const MatrixBoxes& matrix);

}  // namespace octavo::cuda
