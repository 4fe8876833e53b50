// SPDX-License-Identifier: Apache-2.0
// Chapter 3: the tensor core (wgmma) and the copy engine (TMA) with as little around them as
// possible: one warp-group, one tile of 64 x 128, one buffer. Equal to the CPU's emulation bit for
// bit. Next: the real kernel, kernels/gemm/gemm_warpspecialized.cuh, and docs/kernels.md.
//
// What is new against chapter 2:
//   * one thread asks for a whole box of A and of B; TMA copies them, fills up what sticks out of a
//     matrix with zeros, and reports the bytes that arrived to a barrier in shared memory;
//   * four wgmma instructions multiply [64, 128] x [128, 128]^T. They read both operands from
//   shared
//     memory, as 8-bit codes, and leave FP32 sums in the registers of 128 threads.
// What is missing against the real kernel: copies and products take turns, so the tensor core idles
// while a tile is on its way; there, one warp-group does nothing but load, several tiles ahead, and
// two others multiply, one promoting while the other's products run.
#pragma once

#include <octavo/dtype.hpp>
#include <octavo/scale.hpp>

#include "kernels/naive/naive_gemm_params.hpp"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace octavo {

inline constexpr int kWgmmaTileM = 64;   // rows of a wgmma
inline constexpr int kWgmmaTileN = 128;  // its columns, and one scale block of B
inline constexpr int kWgmmaThreads = 128;

// Where a tile lies, as wgmma takes it: the address over 16 in bits 0 to 13; the distance of groups
// of 8 rows over 16 in bits 32 to 45 (8 rows of 128 bytes are 1024); 128-byte swizzle in bits 62
// and
// 63. The distance along K (bits 16 to 29) means nothing for rows of one swizzle period.
__device__ __forceinline__ unsigned long long swizzled_tile(unsigned address) {
  constexpr unsigned long long kRowGroupDistance = (1024ULL / 16) << 32;
  constexpr unsigned long long kSwizzle128 = 1ULL << 62;
  return ((address & 0x3FFFFU) >> 4) | (1ULL << 16) | kRowGroupDistance | kSwizzle128;
}

// The launch: 128 threads a block, ceil(n/128) x ceil(m/64) blocks.
__device__ __forceinline__ void wgmma_gemm(const NaiveGemmParams& params) {
  // Rows of 128 bytes (128 codes of K). TMA writes 16-byte chunk c of row i at chunk c ^ (i % 8),
  // and wgmma looks for it there: that is the 128-byte swizzle, and it needs 1024-byte alignment.
  __shared__ alignas(1024) unsigned char a_tile[kWgmmaTileM * kScaleBlock];
  __shared__ alignas(1024) unsigned char b_tile[kWgmmaTileN * kScaleBlock];
  __shared__ alignas(8) unsigned long long arrived;
  const int thread = static_cast<int>(threadIdx.x);
  const int first_row = static_cast<int>(blockIdx.y) * kWgmmaTileM;
  const int first_column = static_cast<int>(blockIdx.x) * kWgmmaTileN;
  const unsigned a_address = ptx::shared_address(a_tile);
  const unsigned b_address = ptx::shared_address(b_tile);
  const unsigned barrier = ptx::shared_address(&arrived);
  if (thread == 0) {
    ptx::mbarrier_init(barrier, 1);
    ptx::fence_mbarrier_init();
  }
  // ORDER: no thread waits at the barrier before it is initialised.
  __syncthreads();

  // Of the 64 x 128 sums a thread holds 64: in [4 i + 2 r + c] the one of row `row` + 8 r and
  // column 8 i + `column` + c.
  const int row = first_row + thread / 32 * 16 + thread % 32 / 4;
  const int column = thread % 4 * 2;
  constexpr int kSums = kWgmmaTileN / 2;
  float total[kSums] = {};
  const int num_k_blocks = (params.k + kScaleBlock - 1) / kScaleBlock;
  for (int block = 0; block < num_k_blocks; ++block) {
    if (thread == 0) {
      ptx::mbarrier_arrive_expect_bytes(barrier, sizeof(a_tile) + sizeof(b_tile));
      const int k = block * kScaleBlock;
      ptx::tma_load(a_address, &params.a_map, barrier, k, first_row);
      ptx::tma_load(b_address, &params.b_map, barrier, k, first_column);
    }
    // ORDER: the barrier's phase ends when all bytes have arrived, and who waited for it sees them.
    // Phases are told apart by their parity.
    ptx::mbarrier_wait(barrier, block % 2);

    float sums[kSums];
    ptx::wgmma_fence();
    constexpr int kStep = 32;  // codes of K that one wgmma multiplies
#pragma unroll
    for (int step = 0; step < kScaleBlock / kStep; ++step) {
      // Within a swizzled row the next 32 bytes are 2 units of 16 further on. The first wgmma
      // ignores what the registers hold: the tensor core's sum starts anew every 128 of K.
      const int units = step * kStep / 16;
      ptx::wgmma<DType::kE4M3, DType::kE4M3, kWgmmaTileN>(
          sums, swizzled_tile(a_address) + units, swizzled_tile(b_address) + units, step > 0);
    }
    ptx::wgmma_commit();
    ptx::wgmma_wait<0>();

    // Promotion, as in chapter 1, with the tensor core's sum.
    const int b_block = first_column / kScaleBlock;
    const float b_scale = params.b_scale[b_block * num_k_blocks + block];
    float scale[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int scale_row = min(row + 8 * r, params.m - 1);  // rows behind the end are not stored
      scale[r] = params.a_scale[static_cast<long long>(scale_row) * num_k_blocks + block] * b_scale;
    }
#pragma unroll
    for (int i = 0; i < kSums; ++i) total[i] = fmaf(scale[i / 2 % 2], sums[i], total[i]);
    // ORDER: every warp's wgmma has read the tiles before thread 0 has them overwritten.
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < kSums; ++i) {
    const int d_row = row + 8 * (i / 2 % 2);
    const int d_column = first_column + i / 4 * 8 + column + i % 2;
    if (d_row < params.m && d_column < params.n) {
      params.d[static_cast<long long>(d_row) * params.n + d_column] = total[i];
    }
  }
}

}  // namespace octavo
