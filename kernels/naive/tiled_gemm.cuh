// SPDX-License-Identifier: Apache-2.0
// Chapter 2: the same sums in the same order, so the same bits as naive_gemm.cuh, from shared
// memory. Next: wgmma_gemm.cuh.
//
// A block computes 32 x 32 elements of D. For each 128 of K it copies 32 rows of A and 32 of B into
// shared memory, decoded to FP32 on the way: every code is now read from global memory once a block
// and decoded once, instead of 32 times. What is left to do better: the products run on the
// ordinary FP32 units, one at a time, at 1/30 of the tensor core's rate, each waiting for two reads
// of shared memory; and loads and products take turns instead of running at the same time.
#pragma once

#include "kernels/naive/naive_gemm.cuh"

namespace octavo {

// The launch: 32 x 32 threads a block, ceil(n/32) x ceil(m/32) blocks.
inline constexpr int kTiledBlock = 32;

__device__ __forceinline__ void tiled_gemm(const NaiveGemmParams& params) {
  // One column more than needed: rows then begin in different banks, and 32 threads that read one
  // column of 32 rows (b_tile, below) do not queue up at a single bank.
  __shared__ float a_tile[kTiledBlock][kScaleBlock + 1];
  __shared__ float b_tile[kTiledBlock][kScaleBlock + 1];
  const int x = static_cast<int>(threadIdx.x);
  const int y = static_cast<int>(threadIdx.y);
  const int first_row = static_cast<int>(blockIdx.y) * kTiledBlock;
  const int first_column = static_cast<int>(blockIdx.x) * kTiledBlock;
  const int row = first_row + y;
  const int column = first_column + x;
  const bool inside = row < params.m && column < params.n;
  const int num_k_blocks = (params.k + kScaleBlock - 1) / kScaleBlock;
  float total = 0;
  for (int block = 0; block < num_k_blocks; ++block) {
    const int first_k = block * kScaleBlock;
    // Neighbouring threads copy neighbouring codes: a warp reads 32 consecutive bytes. What sticks
    // out of a matrix becomes 0, which adds nothing.
    for (int i = x; i < kScaleBlock; i += kTiledBlock) {
      const int k = first_k + i;
      const int b_row = first_column + y;
      a_tile[y][i] = row < params.m && k < params.k
                         ? e4m3_value(params.a[static_cast<long long>(row) * params.k + k])
                         : 0.0F;
      b_tile[y][i] = b_row < params.n && k < params.k
                         ? e4m3_value(params.b[static_cast<long long>(b_row) * params.k + k])
                         : 0.0F;
    }
    // ORDER: every thread's part of the tiles is written before any thread reads them.
    __syncthreads();
    float sum = 0;
    for (int i = 0; i < kScaleBlock; ++i) sum = fmaf(a_tile[y][i], b_tile[x][i], sum);
    if (inside) {
      const float a_scale = params.a_scale[static_cast<long long>(row) * num_k_blocks + block];
      const float b_scale = params.b_scale[column / kScaleBlock * num_k_blocks + block];
      total = fmaf(a_scale * b_scale, sum, total);
    }
    // ORDER: every thread has read the tiles before any thread writes the next ones.
    __syncthreads();
  }
  if (inside) params.d[static_cast<long long>(row) * params.n + column] = total;
}

}  // namespace octavo
