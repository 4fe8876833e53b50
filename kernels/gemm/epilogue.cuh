// SPDX-License-Identifier: Apache-2.0
// From a consumer's sums to D, in this order: scales of the tensor and row recipes, D's old value,
// bias, one rounding to D's type. docs/numerics.md has the formulas.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/ptx/shared_memory.cuh"
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

// What a consumer warp-group does with the sums of its 64 rows of a tile. `part_n`: columns of one
// of the arrays that the sums come in.
template <GemmConfig config, int part_n>
class Epilogue {
 public:
  static constexpr int num_parts = config.tile_n / part_n;
  using Sums = float[num_parts][part_n / 2];

  // `boxes` and `column_scales`: this consumer's own shared memory.
  __device__ __forceinline__ Epilogue(const GemmParams& params, unsigned boxes,
                                      unsigned column_scales, int consumer)
      : params_(params), boxes_(boxes), column_scales_(column_scales), consumer_(consumer) {
    thread_ = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    lane_ = thread_ % 32;
    if constexpr (config.recipe == ScaleRecipe::kTensor) {
      row_scales_[0] = __fmul_rn(__ldg(params.a_scale), __ldg(params.b_scale));
      row_scales_[1] = row_scales_[0];
    }
  }

  // Starts to fetch the row recipe's scales of the tile at (row_a, row_b).
  __device__ __forceinline__ void fetch_scales(int row_a, int row_b) {
    if constexpr (config.recipe == ScaleRecipe::kRow) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        // Rows behind the end are never stored; any scale will do for them.
        const int row = min(first_row(row_a) + 8 * r, params_.m - 1);
        row_scales_[r] = __ldg(params_.a_scale + row * params_.a_scale_stride);
      }
#pragma unroll
      for (int i = thread_; i < config.tile_n; i += kWarpGroupThreads) {
        const int column = row_b + i;
        ptx::copy_word_async(column_scales_ + 4 * i,
                             params_.b_scale + column * params_.b_scale_stride, column < params_.n);
      }
    }
  }

  // Stores rows [row_a + 64 consumer, + 64) of the tile at (row_a, row_b).
  __device__ __forceinline__ void store(const Sums& sums, int row_a, int row_b) {
    if constexpr (config.recipe == ScaleRecipe::kRow) ptx::copy_async_wait();
    if (params_.stores_directly != 0) {
      sync_consumer();
      store_directly(sums, row_a, row_b);
      // The next tile's scales must not arrive before these were read.
      sync_consumer();
    } else {
      store_boxes(sums, row_a, row_b);
    }
  }

 private:
  __device__ __forceinline__ void sync_consumer() const {
    ptx::named_barrier(1 + consumer_, kWarpGroupThreads);
  }

  // The upper of the two rows of which this thread holds elements.
  __device__ __forceinline__ int first_row(int row_a) const {
    return row_a + consumer_ * kWarpGroupRows + thread_ / 32 * 16 + lane_ / 4;
  }

  // The results of columns `column` and `column` + 1 of row `row` from their sums. Each step
  // rounds: written as a * b + d the compiler would fuse it, and the bits would be others.
  __device__ __forceinline__ void finish(float (&values)[2], int row, float row_scale,
                                         const float2& column_scale, int column) const {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (config.recipe == ScaleRecipe::kTensor) {
        values[c] = __fmul_rn(values[c], row_scale);
      } else if constexpr (config.recipe == ScaleRecipe::kRow) {
        values[c] =
            __fmul_rn(values[c], __fmul_rn(row_scale, c == 0 ? column_scale.x : column_scale.y));
      }
      const bool inside = row < params_.m && column + c < params_.n;
      if constexpr (config.accumulates) {
        if (inside) {
          values[c] = __fadd_rn(
              values[c],
              load_value(params_.output, row * params_.output_stride + column + c, config.d));
        }
      }
      if constexpr (config.has_bias) {
        if (inside) {
          values[c] =
              __fadd_rn(values[c], load_value(params_.bias, (column + c) * params_.bias_stride,
                                              static_cast<DType>(params_.bias_dtype)));
        }
      }
    }
  }

  // Finished elements of row 8 r + lane / 4 of the warp's 16, of the group of 8 columns that begins
  // at `tile_column`.
  __device__ __forceinline__ void finish_pair(float (&values)[2], const Sums& sums, int row_a,
                                              int row_b, int tile_column, int r) const {
    const int part = tile_column / part_n;
    const int j = tile_column % part_n / 8 * 4 + 2 * r;
    values[0] = sums[part][j];
    values[1] = sums[part][j + 1];
    const int within = tile_column + lane_ % 4 * 2;
    float2 column_scale{1, 1};
    if constexpr (config.recipe == ScaleRecipe::kRow) {
      column_scale = ptx::load_shared_pair(column_scales_ + 4 * within);
    }
    finish(values, first_row(row_a) + 8 * r, row_scales_[r], column_scale, row_b + within);
  }

  // For an output that TMA cannot write: element by element.
  __device__ __forceinline__ void store_directly(const Sums& sums, int row_a, int row_b) const {
#pragma unroll
    for (int tile_column = 0; tile_column < config.tile_n; tile_column += 8) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float values[2];
        finish_pair(values, sums, row_a, row_b, tile_column, r);
        const int row = first_row(row_a) + 8 * r;
        const int column = row_b + tile_column + lane_ % 4 * 2;
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (row >= params_.m || column + c >= params_.n) continue;
          store_value<config.d>(params_.output, row * params_.output_stride + column + c,
                                values[c]);
        }
      }
    }
  }

  // Through shared memory, box after box: while one is written out the next is filled.
  __device__ __forceinline__ void store_boxes(const Sums& sums, int row_a, int row_b) const {
    constexpr int box_columns = kSwizzleBytes / size_bytes(config.d);
#pragma unroll
    for (int box = 0; box < config.tile_n / box_columns; ++box) {
      if (thread_ == 0) ptx::tma_store_wait_read<kOutputBoxes - 1>();
      sync_consumer();
      const unsigned to = boxes_ + box % kOutputBoxes * kOutputBoxBytes;
      if constexpr (is_16bit(config.d)) {
        fill_16bit(to, sums, row_a, row_b, box * box_columns);
      } else {
        fill_32bit(to, sums, row_a, row_b, box * box_columns);
      }
      ptx::fence_shared_for_tma();
      sync_consumer();
      if (thread_ == 0) {
        ptx::tma_store(&params_.d, to, row_b + box * box_columns,
                       row_a + consumer_ * kWarpGroupRows);
        ptx::tma_store_commit();
      }
    }
  }

  // 128-byte swizzle: 16-byte chunk c of row i lies at chunk c ^ (i % 8).
  static __device__ __forceinline__ unsigned chunk_address(unsigned box, int row, int chunk) {
    return box + row * kSwizzleBytes + (chunk ^ (row % 8)) * 16;
  }

  // PERF: one stmatrix writes what 4 stores of a pair each would (docs/experiments.md, "The
  // epilogue").
  __device__ __forceinline__ void fill_16bit(unsigned to, const Sums& sums, int row_a, int row_b,
                                             int first_column) const {
    // Matrices of 8 x 8: rows 0-7 and 8-15 of the warp's 16, for two groups of columns.
    const int row = thread_ / 32 * 16 + lane_ % 16;
#pragma unroll
    for (int chunk = 0; chunk < kSwizzleBytes / 16; chunk += 2) {
      unsigned pairs[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float values[2];
        finish_pair(values, sums, row_a, row_b, first_column + (chunk + i / 2) * 8, i % 2);
        pairs[i] = pack_16bit<config.d>(values[0], values[1]);
      }
      ptx::store_matrices(chunk_address(to, row, chunk + lane_ / 16), pairs);
    }
  }

  __device__ __forceinline__ void fill_32bit(unsigned to, const Sums& sums, int row_a, int row_b,
                                             int first_column) const {
    constexpr int groups = kSwizzleBytes / 4 / 8;
#pragma unroll
    for (int group = 0; group < groups; ++group) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        float values[2];
        finish_pair(values, sums, row_a, row_b, first_column + group * 8, r);
        const int row = thread_ / 32 * 16 + lane_ / 4 + 8 * r;
        const int byte = (group * 8 + lane_ % 4 * 2) * 4;
        ptx::store_shared_pair(chunk_address(to, row, byte / 16) + byte % 16, values[0], values[1]);
      }
    }
  }

  const GemmParams& params_;
  unsigned boxes_;
  unsigned column_scales_;
  int consumer_;
  int thread_;
  int lane_;
  float row_scales_[2] = {1, 1};  // tensor recipe: the product of both scales
};

}  // namespace octavo
