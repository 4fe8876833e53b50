// SPDX-License-Identifier: Apache-2.0
// From F32 sums in workspace to a D that the product's own epilogue cannot write: FP8, other column
// strides than 1, or no sums at all (K = 0). In this order, as docs/numerics.md has it: D's old
// value, bias, 1 / d_scale, one rounding.
#pragma once

#include "kernels/contract/finish_output_params.hpp"
#include "kernels/gemm/epilogue.cuh"

namespace octavo {

// Round to nearest even, beyond the largest to the largest.
__device__ __forceinline__ unsigned char to_fp8(float value, DType type) {
  unsigned short packed;
  if (type == DType::kE4M3) {
    asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(0.0F), "f"(value));
  } else {
    asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(packed) : "f"(0.0F), "f"(value));
  }
  return static_cast<unsigned char>(packed & 0xFFU);
}

__device__ __forceinline__ void store_rounded(void* values, long long i, DType type, float value) {
  switch (type) {
    case DType::kF32: store_value<DType::kF32>(values, i, value); return;
    case DType::kBF16: store_value<DType::kBF16>(values, i, value); return;
    case DType::kF16: store_value<DType::kF16>(values, i, value); return;
    default: static_cast<unsigned char*>(values)[i] = to_fp8(value, type);
  }
}

// Squares of D pass through shared memory, so that sums are read along N and D is written along
// whichever of its dimensions lies closer in memory.
__device__ __forceinline__ void finish_output(const FinishOutputParams& params) {
  constexpr int kRowsAtOnce = kFinishThreads / kFinishTile;
  __shared__ float square[kFinishTile][kFinishTile + 1];  // PERF: + 1 against bank conflicts
  const long long tiles_n = (params.n + kFinishTile - 1) / kFinishTile;
  const int lane = static_cast<int>(threadIdx.x) % kFinishTile;
  const int warp = static_cast<int>(threadIdx.x) / kFinishTile;
  const auto type = static_cast<DType>(params.output_dtype);
  // A rounded reciprocal and a product, not a quotient: these are the definition's bits.
  const float inverse =
      params.output_scale != nullptr ? __frcp_rn(__ldg(params.output_scale)) : 1.0F;
  const long long num_tiles = num_finish_tiles(params);
  for (long long tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    const long long tile_m = tile / tiles_n;
    const long long first_row = tile_m * kFinishTile;
    const long long first_col = (tile - tile_m * tiles_n) * kFinishTile;
    if (params.sums != nullptr) {
#pragma unroll
      for (int i = 0; i < kFinishTile; i += kRowsAtOnce) {
        const long long row = first_row + i + warp;
        const long long col = first_col + lane;
        if (row < params.m && col < params.n) {
          square[i + warp][lane] = params.sums[row * params.sums_stride + col];
        }
      }
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < kFinishTile; i += kRowsAtOnce) {
      const int tile_row = params.down_columns != 0 ? lane : i + warp;
      const int tile_col = params.down_columns != 0 ? i + warp : lane;
      const long long row = first_row + tile_row;
      const long long col = first_col + tile_col;
      if (row >= params.m || col >= params.n) continue;
      // Adding D's old value to -0 keeps every bit of it.
      float value = params.accumulates != 0 ? -0.0F : 0.0F;
      if (params.sums != nullptr) value = square[tile_row][tile_col];
      const long long at = row * params.output_row_stride + col * params.output_col_stride;
      if (params.accumulates != 0) value = __fadd_rn(value, load_value(params.output, at, type));
      if (params.bias != nullptr) {
        value = __fadd_rn(value, load_value(params.bias, col * params.bias_stride,
                                            static_cast<DType>(params.bias_dtype)));
      }
      if (params.output_scale != nullptr) value = __fmul_rn(value, inverse);
      store_rounded(params.output, at, type, value);
    }
    if (params.sums != nullptr) __syncthreads();
  }
}

}  // namespace octavo
