// SPDX-License-Identifier: Apache-2.0
// From the sums of a streamed product to D, in this order: scales of the tensor and row recipes,
// splits of K in ascending order, D's old value, bias, one rounding. docs/numerics.md has the
// formulas.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/load_scale.cuh"
#include "kernels/gemm/output_value.cuh"
#include "kernels/gemm/streamed_consumer.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/thread_block.cuh"

namespace octavo {

// Named barriers of streamed products: 1 to 4, each of one consumer, that of all of them, and that
// of those that load, who wait until sums were read.
inline constexpr int kFirstConsumerBarrier = 1;
inline constexpr int kConsumersBarrier = 5;
inline constexpr int kSumsReadBarrier = 6;

template <GemmConfig config>
class StreamedEpilogue {
 public:
  using Part = StreamedPart<config>;
  using Sums = typename Part::Sums;
  // A unit is two neighbouring sums of a row of wgmma's: rows of A at one row of B if swapped, rows
  // of B (columns of D) at one row of A if not.
  static constexpr int num_units = Part::registers / 2;

  __device__ __forceinline__ StreamedEpilogue(const GemmArguments<config>& arguments,
                                              const Part& part, int team)
      : arguments_(arguments), part_(part), team_(team) {}

  // Multiplies by the scales that the main loop left to be applied.
  __device__ __forceinline__ void scale(Sums& total, const Tile& tile) const {
    if constexpr (config.recipe == ScaleRecipe::kTensor) {
      const float factor = __fmul_rn(load_scale(a_scale_of(arguments_, tile), 0),
                                     load_scale(b_scale_of(arguments_, tile), 0));
#pragma unroll
      for (int i = 0; i < Part::registers; ++i) total[i] = __fmul_rn(total[i], factor);
    }
    if constexpr (config.recipe == ScaleRecipe::kRow) {
      const GemmParams& params = product_of(arguments_, tile);
      const auto& a_scales = a_scale_of(arguments_, tile);
      const auto& b_scales = b_scale_of(arguments_, tile);
      const ScaleParams& of_rows = is_swapped(config) ? b_scales : a_scales;
      const ScaleParams& of_columns = is_swapped(config) ? a_scales : b_scales;
      const int rows = is_swapped(config) ? params.n : params.m;
      const int columns = is_swapped(config) ? params.m : params.n;
      const int row = is_swapped(config) ? tile.row_b + part_.b_row() : tile.row_a + part_.a_row();
      int column = is_swapped(config) ? tile.row_a + part_.a_row() : tile.row_b + part_.b_row();
      float row_factor[2];
#pragma unroll
      for (int r = 0; r < 2; ++r) row_factor[r] = row_scale(of_rows, row + 8 * r, rows);
#pragma unroll
      for (int group = 0; group < Part::num_groups; ++group) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          // PERF: one scale after the other; all of them at once, with their addresses, would
          // spill.
          asm volatile("" : "+r"(column), "+f"(total[group * 4]));
          const float column_factor = row_scale(of_columns, column + 8 * group + c, columns);
#pragma unroll
          for (int r = 0; r < 2; ++r) {
            float& value = total[group * 4 + r * 2 + c];
            value = __fmul_rn(value, __fmul_rn(column_factor, row_factor[r]));
          }
        }
      }
    }
  }

  // `staging`: shared memory for the results of all consumers.
  __device__ __forceinline__ void store(const Sums& total, const Tile& tile,
                                        unsigned staging) const {
    if (stores_elements(tile)) {
#pragma unroll
      for (int unit = 0; unit < num_units; ++unit) {
        store_unit({total[2 * unit], total[2 * unit + 1]}, unit, tile);
      }
      return;
    }
    meet_sharers();  // the last tile's results were read
#pragma unroll
    for (int step = 0; step < num_steps; ++step) {
      unsigned pairs[kUnitsOfStep];
#pragma unroll
      for (int i = 0; i < kUnitsOfStep; ++i) {
        const int unit = unit_of_step(step, i);
        pairs[i] = packed({total[2 * unit], total[2 * unit + 1]}, unit, tile);
      }
      stage_step(pairs, step, staging);
    }
    meet_sharers();
    if constexpr (is_swapped(config)) {
#pragma unroll
      for (int step = 0; step < num_steps; ++step) store_step(step, staging, tile);
    } else {
      store_warp(staging, tile);
    }
  }

  // Puts the sums where the other splits can read them.
  __device__ __forceinline__ void share(const Sums& total, unsigned shared_sums) const {
#pragma unroll
    for (int unit = 0; unit < num_units; ++unit) {
      ptx::store_shared_pair(shared_sums + place(team_, unit), total[2 * unit],
                             total[2 * unit + 1]);
    }
  }

  // Adds what every split shared, for each num_splits-th step, and stores it.
  __device__ __forceinline__ void store_shared(unsigned shared_sums, int split,
                                               const Tile& tile) const {
    constexpr int teams = streamed_teams(config);
    constexpr bool is_spread = cluster_size(config) > 1;
    const unsigned staging = shared_sums + shared_sums_bytes(config);
    const bool by_element = stores_elements(tile);
    for (int step = split; step < num_steps; step += config.num_splits) {
      unsigned pairs[kUnitsOfStep];
#pragma unroll
      for (int i = 0; i < kUnitsOfStep; ++i) {
        const int unit = unit_of_step(step, i);
        float2 part[config.num_splits];
#pragma unroll
        for (int k = 0; k < config.num_splits; ++k) {
          const unsigned at = shared_sums + place(k % teams, unit);
          part[k] = is_spread ? ptx::load_cluster_pair(ptx::shared_address_of_block(at, k / teams))
                              : ptx::load_shared_pair(at);
        }
        float2 sum = part[0];
#pragma unroll
        for (int k = 1; k < config.num_splits; ++k) {
          sum.x = __fadd_rn(sum.x, part[k].x);
          sum.y = __fadd_rn(sum.y, part[k].y);
        }
        if (!by_element) {
          pairs[i] = packed(sum, unit, tile);
        } else if (is_of_step(step, i)) {
          store_unit(sum, unit, tile);
        }
      }
      if (by_element) continue;
      stage_step(pairs, step, staging);
      meet_sharers();
      store_step(step, staging, tile);
    }
  }

 private:
  // PERF: results of 16 bit go through shared memory, so that whole lines of 128 bytes are stored;
  // parts of them took two to five times as long (docs/experiments.md, "Stores of few rows"). A
  // step is, swapped, 16 rows of D and the 64 columns of a consumer; otherwise 8 of each warp's 16
  // rows and 32 columns.
  static constexpr int kUnitsOfStep = 4;
  static constexpr int num_chunks = streamed_b_rows(config) / kChunkColumns;
  static constexpr int num_steps = is_swapped(config)
                                       ? (config.tile_m + kStepRows - 1) / kStepRows
                                       : (num_chunks + kStepChunks - 1) / kStepChunks * 2;

  // Units are numbered by their first sum, 4 g + 2 r. A step that is not full has some of them
  // twice.
  [[nodiscard]] static __device__ __forceinline__ int unit_of_step(int step, int i) {
    if constexpr (is_swapped(config)) return (kUnitsOfStep * step + i) % num_units;
    return 2 * ((step / 2 * kUnitsOfStep + i) % Part::num_groups) + step % 2;
  }
  [[nodiscard]] static __device__ __forceinline__ bool is_of_step(int step, int i) {
    if constexpr (is_swapped(config)) return i < num_units;
    return step / 2 * kUnitsOfStep + i < Part::num_groups;
  }

  [[nodiscard]] __device__ __forceinline__ bool stores_elements(const Tile& tile) const {
    return config.d == DType::kF32 || product_of(arguments_, tile).stores_directly != 0;
  }

  // Until those that share what they stage have come here: the threads of this consumer if swapped,
  // otherwise those of this warp.
  __device__ __forceinline__ void meet_sharers() const {
    if constexpr (is_swapped(config)) {
      ptx::named_barrier(
          kFirstConsumerBarrier + team_ * streamed_consumers(config) + part_.consumer,
          kWarpGroupThreads);
    } else {
      __syncwarp();
    }
  }

  // The row and the column of D of a unit's first element.
  [[nodiscard]] __device__ __forceinline__ int d_row(const Tile& tile, int unit) const {
    return tile.row_a + part_.a_row() + Part::a_offset(2 * unit);
  }
  [[nodiscard]] __device__ __forceinline__ int d_column(const Tile& tile, int unit) const {
    return tile.row_b + part_.b_row() + Part::b_offset(2 * unit);
  }
  // From there to those of the second.
  static constexpr int next_row = is_swapped(config) ? 1 : 0;
  static constexpr int next_column = 1 - next_row;

  // A unit, finished, as two results of 16 bit.
  [[nodiscard]] __device__ __forceinline__ unsigned packed(float2 sum, int unit,
                                                           const Tile& tile) const {
    if constexpr (config.d == DType::kF32) {
      return 0;  // never asked for
    } else {
      const int row = d_row(tile, unit);
      const int column = d_column(tile, unit);
      return pack_16bit<config.d>(finish(sum.x, tile, row, column),
                                  finish(sum.y, tile, row + next_row, column + next_column));
    }
  }

  // Eight neighbouring columns of a row; swapped, swizzled, so that neither rows nor columns meet
  // in a bank.
  [[nodiscard]] __device__ __forceinline__ unsigned chunk(unsigned staging, int row,
                                                          int column_chunk) const {
    const int place = is_swapped(config) ? column_chunk ^ row % 8 : column_chunk;
    return staging + part_.consumer * streamed_output_bytes(config) +
           row * streamed_row_bytes(config) + place * kChunkBytes;
  }

  // What the warp has of a step.
  __device__ __forceinline__ void stage_step(const unsigned (&pairs)[kUnitsOfStep], int step,
                                             unsigned staging) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % kWarpGroupThreads / 32;
    if constexpr (is_swapped(config)) {
      const int row = kStepRows * step + lane / 16 * 8 + lane % 8;
      ptx::store_matrices_transposed(chunk(staging, row, 2 * warp + lane / 8 % 2), pairs);
    } else {
      const int row = 16 * warp + step % 2 * 8 + lane % 8;
      ptx::store_matrices(chunk(staging, row, step / 2 * kStepChunks + lane / 8), pairs);
    }
  }

  // A thread's chunk of a step.
  __device__ __forceinline__ void store_step(int step, unsigned staging, const Tile& tile) const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    if constexpr (is_swapped(config)) {
      store_chunk(kStepRows * step + thread / 8, thread % 8, staging, tile);
    } else {
      const int row = thread / 32 * 16 + step % 2 * 8 + thread % 32 / kStepChunks;
      const int at = step / 2 * kStepChunks + thread % kStepChunks;
      if (at < num_chunks) store_chunk(row, at, staging, tile);
    }
  }

  // All of a warp's 16 rows.
  __device__ __forceinline__ void store_warp(unsigned staging, const Tile& tile) const {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) % kWarpGroupThreads / 32;
    constexpr int kChunks = 16 * num_chunks;
#pragma unroll
    for (int first = 0; first < kChunks; first += 32) {
      const int i = first + lane;
      if (kChunks % 32 == 0 || i < kChunks) {
        store_chunk(16 * warp + i / num_chunks, i % num_chunks, staging, tile);
      }
    }
  }

  // Rows are whole multiples of 16 bytes, and so of chunks.
  __device__ __forceinline__ void store_chunk(int row, int column_chunk, unsigned staging,
                                              const Tile& tile) const {
    const float4 values = ptx::load_shared_chunk(chunk(staging, row, column_chunk));
    const int to_row = tile.row_a + row;
    const int to_column = tile.row_b + part_.first_b_row() + column_chunk * kChunkColumns;
    if (row >= config.tile_m || !is_inside(tile, to_row, to_column)) return;
    *reinterpret_cast<float4*>(static_cast<unsigned short*>(output_of(arguments_, tile)) +
                               to_row * product_of(arguments_, tile).output_stride + to_column) =
        values;
  }

  [[nodiscard]] __device__ __forceinline__ unsigned place(int team, int unit) const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    const int consumer = team * streamed_consumers(config) + part_.consumer;
    return 8 * ((consumer * num_units + unit) * kWarpGroupThreads + thread);
  }

  // Rows behind the end are never stored; any scale will do for them.
  static __device__ __forceinline__ float row_scale(const ScaleParams& scale, int row, int rows) {
    return load_scale(scale, min(row, rows - 1) * scale.row_stride);
  }

  // A tile's last consumer has rows of B that are the next tile's.
  [[nodiscard]] __device__ __forceinline__ bool is_inside(const Tile& tile, int row,
                                                          int column) const {
    return row < tile.end_a && column < product_of(arguments_, tile).n &&
           column - tile.row_b < config.tile_n;
  }

  // Each step rounds: written as one expression the compiler could fuse them.
  __device__ __forceinline__ float finish(float value, const Tile& tile, int row,
                                          int column) const {
    const GemmParams& params = product_of(arguments_, tile);
    if (!is_inside(tile, row, column)) return value;
    if constexpr (config.accumulates) {
      value = __fadd_rn(value, load_value(output_of(arguments_, tile),
                                          row * params.output_stride + column, config.d));
    }
    if constexpr (config.has_bias) {
      value = __fadd_rn(value, load_value(bias_of(arguments_, tile), column * params.bias_stride,
                                          static_cast<DType>(params.bias_dtype)));
    }
    return value;
  }

  __device__ __forceinline__ void store_unit(float2 sum, int unit, const Tile& tile) const {
    int row = d_row(tile, unit);
    int column = d_column(tile, unit);
    const float first = finish(sum.x, tile, row, column);
    const float second = finish(sum.y, tile, row + next_row, column + next_column);
    if (product_of(arguments_, tile).stores_directly != 0) {
      store_inside(tile, row, column, first);
      store_inside(tile, row + next_row, column + next_column, second);
      return;
    }
    if constexpr (config.d == DType::kF32) {
      float low = first;
      float high = second;
      if constexpr (is_swapped(config)) {
        // PERF: the lane with the next column has the same two rows. One of the two takes the first
        // of them and one the second, so that neighbouring columns are stored together.
        constexpr int kNextColumn = 4;
        const bool is_odd = column % 2 != 0;
        const float other = __shfl_xor_sync(0xFFFFFFFFU, is_odd ? first : second, kNextColumn);
        low = is_odd ? other : first;
        high = is_odd ? second : other;
        if (is_odd) {
          ++row;
          --column;
        }
      }
      // Rows are whole multiples of 16 bytes: both columns are inside or neither. (Sums in the
      // workspace have rows of any length in a stride of such multiples: one more is written.)
      if (!is_inside(tile, row, column)) return;
      const long long at = row * product_of(arguments_, tile).output_stride + column;
      *reinterpret_cast<float2*>(static_cast<float*>(output_of(arguments_, tile)) + at) = {low,
                                                                                           high};
    }
  }

  __device__ __forceinline__ void store_inside(const Tile& tile, int row, int column,
                                               float value) const {
    if (!is_inside(tile, row, column)) return;
    store_value<config.d>(output_of(arguments_, tile),
                          row * product_of(arguments_, tile).output_stride + column, value);
  }

  const GemmArguments<config>& arguments_;
  const Part& part_;
  int team_;
};

}  // namespace octavo
