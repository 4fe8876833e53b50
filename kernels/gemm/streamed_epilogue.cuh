// SPDX-License-Identifier: Apache-2.0
// From the sums of a streamed product to D, in this order: scales of the tensor and row recipes,
// splits of K in ascending order, D's old value, bias, one rounding. docs/numerics.md has the
// formulas.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/gemm/load_scale.cuh"
#include "kernels/gemm/output_value.cuh"
#include "kernels/gemm/streamed_consumer.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/thread_block.cuh"

namespace octavo {

template <GemmConfig config>
class StreamedEpilogue {
 public:
  using Part = StreamedPart<config>;
  using Sums = typename Part::Sums;
  // A unit is two neighbouring rows of A at one row of B.
  static constexpr int num_units = Part::registers / 2;

  __device__ __forceinline__ StreamedEpilogue(const GemmArguments<config>& arguments,
                                              const Part& part)
      : arguments_(arguments), part_(part) {}

  // Multiplies by the scales that the main loop left to be applied.
  __device__ __forceinline__ void scale(Sums& total, const Tile& tile) const {
    if constexpr (config.recipe == ScaleRecipe::kTensor) {
      const float factor =
          __fmul_rn(load_scale(a_scale_of(arguments_, tile), 0),
                    load_scale(b_scale_of(arguments_, tile), 0));
#pragma unroll
      for (int i = 0; i < Part::registers; ++i) total[i] = __fmul_rn(total[i], factor);
    }
    if constexpr (config.recipe == ScaleRecipe::kRow) {
      const GemmParams& params = product_of(arguments_, tile);
      const auto& a_scales = a_scale_of(arguments_, tile);
      const auto& b_scales = b_scale_of(arguments_, tile);
      float b_scale[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        b_scale[r] = row_scale(b_scales, tile.row_b + part_.b_row() + 8 * r, params.n);
      }
      int row = tile.row_a + part_.a_row();
#pragma unroll
      for (int group = 0; group < Part::a_rows / 8; ++group) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          // PERF: one scale after the other; all of them at once, with their addresses, would
          // spill.
          asm volatile("" : "+r"(row), "+f"(total[group * 4]));
          const float a_scale = row_scale(a_scales, row + 8 * group + c, params.m);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float& value = total[group * 4 + r * 2 + c];
            value = __fmul_rn(value, __fmul_rn(a_scale, b_scale[r]));
          }
        }
      }
    }
  }

  __device__ __forceinline__ void store(const Sums& total, const Tile& tile) const {
#pragma unroll
    for (int unit = 0; unit < num_units; ++unit) {
      store_unit({total[2 * unit], total[2 * unit + 1]}, unit, tile);
    }
  }

  // Puts the sums where the other thread blocks of the cluster can read them.
  __device__ __forceinline__ void share(const Sums& total, unsigned shared_sums) const {
#pragma unroll
    for (int unit = 0; unit < num_units; ++unit) {
      ptx::store_shared_pair(shared_sums + place(unit), total[2 * unit], total[2 * unit + 1]);
    }
  }

  // Adds what every split shared, for each num_splits-th unit, and stores it.
  __device__ __forceinline__ void store_shared(unsigned shared_sums, int split,
                                               const Tile& tile) const {
    unsigned from[config.num_splits];
#pragma unroll
    for (int i = 0; i < config.num_splits; ++i) {
      from[i] = ptx::shared_address_of_block(shared_sums, i);
    }
#pragma unroll 2
    for (int unit = split; unit < num_units; unit += config.num_splits) {
      float2 part[config.num_splits];
#pragma unroll
      for (int i = 0; i < config.num_splits; ++i) {
        part[i] = ptx::load_cluster_pair(from[i] + place(unit));
      }
      float2 sum = part[0];
#pragma unroll
      for (int i = 1; i < config.num_splits; ++i) {
        sum.x = __fadd_rn(sum.x, part[i].x);
        sum.y = __fadd_rn(sum.y, part[i].y);
      }
      store_unit(sum, unit, tile);
    }
  }

 private:
  __device__ __forceinline__ unsigned place(int unit) const {
    const int thread = static_cast<int>(threadIdx.x);
    return 8 * (unit * streamed_consumers(config) * kWarpGroupThreads + thread);
  }

  // Rows behind the end are never stored; any scale will do for them.
  static __device__ __forceinline__ float row_scale(const ScaleParams& scale, int row, int rows) {
    return load_scale(scale, min(row, rows - 1) * scale.row_stride);
  }

  // Each step rounds: written as one expression the compiler could fuse them.
  __device__ __forceinline__ float finish(float value, const Tile& tile, int row, int column) const {
    const GemmParams& params = product_of(arguments_, tile);
    if (row >= tile.end_a || column >= params.n) return value;
    if constexpr (config.accumulates) {
      value = __fadd_rn(value,
                        load_value(output_of(arguments_, tile),
                                   row * params.output_stride + column, config.d));
    }
    if constexpr (config.has_bias) {
      value = __fadd_rn(value,
                        load_value(bias_of(arguments_, tile), column * params.bias_stride,
                                   static_cast<DType>(params.bias_dtype)));
    }
    return value;
  }

  __device__ __forceinline__ void store_unit(float2 sum, int unit, const Tile& tile) const {
    const GemmParams& params = product_of(arguments_, tile);
    int row = tile.row_a + part_.a_row() + unit / 2 * 8;
    int column = tile.row_b + part_.b_row() + unit % 2 * 8;
    const float first = finish(sum.x, tile, row, column);
    const float second = finish(sum.y, tile, row + 1, column);
    if (params.stores_directly != 0) {
      store_inside(tile, row, column, first);
      store_inside(tile, row + 1, column, second);
      return;
    }
    // PERF: the lane with the next column has the same two rows. One of the two takes the first of
    // them and one the second, so that neighbouring columns are stored together.
    constexpr int kNextColumn = 4;
    const bool is_odd = column % 2 != 0;
    const float other = __shfl_xor_sync(0xFFFFFFFFU, is_odd ? first : second, kNextColumn);
    const float low = is_odd ? other : first;
    const float high = is_odd ? second : other;
    if (is_odd) {
      ++row;
      --column;
    }
    // Rows are whole multiples of 16 bytes: both columns are inside or neither. (F32 sums in the
    // workspace have rows of any length in a stride of such multiples: one more is written.)
    if (row >= tile.end_a || column >= params.n) return;
    const long long at = row * params.output_stride + column;
    if constexpr (config.d == DType::kF32) {
      *reinterpret_cast<float2*>(static_cast<float*>(output_of(arguments_, tile)) + at) = {low, high};
    } else {
      *reinterpret_cast<unsigned*>(static_cast<unsigned short*>(output_of(arguments_, tile)) + at) =
          pack_16bit<config.d>(low, high);
    }
  }

  __device__ __forceinline__ void store_inside(const Tile& tile, int row, int column,
                                               float value) const {
    const GemmParams& params = product_of(arguments_, tile);
    if (row >= tile.end_a || column >= params.n) return;
    store_value<config.d>(output_of(arguments_, tile), row * params.output_stride + column, value);
  }

  const GemmArguments<config>& arguments_;
  const Part& part_;
};

}  // namespace octavo
