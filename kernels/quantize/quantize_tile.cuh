// SPDX-License-Identifier: Apache-2.0
// Steps whose warps work alone, each on a few rows of 256 columns: 1x128 scales, given scales,
// dequantization, and a tensor's two passes. Blocks of 128x128: quantize_128x128.cuh; rows:
// quantize_row.cuh.
#pragma once

#include "kernels/contract/quantize_params.hpp"
#include "kernels/quantize/chunk.cuh"
#include "kernels/quantize/group_scale.cuh"

namespace octavo {

__device__ __forceinline__ long long num_col_tiles(const QuantizeParams& params) {
  return (params.cols + kTileCols - 1) / kTileCols;
}
template <int kChunks>
__device__ __forceinline__ long long num_tiles(const QuantizeParams& params) {
  constexpr int kTileRows = kTileWarpRows * kChunks;
  return (params.rows + kTileRows - 1) / kTileRows * num_col_tiles(params);
}

// The calling thread's chunks in a tile: one in each of some rows, all at one column. Neighbouring
// tiles lie along a row.
template <int kChunks>
__device__ __forceinline__ ChunkWalk walk_of_tile(const QuantizeParams& params, long long tile) {
  const int warp = static_cast<int>(threadIdx.x) / kQuantizeWarp;
  const int lane = static_cast<int>(threadIdx.x) % kQuantizeWarp;
  const long long cols = num_col_tiles(params);
  const long long tile_row = tile / cols;
  const long long tile_col = tile - tile_row * cols;
  return chunk_walk(
      params, (tile_row * kTileWarpRows + warp / kTileWarpCols) * kChunks,
      tile_col * kTileCols + (warp % kTileWarpCols * kQuantizeWarp + lane) * kQuantizeChunk, 1, 0);
}

// The largest magnitudes of several groups of 16 lanes each, one value per group and lane in
// `amax`, ends in amax[0]: lane l's is that of group l % 16 * kGroups / 16.
// PERF: each step halves the values as well as the lanes: 8 exchanges for 8 groups instead of 32.
template <DType kX, int kGroups>
__device__ __forceinline__ void reduce_groups(Amax<kX> (&amax)[kGroups], int lane) {
  int distance = kLanesPerBlock / 2;
#pragma unroll
  for (int half = kGroups / 2; half >= 1; half /= 2) {
    const bool upper = (lane & distance) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const unsigned sent = upper ? amax[i].bits : amax[i + half].bits;
      amax[i].bits = upper ? amax[i + half].bits : amax[i].bits;
      amax[i].merge(__shfl_xor_sync(kAllLanes, sent, distance));
    }
    distance /= 2;
  }
#pragma unroll
  for (int rest = kLanesPerBlock / kGroups / 2; rest >= 1; rest /= 2) {
    amax[0].merge(__shfl_xor_sync(kAllLanes, amax[0].bits, rest));
  }
}

// The same in tiles of kLongTileRows rows.
__device__ __forceinline__ long long num_long_tile_cols(const QuantizeParams& params) {
  return (params.cols + kLongTileCols - 1) / kLongTileCols;
}
__device__ __forceinline__ long long num_long_tiles(const QuantizeParams& params) {
  return (params.rows + kLongTileRows - 1) / kLongTileRows * num_long_tile_cols(params);
}
__device__ __forceinline__ ChunkWalk walk_of_long_tile(const QuantizeParams& params,
                                                       long long tile) {
  const int warp = static_cast<int>(threadIdx.x) / kQuantizeWarp;
  const int lane = static_cast<int>(threadIdx.x) % kQuantizeWarp;
  const long long cols = num_long_tile_cols(params);
  const long long tile_row = tile / cols;
  const long long tile_col = tile - tile_row * cols;
  return chunk_walk(params, tile_row * kLongTileRows + warp,
                    tile_col * kLongTileCols + lane * kQuantizeChunk, 0, kLongTileStep);
}

// PERF: whichever way a warp's scales lie together in memory, its tile follows: 32 bytes and more
// are written at a time.
template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_1x128(const QuantizeParams& params) {
  constexpr int kLanesPerScale = kLanesPerBlock / kChunksPerThread;
  const int lane = static_cast<int>(threadIdx.x) % kQuantizeWarp;
  const int position = lane % kLanesPerBlock;
  const bool is_long = params.has_long_tiles != 0;
  const long long count = is_long ? num_long_tiles(params) : num_tiles<kChunksPerThread>(params);
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const ChunkWalk walk =
        is_long ? walk_of_long_tile(params, tile) : walk_of_tile<kChunksPerThread>(params, tile);
    WideChunk<kX> x[kChunksPerThread];
    load_x<kX, kAccess>(params, walk, x);
    Amax<kX> amax[kChunksPerThread];
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) amax[i].add(x[i]);
    reduce_groups<kX>(amax, lane);
    // PERF: a lane works out one chunk's scale, and the others get it from there.
    const float scale = scale_from_amax<kQ>(params, Amax<kX>::value(amax[0].folded()));
    const float own_factor = reciprocal(scale);
    const int own = position / kLanesPerScale;
    const int own_row = own * walk.row_step;
    const long long own_col = walk.col + own * walk.col_step - position * kQuantizeChunk;
    if (position % kLanesPerScale == 0 && own_row < walk.rows_left && own_col < params.cols) {
      write_scale(params, walk.row + own_row, own_col, scale);
    }
    NarrowChunk q[kChunksPerThread];
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      const float factor = __shfl_sync(kAllLanes, own_factor, lane - position + i * kLanesPerScale);
      q[i] = encode_chunk<kX, kQ>(x[i], factor);
    }
    store_q<kAccess>(params, walk, q);
  }
}

// 1 where the matrix has no element for chunk i.
__device__ __forceinline__ float scale_of_chunk(const QuantizeParams& params, const ChunkWalk& walk,
                                                int i) {
  return walk.num_elements(i) > 0 ? read_scale(params, walk.row + i, walk.col) : 1.0F;
}

template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_given(const QuantizeParams& params) {
  const long long count = num_tiles<kChunksPerThread>(params);
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const ChunkWalk walk = walk_of_tile<kChunksPerThread>(params, tile);
    WideChunk<kX> x[kChunksPerThread];
    load_x<kX, kAccess>(params, walk, x);
    NarrowChunk q[kChunksPerThread];
#pragma unroll
    for (int i = 0; i < kChunksPerThread; ++i) {
      q[i] = encode_chunk<kX, kQ>(x[i], reciprocal(scale_of_chunk(params, walk, i)));
    }
    store_q<kAccess>(params, walk, q);
  }
}

template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void dequantize(const QuantizeParams& params) {
  constexpr int kChunks = dequantize_chunks(kX);
  const long long count = num_tiles<kChunks>(params);
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const ChunkWalk walk = walk_of_tile<kChunks>(params, tile);
    NarrowChunk q[kChunks];
    load_q<kAccess>(params, walk, q);
    WideChunk<kX> x[kChunks];
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      x[i] = decode_chunk<kQ, kX>(q[i], scale_of_chunk(params, walk, i));
    }
    store_x<kX, kAccess>(params, walk, x);
  }
}

// A tensor's first pass: each thread block leaves the largest magnitude it met.
template <DType kX, QuantizeAccess kAccess>
__device__ __forceinline__ void amax_of_parts(const QuantizeParams& params) {
  __shared__ int shared[kQuantizeThreads / kQuantizeWarp];
  Amax<kX> amax;
  const long long count = num_tiles<kChunksPerThread>(params);
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    WideChunk<kX> x[kChunksPerThread];
    load_x<kX, kAccess>(params, walk_of_tile<kChunksPerThread>(params, tile), x);
    amax.add(x);
  }
  const float largest = block_amax(amax, shared);
  if (threadIdx.x == 0) params.partial_amax[blockIdx.x] = largest;
}

// The second pass. PERF: it begins where the first one ended, for that part of x is still in the
// second-level cache; and every thread block asks for its x before it reduces the parts.
template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_tensor(const QuantizeParams& params) {
  __shared__ int shared[kQuantizeThreads / kQuantizeWarp];
  const long long count = num_tiles<kChunksPerThread>(params);
  long long tile = count - 1 - blockIdx.x;
  ChunkWalk walk{};
  WideChunk<kX> x[kChunksPerThread] = {};
  if (tile >= 0) {
    walk = walk_of_tile<kChunksPerThread>(params, tile);
    load_x<kX, kAccess>(params, walk, x);
  }
  Amax<DType::kF32> amax;
  for (int i = static_cast<int>(threadIdx.x); i < params.num_partials; i += kQuantizeThreads) {
    amax.merge(__float_as_uint(params.partial_amax[i]) + Amax<DType::kF32>::kZero);
  }
  const float scale = scale_from_amax<kQ>(params, block_amax(amax, shared));
  const float factor = reciprocal(scale);
  if (blockIdx.x == 0 && threadIdx.x == 0) write_scale(params, 0, 0, scale);
  while (tile >= 0) {
    encode_and_store<kX, kQ, kAccess>(params, walk, x, factor);
    tile -= gridDim.x;
    if (tile < 0) break;
    walk = walk_of_tile<kChunksPerThread>(params, tile);
    load_x<kX, kAccess>(params, walk, x);
  }
}

}  // namespace octavo
