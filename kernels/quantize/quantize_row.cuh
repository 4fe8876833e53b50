// SPDX-License-Identifier: Apache-2.0
// Rows with a scale each, held in the registers of a warp or of a thread block between the search
// for the largest magnitude and the encoding, so that x is read once. Rows too long for that are
// read twice. Other granularities: quantize_tile.cuh, quantize_128x128.cuh.
#pragma once

#include "kernels/contract/quantize_params.hpp"
#include "kernels/quantize/chunk.cuh"
#include "kernels/quantize/group_scale.cuh"

namespace octavo {

template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_short_rows(const QuantizeParams& params) {
  constexpr int kWarps = kQuantizeThreads / kQuantizeWarp;
  const int lane = static_cast<int>(threadIdx.x) % kQuantizeWarp;
  const long long first = blockIdx.x * static_cast<long long>(kWarps) + threadIdx.x / kQuantizeWarp;
  for (long long row = first; row < params.rows;
       row += static_cast<long long>(gridDim.x) * kWarps) {
    const ChunkWalk walk =
        chunk_walk(params, row, lane * kQuantizeChunk, 0, kQuantizeWarp * kQuantizeChunk);
    WideChunk<kX> x[kChunksPerThread];
    load_x<kX, kAccess>(params, walk, x);
    Amax<kX> amax;
    amax.add(x);
    const float scale = scale_from_amax<kQ>(params, Amax<kX>::value(warp_amax(amax)));
    const float factor = reciprocal(scale);
    if (lane == 0) write_scale(params, row, 0, scale);
    encode_and_store<kX, kQ, kAccess>(params, walk, x, factor);
  }
}

template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_row(const QuantizeParams& params) {
  __shared__ int shared[kMaxBlockThreads / kQuantizeWarp];
  for (long long row = blockIdx.x; row < params.rows; row += gridDim.x) {
    const ChunkWalk walk =
        chunk_walk(params, row, static_cast<long long>(threadIdx.x) * kQuantizeChunk, 0,
                   static_cast<int>(blockDim.x) * kQuantizeChunk);
    WideChunk<kX> x[kChunksPerThread];
    load_x<kX, kAccess>(params, walk, x);
    Amax<kX> amax;
    amax.add(x);
    const float scale = scale_from_amax<kQ>(params, block_amax(amax, shared));
    const float factor = reciprocal(scale);
    if (threadIdx.x == 0) write_scale(params, row, 0, scale);
    encode_and_store<kX, kQ, kAccess>(params, walk, x, factor);
    if (row + gridDim.x < params.rows) __syncthreads();
  }
}

// PERF: the second reading finds a row of up to a few hundred kilobytes in the second-level cache.
template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_long_row(const QuantizeParams& params) {
  __shared__ int shared[kMaxBlockThreads / kQuantizeWarp];
  const int col_step = static_cast<int>(blockDim.x) * kQuantizeChunk;
  const long long part = static_cast<long long>(col_step) * kChunksPerThread;
  const auto walk_of_part = [&](long long row, long long col) {
    return chunk_walk(params, row, col + static_cast<long long>(threadIdx.x) * kQuantizeChunk, 0,
                      col_step);
  };
  for (long long row = blockIdx.x; row < params.rows; row += gridDim.x) {
    WideChunk<kX> x[kChunksPerThread];
    Amax<kX> amax;
    for (long long col = 0; col < params.cols; col += part) {
      load_x<kX, kAccess>(params, walk_of_part(row, col), x);
      amax.add(x);
    }
    const float scale = scale_from_amax<kQ>(params, block_amax(amax, shared));
    const float factor = reciprocal(scale);
    if (threadIdx.x == 0) write_scale(params, row, 0, scale);
    for (long long col = 0; col < params.cols; col += part) {
      const ChunkWalk walk = walk_of_part(row, col);
      load_x<kX, kAccess>(params, walk, x);
      encode_and_store<kX, kQ, kAccess>(params, walk, x, factor);
    }
    if (row + gridDim.x < params.rows) __syncthreads();
  }
}

}  // namespace octavo
