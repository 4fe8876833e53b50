// SPDX-License-Identifier: Apache-2.0
// Scales in any strides, F32 or UE8M0, into the layout that the GEMM kernels read: F32, rows of a
// padded stride. A scale tensor is 1/128 to 1/16384 of its operand, so this is a few microseconds.
#pragma once

#include "kernels/contract/stage_scales_params.hpp"
#include "kernels/ptx/thread_block.cuh"

namespace octavo {

__device__ __forceinline__ void stage_scales(const StageScalesParams& params) {
  ptx::wait_for_earlier_kernels();
  ptx::let_next_kernel_start();
  const long long first = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  const long long step = gridDim.x * static_cast<long long>(blockDim.x);
  const long long count = params.batch * params.rows * params.cols;
  for (long long i = first; i < count; i += step) {
    const long long all_rows = i / params.cols;
    const long long col = i - all_rows * params.cols;
    const long long batch = all_rows / params.rows;
    const long long row = all_rows - batch * params.rows;
    const long long from = batch * params.from_batch_stride + row * params.from_row_stride +
                           col * params.from_col_stride;
    float scale;
    if (params.from_is_ue8m0 != 0) {
      // 2^(code - 127); code 0 is 2^-127, a subnormal F32, and code 255 NaN.
      const unsigned code = static_cast<const unsigned char*>(params.from)[from];
      constexpr unsigned kSubnormal = 0x00400000U;
      constexpr unsigned kNan = 0x7FFFFFFFU;
      scale = __uint_as_float(code == 0 ? kSubnormal : code == 255 ? kNan : code << 23);
    } else {
      scale = static_cast<const float*>(params.from)[from];
    }
    params.to[batch * params.to_batch_stride + row * params.to_row_stride + col] = scale;
  }
}

}  // namespace octavo
