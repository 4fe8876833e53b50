// SPDX-License-Identifier: Apache-2.0
// Tiles of 128 rows of 128 bytes in shared memory, 128-byte swizzled, as wgmma and tcgen05.mma read
// them (a row: 128 E4M3 codes along K), and how cp.async fills them.
#pragma once

#include <cstdint>

#include "async_copy.cuh"

constexpr int kTile = 128;
constexpr int kTileBytes = kTile * kTile;
constexpr int kChunkBytes = 16;
constexpr int kChunks = kTile / kChunkBytes;
constexpr int kSwizzleRows = 8;
// Swizzled tiles start at multiples of this. Dynamic shared memory need not: a launch asks for as
// much more.
constexpr int kTileAlignment = 1024;

// 16-byte chunk c of row r lies at chunk c ^ (r % 8).
__device__ __forceinline__ uint32_t chunk_offset(int row, int chunk) {
  return static_cast<uint32_t>(row * kTile + (chunk ^ row % kSwizzleRows) * kChunkBytes);
}

struct SameRow {
  __device__ __forceinline__ int operator()(int row) const { return row; }
};

// All threads of the block start their copies of a tile; row r of the source goes to row_of(r).
template <int threads, class RowOf = SameRow>
__device__ __forceinline__ void start_tile(uint32_t tile, const uint8_t* from, size_t row_bytes,
                                           RowOf row_of = RowOf()) {
#pragma unroll
  for (int pass = 0; pass < kTile * kChunks / threads; ++pass) {
    const int i = pass * threads + static_cast<int>(threadIdx.x);
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    copy_16_bytes(tile + chunk_offset(row_of(row), chunk),
                  from + row * row_bytes + chunk * kChunkBytes);
  }
}

// Tensor cores read what threads wrote through another proxy: each thread waits for its copies and
// passes this fence, then all meet at a barrier.
__device__ __forceinline__ void publish_copies() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
}

__device__ __forceinline__ uint32_t aligned_shared_memory() {
  extern __shared__ uint8_t dynamic[];
  return (shared_address(dynamic) + kTileAlignment - 1) / kTileAlignment * kTileAlignment;
}
