// SPDX-License-Identifier: Apache-2.0
// Blocks of 128x128 with a scale each: a thread block takes one and holds it in registers. Other
// granularities: quantize_tile.cuh, quantize_row.cuh.
#pragma once

#include "kernels/contract/quantize_params.hpp"
#include "kernels/quantize/chunk.cuh"
#include "kernels/quantize/group_scale.cuh"

namespace octavo {

template <DType kX, DType kQ, QuantizeAccess kAccess>
__device__ __forceinline__ void quantize_128x128(const QuantizeParams& params) {
  constexpr int kRowsApart = kScaleBlock / kChunksPerThread;
  __shared__ int shared[kRowsApart * kLanesPerBlock / kQuantizeWarp];
  const long long cols = num_scale_blocks(params.cols);
  const long long count = num_scale_blocks(params.rows) * cols;
  for (long long block = blockIdx.x; block < count; block += gridDim.x) {
    const long long block_row = block / cols;
    const long long first_row = block_row * kScaleBlock;
    const long long first_col = (block - block_row * cols) * kScaleBlock;
    const long long row = first_row + threadIdx.x / kLanesPerBlock;
    const long long col = first_col + threadIdx.x % kLanesPerBlock * kQuantizeChunk;
    const ChunkWalk walk = chunk_walk(params, row, col, kRowsApart, 0);
    WideChunk<kX> x[kChunksPerThread];
    load_x<kX, kAccess>(params, walk, x);
    Amax<kX> amax;
    amax.add(x);
    const float scale = scale_from_amax<kQ>(params, block_amax(amax, shared));
    const float factor = reciprocal(scale);
    if (threadIdx.x == 0) write_scale(params, first_row, first_col, scale);
    encode_and_store<kX, kQ, kAccess>(params, walk, x, factor);
    if (block + gridDim.x < count) __syncthreads();
  }
}

}  // namespace octavo
