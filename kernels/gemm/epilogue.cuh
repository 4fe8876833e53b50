// SPDX-License-Identifier: Apache-2.0
// From a consumer's sums to D, in this order: scales of the tensor and row recipes, D's old value,
// bias, one rounding to D's type. docs/numerics.md has the formulas.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// Two F32 values as BF16 or F16, round to nearest even; `low` in the lower half.
template <DType type>
__device__ __forceinline__ unsigned pack_16bit(float low, float high) {
  static_assert(is_16bit(type));
  unsigned packed;
  if constexpr (type == DType::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

__device__ __forceinline__ float from_16bit(unsigned short code, DType type) {
  float value;
  if (type == DType::kBF16) {
    value = __uint_as_float(static_cast<unsigned>(code) << 16);
  } else {
    asm("{\n.reg .b16 h;\nmov.b16 h, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(value) : "h"(code));
  }
  return value;
}

// Element i of an array of BF16, F16 or F32.
__device__ __forceinline__ float load_value(const void* values, long long i, DType type) {
  if (type == DType::kF32) return static_cast<const float*>(values)[i];
  return from_16bit(static_cast<const unsigned short*>(values)[i], type);
}

template <DType type>
__device__ __forceinline__ void store_value(void* values, long long i, float value) {
  if constexpr (type == DType::kF32) {
    static_cast<float*>(values)[i] = value;
  } else {
    static_cast<unsigned short*>(values)[i] =
        static_cast<unsigned short>(pack_16bit<type>(value, value) & 0xFFFFU);
  }
}

// What two neighbouring columns add to every row of theirs.
template <GemmConfig config>
struct ColumnTerms {
  static constexpr bool has_scales =
      config.recipe == ScaleRecipe::kTensor || config.recipe == ScaleRecipe::kRow;
  float scale[2] = {1, 1};
  float bias[2] = {0, 0};

  // Columns behind the end have no terms; what is computed for them is not stored.
  __device__ __forceinline__ ColumnTerms(const GemmParams& params, int column) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (config.recipe == ScaleRecipe::kTensor) scale[c] = __ldg(params.b_scale);
      if (column + c >= params.n) continue;
      if constexpr (config.recipe == ScaleRecipe::kRow) {
        scale[c] = __ldg(params.b_scale + (column + c) * params.b_scale_stride);
      }
      if constexpr (config.has_bias) {
        bias[c] = load_value(params.bias, (column + c) * params.bias_stride,
                             static_cast<DType>(params.bias_dtype));
      }
    }
  }
};

// The result of element (row, column + c) of D from its sum. Each step rounds: written as a * b + d
// the compiler would fuse it, and the bits would be others.
template <GemmConfig config>
__device__ __forceinline__ float finish(const GemmParams& params, float value, int row, int column,
                                        int c, float row_scale, const ColumnTerms<config>& terms) {
  if constexpr (ColumnTerms<config>::has_scales) {
    value = __fmul_rn(value, __fmul_rn(row_scale, terms.scale[c]));
  }
  if constexpr (config.accumulates) {
    if (row < params.m && column + c < params.n) {
      value = __fadd_rn(
          value, load_value(params.output, row * params.output_stride + column + c, config.d));
    }
  }
  if constexpr (config.has_bias) value = __fadd_rn(value, terms.bias[c]);
  return value;
}

// For an output that TMA cannot write: element by element.
template <GemmConfig config, typename Consumer>
__device__ __forceinline__ void store_directly(const GemmParams& params, const Consumer& consumer,
                                               const int (&rows)[2], int row_b,
                                               const float (&row_scales)[2]) {
#pragma unroll
  for (int part = 0; part < Consumer::num_parts; ++part) {
#pragma unroll
    for (int group = 0; group < Consumer::part_n / 8; ++group) {
      const int column = row_b + part * Consumer::part_n + group * 8 + consumer.lane() % 4 * 2;
      const ColumnTerms<config> terms(params, column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (rows[r] >= params.m || column + c >= params.n) continue;
          const float sum = consumer.total[part][group * 4 + r * 2 + c];
          store_value<config.d>(
              params.output, rows[r] * params.output_stride + column + c,
              finish<config>(params, sum, rows[r], column, c, row_scales[r], terms));
        }
      }
    }
  }
}

// Stores rows [row_a + 64 index, + 64) of the tile at (row_a, row_b). `output`: the consumers' boxes
// in shared memory.
template <GemmConfig config, typename Consumer>
__device__ __forceinline__ void store_tile(const GemmParams& params, const Consumer& consumer,
                                           unsigned output, int row_a, int row_b) {
  const int lane = consumer.lane();
  const int rows[2] = {row_a + consumer.row(), row_a + consumer.row() + 8};
  float row_scales[2] = {1, 1};
  if constexpr (ColumnTerms<config>::has_scales) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (rows[r] < params.m) row_scales[r] = __ldg(params.a_scale + rows[r] * params.a_scale_stride);
    }
  }
  if (params.stores_directly != 0) {
    store_directly<config>(params, consumer, rows, row_b, row_scales);
    return;
  }

  // Through shared memory, box after box: while one is written out the next is filled.
  constexpr int element_bytes = size_bytes(config.d);
  constexpr int box_columns = kSwizzleBytes / element_bytes;
  constexpr int groups = box_columns / 8;
  const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
  const int box_row = thread / 32 * 16 + lane / 4;
  const unsigned boxes = output + consumer.index() * kOutputBoxes * kOutputBoxBytes;
#pragma unroll
  for (int box = 0; box < config.tile_n / box_columns; ++box) {
    // PERF: all loads of a box are on their way before the first is needed.
    float values[2][groups][2];
#pragma unroll
    for (int group = 0; group < groups; ++group) {
      const int tile_column = box * box_columns + group * 8;
      const int part = tile_column / Consumer::part_n;
      const int j = tile_column % Consumer::part_n / 8 * 4;
      const int column = row_b + tile_column + lane % 4 * 2;
      const ColumnTerms<config> terms(params, column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          values[r][group][c] = finish<config>(params, consumer.total[part][j + 2 * r + c], rows[r],
                                               column, c, row_scales[r], terms);
        }
      }
    }
    if (thread == 0) ptx::tma_store_wait_read<kOutputBoxes - 1>();
    ptx::named_barrier(1 + consumer.index(), kWarpGroupThreads);
    const unsigned to = boxes + box % kOutputBoxes * kOutputBoxBytes;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int row = box_row + 8 * r;
        const unsigned byte = (group * 8 + lane % 4 * 2) * element_bytes;
        // 128-byte swizzle: 16-byte chunk c of row i lies at chunk c ^ (i % 8).
        const unsigned address =
            to + row * kSwizzleBytes + (((byte / 16) ^ (row % 8)) * 16) + byte % 16;
        const float low = values[r][group][0];
        const float high = values[r][group][1];
        if constexpr (config.d == DType::kF32) {
          asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(low), "f"(high)
                       : "memory");
        } else {
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(address), "r"(pack_16bit<config.d>(low, high))
                       : "memory");
        }
      }
    }
    ptx::fence_shared_for_tma();
    ptx::named_barrier(1 + consumer.index(), kWarpGroupThreads);
    if (thread == 0) {
      ptx::tma_store(&params.d, to, row_b + box * box_columns,
                     row_a + consumer.index() * kWarpGroupRows);
      ptx::tma_store_commit();
    }
  }
}

}  // namespace octavo
