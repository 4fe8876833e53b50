// SPDX-License-Identifier: Apache-2.0
// From a consumer's sums to D, in this order: scales of the tensor and row recipes, D's old value,
// bias, one rounding to D's type. docs/numerics.md has the formulas.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/load_scale.cuh"
#include "kernels/gemm/output_value.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// What a consumer warp-group does with the sums of its parts of a tile.
template <GemmConfig config>
class Epilogue {
 public:
  using PartSums = float[config.tile_n / 2];
  using Sums = PartSums[num_parts(config)];

  // `boxes` and `column_scales`: this consumer's own shared memory.
  __device__ __forceinline__ Epilogue(const GemmArguments<config>& arguments, unsigned boxes,
                                      unsigned column_scales, int consumer)
      : arguments_(arguments), boxes_(boxes), column_scales_(column_scales), consumer_(consumer) {
    thread_ = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    lane_ = thread_ % 32;
    if constexpr (config.grouping == Grouping::kNone) fetch_tensor_scale(Tile{});
  }

  // Starts to fetch what the sums of the tile are multiplied by.
  __device__ __forceinline__ void fetch_scales(const Tile& tile) {
    if constexpr (config.grouping != Grouping::kNone) fetch_tensor_scale(tile);
    if constexpr (config.recipe == ScaleRecipe::kRow) {
      const GemmParams& params = product_of(arguments_, tile);
      const auto& a_scale = a_scale_of(arguments_, tile);
      const auto& b_scale = b_scale_of(arguments_, tile);
#pragma unroll
      for (int part = 0; part < num_parts(config); ++part) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          // Rows behind the end are never stored; any scale will do for them.
          const int row = min(tile.row_a + row_in_tile(part) + 8 * r, params.m - 1);
          row_scales_[part][r] = load_scale(a_scale, row * a_scale.row_stride);
        }
      }
#pragma unroll
      for (int i = 0; i < columns_per_thread; ++i) {
        const int column = min(tile.row_b + thread_ + i * kWarpGroupThreads, params.n - 1);
        fetched_[i] = load_scale(b_scale, column * b_scale.row_stride);
      }
    }
  }

  // Stores the tile. Through shared memory, some boxes at a time: while they are
  // written out the next are filled.
  __device__ __forceinline__ void store(const Sums& sums, const Tile& tile) const {
    // The barrier below shows every thread the scales that the others fetched.
    if constexpr (config.recipe == ScaleRecipe::kRow) share_column_scales();
    constexpr int count = num_parts(config) * boxes_of_part;
    constexpr int num_slots = output_boxes(config);
    // PERF: all at once where all have a slot: two barriers a tile. (With something to add to them
    // registers would spill.)
    constexpr bool adds = config.accumulates || config.has_bias;
    constexpr int half = num_slots > 1 ? num_slots / 2 : 1;
    constexpr int at_once = count == num_slots && !adds ? num_slots : half;
    static_assert(count % num_slots == 0, "the next tile begins with the slot that is free first");
#pragma unroll
    for (int first = 0; first < count; first += at_once) {
      if (thread_ == 0) ptx::tma_store_wait_read<num_slots / at_once - 1>();
      sync_consumer();
#pragma unroll
      for (int box = first; box < first + at_once; ++box) {
        if (!has_rows(tile, box)) continue;
        fill(slot(box), sums[box / boxes_of_part], box / boxes_of_part, tile, column_of_box(box));
      }
      ptx::fence_shared_for_tma();
      sync_consumer();
      const GemmParams& params = product_of(arguments_, tile);
      if (params.stores_directly != 0) {
#pragma unroll 1
        for (int box = first; box < first + at_once; ++box) copy_box(tile, box);
      } else {
        if constexpr (config.grouping == Grouping::kRows) {
          // TMA would write the rows of the next group, too.
          for (int box = first; box < first + at_once; ++box) {
            if (has_rows(tile, box) && !is_whole(tile, box)) copy_rows(tile, box);
          }
        }
        if (thread_ == 0) {
#pragma unroll
          for (int box = first; box < first + at_once; ++box) {
            if (!has_rows(tile, box)) continue;
            const int row = tile.row_a + row_of_box(box);
            const int column = tile.row_b + column_of_box(box);
            if constexpr (config.grouping == Grouping::kRows) {
              if (is_whole(tile, box)) {
                ptx::tma_store(&params.d, slot(box), column, row, matrix_of(arguments_, tile));
              }
            } else {
              ptx::tma_store(&params.d, slot(box), column, row);
            }
          }
          ptx::tma_store_commit();
        }
      }
    }
    // The next tile's scales must not be written before these were read.
    if constexpr (config.recipe == ScaleRecipe::kRow) sync_consumer();
  }

 private:
  __device__ __forceinline__ void sync_consumer() const {
    ptx::named_barrier(1 + consumer_, kWarpGroupThreads);
  }

  __device__ __forceinline__ void fetch_tensor_scale(const Tile& tile) {
    if constexpr (config.recipe == ScaleRecipe::kTensor) {
      tensor_scale_ = __fmul_rn(load_scale(a_scale_of(arguments_, tile), 0),
                                load_scale(b_scale_of(arguments_, tile), 0));
    }
  }

  // PERF: not a register of its own where it is a launch's argument.
  __device__ __forceinline__ int end_of(const Tile& tile) const {
    if constexpr (config.grouping == Grouping::kNone) return arguments_.m;
    return tile.end_a;
  }

  // Whether rows of the box are the tile's at all, and all of them.
  __device__ __forceinline__ bool has_rows(const Tile& tile, int box) const {
    return config.grouping == Grouping::kNone || tile.row_a + row_of_box(box) < tile.end_a;
  }
  __device__ __forceinline__ bool is_whole(const Tile& tile, int box) const {
    return tile.row_a + row_of_box(box) + kWarpGroupRows <= tile.end_a;
  }

  // The upper of the two rows of which this thread holds elements.
  __device__ __forceinline__ int row_in_tile(int part) const {
    return part_row(config, consumer_, part) + thread_ / 32 * 16 + lane_ / 4;
  }

  // Boxes of a tile are counted part by part.
  __device__ __forceinline__ unsigned slot(int box) const {
    return boxes_ + box % output_boxes(config) * kOutputBoxBytes;
  }
  __device__ __forceinline__ int row_of_box(int box) const {
    return part_row(config, consumer_, box / boxes_of_part);
  }
  // Where a tile is no whole number of boxes the last begins inside the one before it.
  static __device__ __forceinline__ int column_of_box(int box) {
    return min(box % boxes_of_part * box_columns, config.tile_n - box_columns);
  }

  __device__ __forceinline__ void share_column_scales() const {
#pragma unroll
    for (int i = 0; i < columns_per_thread; ++i) {
      const int column = thread_ + i * kWarpGroupThreads;
      if (column < config.tile_n) ptx::store_shared(column_scales_ + 4 * column, fetched_[i]);
    }
  }

  // The results of columns `column` and `column` + 1 of row `row` from their sums. Each step
  // rounds: written as a * b + d the compiler would fuse it, and the bits would be others.
  __device__ __forceinline__ void finish(float (&values)[2], const Tile& tile, int row,
                                         float row_scale, const float2& column_scale,
                                         int column) const {
    const GemmParams& params = product_of(arguments_, tile);
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if constexpr (config.recipe == ScaleRecipe::kTensor) {
        values[c] = __fmul_rn(values[c], row_scale);
      } else if constexpr (config.recipe == ScaleRecipe::kRow) {
        values[c] =
            __fmul_rn(values[c], __fmul_rn(row_scale, c == 0 ? column_scale.x : column_scale.y));
      }
      const bool inside = row < end_of(tile) && column + c < params.n;
      if constexpr (config.accumulates) {
        if (inside) {
          values[c] =
              __fadd_rn(values[c], load_value(output_of(arguments_, tile),
                                              row * params.output_stride + column + c, config.d));
        }
      }
      if constexpr (config.has_bias) {
        if (inside) {
          values[c] = __fadd_rn(
              values[c], load_value(bias_of(arguments_, tile), (column + c) * params.bias_stride,
                                    static_cast<DType>(params.bias_dtype)));
        }
      }
    }
  }

  // Finished elements of rows 8 r + lane / 4 of the warp's 16, of the group of 8 columns that
  // begins at `tile_column`.
  __device__ __forceinline__ void finish_group(float (&values)[2][2], const PartSums& sums,
                                               int part, const Tile& tile, int tile_column) const {
    const int within = tile_column + lane_ % 4 * 2;
    float2 column_scale{1, 1};
    if constexpr (config.recipe == ScaleRecipe::kRow) {
      column_scale = ptx::load_shared_pair(column_scales_ + 4 * within);
    }
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const int j = tile_column / 8 * 4 + 2 * r;
      values[r][0] = sums[j];
      values[r][1] = sums[j + 1];
      const float row_scale =
          config.recipe == ScaleRecipe::kRow ? row_scales_[part][r] : tensor_scale_;
      finish(values[r], tile, tile.row_a + row_in_tile(part) + 8 * r, row_scale, column_scale,
             tile.row_b + within);
    }
  }

  // 128-byte swizzle: 16-byte chunk c of row i lies at chunk c ^ (i % 8).
  static __device__ __forceinline__ unsigned chunk_address(unsigned box, int row, int chunk) {
    return box + row * kSwizzleBytes + (chunk ^ (row % 8)) * 16;
  }

  // A box of the columns from first_column of the tile on.
  __device__ __forceinline__ void fill(unsigned box, const PartSums& sums, int part,
                                       const Tile& tile, int first_column) const {
    if constexpr (is_16bit(config.d)) {
      // PERF: one stmatrix writes what 4 stores of a pair each would (docs/experiments.md, "The
      // epilogue"). Matrices of 8 x 8: rows 0-7 and 8-15 of the warp's 16, two groups of columns.
      // The swizzle's exclusive or with an even chunk can be taken after the fact.
      const unsigned first = chunk_address(box, thread_ / 32 * 16 + lane_ % 16, lane_ / 16);
#pragma unroll
      for (int chunk = 0; chunk < kSwizzleBytes / 16; chunk += 2) {
        unsigned pairs[4];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          float values[2][2];
          finish_group(values, sums, part, tile, first_column + (chunk + i) * 8);
          pairs[2 * i] = pack_16bit<config.d>(values[0][0], values[0][1]);
          pairs[2 * i + 1] = pack_16bit<config.d>(values[1][0], values[1][1]);
        }
        ptx::store_matrices(first ^ (chunk * 16), pairs);
      }
    } else {
      // A group of 8 columns is two chunks; rows 8 apart are swizzled alike.
      const unsigned first =
          chunk_address(box, thread_ / 32 * 16 + lane_ / 4, lane_ % 4 / 2) + lane_ % 2 * 8;
#pragma unroll
      for (int group = 0; group < box_columns / 8; ++group) {
        float values[2][2];
        finish_group(values, sums, part, tile, first_column + group * 8);
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          ptx::store_shared_pair((first ^ (group * 32)) + r * 8 * kSwizzleBytes, values[r][0],
                                 values[r][1]);
        }
      }
    }
  }

  // For an output that TMA cannot write: element by element, a warp along a row.
  __device__ __forceinline__ void copy_box(const Tile& tile, int box) const {
    const GemmParams& params = product_of(arguments_, tile);
    const int first_row = tile.row_a + row_of_box(box);
    const int first_column = tile.row_b + column_of_box(box);
    void* const output = output_of(arguments_, tile);
    constexpr int element_bytes = size_bytes(config.d);
#pragma unroll 1
    for (int i = thread_; i < kWarpGroupRows * box_columns; i += kWarpGroupThreads) {
      const int row = i / box_columns;
      const int byte = i % box_columns * element_bytes;
      const int column = first_column + i % box_columns;
      if (first_row + row >= end_of(tile) || column >= params.n) continue;
      const unsigned from = chunk_address(slot(box), row, byte / 16) + byte % 16;
      const long long to = (first_row + row) * params.output_stride + column;
      if constexpr (element_bytes == 2) {
        static_cast<unsigned short*>(output)[to] = ptx::load_shared_16bit(from);
      } else {
        static_cast<float*>(output)[to] = ptx::load_shared(from);
      }
    }
  }

  // The rows of a box up to the tile's end: 16 bytes a thread, 8 threads a row.
  __device__ __forceinline__ void copy_rows(const Tile& tile, int box) const {
    const GemmParams& params = product_of(arguments_, tile);
    constexpr int chunk_columns = 16 / size_bytes(config.d);
    constexpr int kChunks = kSwizzleBytes / 16;
    const int first_row = tile.row_a + row_of_box(box);
    const int chunk = thread_ % kChunks;
    const int column = tile.row_b + column_of_box(box) + chunk * chunk_columns;
    if (column >= params.n) return;
    auto* const output = static_cast<char*>(output_of(arguments_, tile));
#pragma unroll 1
    for (int row = thread_ / kChunks; row < kWarpGroupRows && first_row + row < tile.end_a;
         row += kWarpGroupThreads / kChunks) {
      const long long to = (first_row + row) * params.output_stride + column;
      *reinterpret_cast<float4*>(output + to * size_bytes(config.d)) =
          ptx::load_shared_chunk(chunk_address(slot(box), row, chunk));
    }
  }

  static constexpr int columns_per_thread =
      (config.tile_n + kWarpGroupThreads - 1) / kWarpGroupThreads;
  // Columns of a box, and boxes of a part.
  static constexpr int box_columns = kSwizzleBytes / size_bytes(config.d);
  static constexpr int boxes_of_part = boxes_across(config);
  // Columns of two boxes are finished twice, and D's old value would be added twice.
  static_assert(config.tile_n % box_columns == 0 || !config.accumulates);

  const GemmArguments<config>& arguments_;
  unsigned boxes_;
  unsigned column_scales_;
  int consumer_;
  int thread_;
  int lane_;
  float tensor_scale_ = 1;  // the product of both scales
  float row_scales_[num_parts(config)][2];
  float fetched_[columns_per_thread];
};

}  // namespace octavo
