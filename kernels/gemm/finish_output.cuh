// SPDX-License-Identifier: Apache-2.0
// From F32 sums in workspace to a D that the product's own epilogue cannot write: FP8, other column
// strides than 1, or no sums at all (K = 0). In this order, as docs/numerics.md has it: D's old
// value, bias, 1 / d_scale, one rounding.
#pragma once

#include "kernels/contract/finish_output_params.hpp"
#include "kernels/gemm/output_value.cuh"
#include "kernels/ptx/thread_block.cuh"

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

// What every element of a call passes through.
struct OutputSteps {
  const FinishOutputParams& params;
  DType type;
  float inverse;

  __device__ __forceinline__ explicit OutputSteps(const FinishOutputParams& of)
      : params(of),
        type(static_cast<DType>(of.output_dtype)),
        // A rounded reciprocal and a product, not a quotient: these are the definition's bits.
        inverse(of.output_scale != nullptr ? __frcp_rn(__ldg(of.output_scale)) : 1.0F) {}

  // The sum that stands for K = 0: adding D's old value to -0 keeps every bit of it.
  __device__ __forceinline__ float empty_sum() const {
    return params.accumulates != 0 ? -0.0F : 0.0F;
  }

  __device__ __forceinline__ float old_value(long long at) const {
    return load_value(params.output, at, type);
  }

  // Before rounding. `old`: D's element, used when accumulating.
  __device__ __forceinline__ float value(float sum, float old, long long col) const {
    float value = sum;
    if (params.accumulates != 0) value = __fadd_rn(value, old);
    if (params.bias != nullptr) {
      value = __fadd_rn(value, load_value(params.bias, col * params.bias_stride,
                                          static_cast<DType>(params.bias_dtype)));
    }
    if (params.output_scale != nullptr) value = __fmul_rn(value, inverse);
    return value;
  }
};

// A D whose rows are contiguous: each lane takes four columns at a time, each warp a stretch.
__device__ __forceinline__ void finish_rows(const FinishOutputParams& params) {
  constexpr int kWarps = kFinishThreads / 32;
  constexpr int kColumns = 4;
  constexpr int kGroups = kFinishStretch / (32 * kColumns);
  const OutputSteps steps(params);
  const long long stretches = (params.n + kFinishStretch - 1) / kFinishStretch;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (long long task = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
       task < params.m * stretches; task += static_cast<long long>(gridDim.x) * kWarps) {
    const long long row = task / stretches;
    const long long first = (task - row * stretches) * kFinishStretch + lane * kColumns;
    float4 sums[kGroups];
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const long long col = first + group * 32 * kColumns;
      // Rows of sums are padded to whole groups.
      if (params.sums != nullptr && col < params.n) {
        sums[group] =
            *reinterpret_cast<const float4*>(params.sums + row * params.sums_stride + col);
      } else {
        const float empty = steps.empty_sum();
        sums[group] = {empty, empty, empty, empty};
      }
    }
#pragma unroll
    for (int group = 0; group < kGroups; ++group) {
      const long long col = first + group * 32 * kColumns;
      const long long at = row * params.output_row_stride + col;
      float values[kColumns] = {sums[group].x, sums[group].y, sums[group].z, sums[group].w};
#pragma unroll
      for (int i = 0; i < kColumns; ++i) {
        if (col + i >= params.n) continue;
        const float old = params.accumulates != 0 ? steps.old_value(at + i) : 0.0F;
        values[i] = steps.value(values[i], old, col + i);
      }
      auto* bytes = static_cast<unsigned char*>(params.output);
      if (is_fp8(steps.type) && col + kColumns <= params.n &&
          reinterpret_cast<unsigned long long>(bytes + at) % kColumns == 0) {
        unsigned packed = 0;
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          packed |= static_cast<unsigned>(to_fp8(values[i], steps.type)) << (8 * i);
        }
        *reinterpret_cast<unsigned*>(bytes + at) = packed;
      } else {
#pragma unroll
        for (int i = 0; i < kColumns; ++i) {
          if (col + i < params.n) store_rounded(params.output, at + i, steps.type, values[i]);
        }
      }
    }
  }
}

// Any D: squares pass through shared memory, so that sums are read along N and D is written along
// whichever of its dimensions lies closer in memory.
__device__ __forceinline__ void finish_squares(const FinishOutputParams& params) {
  constexpr int kRowsAtOnce = kFinishThreads / kFinishTile;
  constexpr int kPasses = kFinishTile / kRowsAtOnce;
  __shared__ float square[kFinishTile][kFinishTile + 1];  // PERF: + 1 against bank conflicts
  const OutputSteps steps(params);
  const long long tiles_n = (params.n + kFinishTile - 1) / kFinishTile;
  const long long num_tiles = (params.m + kFinishTile - 1) / kFinishTile * tiles_n;
  const int lane = static_cast<int>(threadIdx.x) % kFinishTile;
  const int warp = static_cast<int>(threadIdx.x) / kFinishTile;
  const bool down = params.down_columns != 0;
  for (long long tile = blockIdx.x; tile < num_tiles; tile += gridDim.x) {
    const long long tile_m = tile / tiles_n;
    const long long first_row = tile_m * kFinishTile;
    const long long first_col = (tile - tile_m * tiles_n) * kFinishTile;
    const int rows =
        static_cast<int>(min(params.m - first_row, static_cast<long long>(kFinishTile)));
    const int cols =
        static_cast<int>(min(params.n - first_col, static_cast<long long>(kFinishTile)));
    const float* from = params.sums + (first_row + warp) * params.sums_stride + first_col + lane;
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      const int row = i * kRowsAtOnce + warp;
      float sum = steps.empty_sum();
      if (params.sums != nullptr && row < rows && lane < cols) {
        sum = from[i * kRowsAtOnce * params.sums_stride];
      }
      square[row][lane] = sum;
    }
    __syncthreads();
    // Lanes along D's nearer dimension.
    const long long step =
        kRowsAtOnce * (down ? params.output_col_stride : params.output_row_stride);
    const long long at = (first_row + (down ? lane : warp)) * params.output_row_stride +
                         (first_col + (down ? warp : lane)) * params.output_col_stride;
    float old[kPasses] = {};
    const auto inside = [&](int i) {
      const int along = i * kRowsAtOnce + warp;
      return down ? lane < rows && along < cols : along < rows && lane < cols;
    };
    if (params.accumulates != 0) {
#pragma unroll
      for (int i = 0; i < kPasses; ++i) {
        if (inside(i)) old[i] = steps.old_value(at + i * step);
      }
    }
#pragma unroll
    for (int i = 0; i < kPasses; ++i) {
      if (!inside(i)) continue;
      const int along = i * kRowsAtOnce + warp;
      const float sum = down ? square[lane][along] : square[along][lane];
      store_rounded(params.output, at + i * step, steps.type,
                    steps.value(sum, old[i], first_col + (down ? along : lane)));
    }
    __syncthreads();
  }
}

__device__ __forceinline__ void finish_output(const FinishOutputParams& params) {
  ptx::wait_for_earlier_kernels();
  ptx::let_next_kernel_start();
  if (params.output_col_stride == 1) {
    finish_rows(params);
  } else {
    finish_squares(params);
  }
}

}  // namespace octavo
