// SPDX-License-Identifier: Apache-2.0
// Copies scales that lie in any strides, in F32 or UE8M0, to F32 with neighbouring rows adjacent:
// the layout that bulk copies bring to a product's tiles. Bits of F32 stay as they are.
#pragma once

#include "kernels/contract/stage_scales_params.hpp"
#include "kernels/gemm/load_scale.cuh"
#include "kernels/ptx/thread_block.cuh"

namespace octavo {

__device__ __forceinline__ void stage_scales(const StageScalesParams& params) {
  constexpr int kWarps = kStageScalesThreads / 32;
  constexpr int kPasses = kScaleSquare / kWarps;
  // PERF: one word more in each row of the square, so that a column lies in 32 banks.
  __shared__ float square[kScaleSquare][kScaleSquare + 1];
  ptx::wait_for_earlier_kernels();
  ptx::let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  const auto magnitude = [](long long stride) { return stride < 0 ? -stride : stride; };
  // A warp's lanes read along the shorter stride.
  const bool along_k = magnitude(params.from.k_stride) < magnitude(params.from.row_stride);
  const long long squares_row = (params.rows + kScaleSquare - 1) / kScaleSquare;
  const long long squares_k = (params.k_blocks + kScaleSquare - 1) / kScaleSquare;
  for (long long at = blockIdx.x; at < num_scale_squares(params); at += gridDim.x) {
    const long long stripe = at / squares_row;
    const long long first_row = (at - stripe * squares_row) * kScaleSquare;
    const long long batch = stripe / squares_k;
    const long long first_k = (stripe - batch * squares_k) * kScaleSquare;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int other = pass * kWarps + warp;
      const int row = along_k ? other : lane;
      const int k = along_k ? lane : other;
      if (first_row + row < params.rows && first_k + k < params.k_blocks) {
        square[k][row] = load_scale(params.from, batch * params.from_batch_stride +
                                                     (first_row + row) * params.from.row_stride +
                                                     (first_k + k) * params.from.k_stride);
      }
    }
    __syncthreads();
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int k = pass * kWarps + warp;
      if (first_row + lane < params.rows && first_k + k < params.k_blocks) {
        params.to[batch * params.to_batch_stride + (first_k + k) * params.to_k_stride + first_row +
                  lane] = square[k][lane];
      }
    }
    __syncthreads();
  }
}

}  // namespace octavo
