// SPDX-License-Identifier: Apache-2.0
// The warp-group that loads: tiles of A and B by TMA, and the scales of block recipes.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/gemm/load_scale.cuh"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/tile_tickets.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// The same for all products of a launch.
template <typename Arguments>
[[nodiscard]] __device__ __forceinline__ ScalePath scale_path(const Arguments& arguments) {
  return product_of(arguments, Tile{}).scale_path;
}

// Arrivals that a full stage waits for: the thread that loads tiles, and whoever brings scales.
template <GemmConfig config>
__device__ __forceinline__ int full_arrivals(ScalePath path) {
  constexpr int kLoader = 1;
  if (!is_block_scaled(config.recipe)) return kLoader;
  // Copies of single words by that thread.
  if (path == ScalePath::kBulk) return kLoader + 1;
  return kLoader + 32;
}

// How many of the rows [first, first + tile) there are.
__device__ __forceinline__ int rows_there(int rows, int first, int tile) {
  return max(0, min(rows - first, tile));
}

// What bulk copies bring of the scales of so many rows: whole vectors.
__device__ __forceinline__ unsigned bulk_bytes(int rows) {
  return static_cast<unsigned>(rows / 4 * 16);
}

// The scales of `rows` rows from `row` on. With `has_rest` those behind the last whole vector,
// which a matrix's last rows may be, come by copies of their own.
template <bool has_rest>
__device__ __forceinline__ void bring_scales(unsigned to, const ScaleParams& scale, int row,
                                             int k_block, int rows, unsigned full) {
  const float* from = static_cast<const float*>(scale.data) + k_block * scale.k_stride + row;
  const unsigned bytes = bulk_bytes(rows);
  if (bytes > 0) ptx::bulk_load(to, from, bytes, full);
  if constexpr (has_rest) {
#pragma unroll 1
    for (int i = rows / 4 * 4; i < rows; ++i) ptx::copy_word_async(to + 4 * i, from + i);
  }
}

// Where in a stage the scales of a tile's rows begin: bulk copies begin at multiples of 4.
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ int scale_shift(const Tile& tile) {
  return max_scale_shift(config) == 0 ? 0 : tile.row_a % max_scale_shift(config);
}

// A's or B's part of a stage. Blocks that share a tile load an equal part each and send it to all
// of them; `coordinates` has a third where maps are of 3-D tensors.
template <int num_parts, typename... Coordinates>
__device__ __forceinline__ void load_part(unsigned to, const TensorMap* map, unsigned full,
                                          unsigned short blocks, Coordinates... coordinates) {
  if constexpr (num_parts == 1) {
    ptx::tma_load(to, map, full, coordinates...);
  } else {
    ptx::tma_load_multicast(to, map, full, coordinates..., blocks);
  }
}

// Parts of 64 rows of a tile that have rows before its end; others are neither loaded nor
// multiplied.
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ int active_tile_parts(const Tile& tile) {
  constexpr int all = config.tile_m / kWarpGroupRows;
  if constexpr (config.grouping == Grouping::kNone) return all;
  return min(all, (tile.end_a - tile.row_a + kWarpGroupRows - 1) / kWarpGroupRows);
}

// PERF: K-blocks before a tile's end at which the next tile is drawn, so that the second-level
// cache has answered before it is needed.
inline constexpr int kDrawBlocks = 4;

// One thread that loads every stage.
template <GemmConfig config, bool brings_scales>
__device__ __forceinline__ void produce(const GemmArguments<config>& arguments,
                                        const GemmAddresses<config>& smem) {
  const ClusterPosition<config> position;
  RingPosition<config.stages> ring;
  DrawnTickets<config> tickets(arguments, smem);
  TileWalk<config> walk(arguments);
  for (; walk.has_tile(); to_next_tile(walk, tickets)) {
    const Tile tile = walk.tile();
    const GemmParams& params = product_of(arguments, tile);
    const int k_blocks = num_k_blocks(params);
    constexpr bool by_column = config.recipe == ScaleRecipe::kBlock1d;
    const int shift = scale_shift<config>(tile);
    const int scale_row = tile.row_a - shift;
    const auto& a_scale = a_scale_of(arguments, tile);
    const auto& b_scale = b_scale_of(arguments, tile);
    const int a_scales =
        brings_scales ? rows_there(params.m, scale_row, config.tile_m + max_scale_shift(config))
                      : 0;
    const int b_scales =
        brings_scales && by_column ? rows_there(params.n, tile.row_b, config.tile_n) : 0;
    const float* b_scale_at = static_cast<const float*>(b_scale.data) +
                              min(tile.row_b, params.n - 1) / kScaleBlock * b_scale.row_stride;
    const int a_parts = active_tile_parts<config>(tile);
    const bool is_whole = a_parts == config.tile_m / kWarpGroupRows;
    const unsigned tile_bytes =
        smem.layout.b_stage_bytes +
        (is_whole ? smem.layout.a_stage_bytes : a_parts * kWarpGroupRows * kSwizzleBytes);
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      const int stage = ring.stage;
      if constexpr (draws_tiles(config)) {
        if (k_block == max(k_blocks - kDrawBlocks, 0)) tickets.draw();
      }
      ptx::mbarrier_wait(smem.empty(stage), ring.parity ^ 1);
      const unsigned full = smem.full(stage);
      const int k = k_block * config.tile_k;
      constexpr int b_part = config.tile_n / config.cluster_m;
      unsigned short a_blocks = 0;
      for (int i = 0; i < config.cluster_n; ++i)
        a_blocks |= 1U << (i * config.cluster_m + position.m);
      const unsigned short b_blocks = ((1U << config.cluster_m) - 1)
                                      << (position.n * config.cluster_m);
      const auto load_a = [&](const TensorMap* map, int first) {
        const unsigned to = smem.a(stage) + first * kSwizzleBytes;
        if constexpr (config.grouping == Grouping::kRows) {
          load_part<config.cluster_n>(to, map, full, a_blocks, k, tile.row_a + first,
                                      matrix_of(arguments, tile));
        } else {
          load_part<config.cluster_n>(to, map, full, a_blocks, k, tile.row_a + first);
        }
      };
      if (is_whole) {
        load_a(&params.a, position.n * (config.tile_m / config.cluster_n));
      } else if constexpr (config.grouping != Grouping::kNone) {
        for (int part = position.n; part < a_parts; part += config.cluster_n) {
          load_a(a_parts_of(arguments, tile), part * kWarpGroupRows);
        }
      }
      const unsigned b_to = smem.b(stage) + position.m * b_part * kSwizzleBytes;
      const int b_row = tile.row_b + position.m * b_part;
      if constexpr (config.grouping == Grouping::kRows) {
        load_part<config.cluster_m>(b_to, &params.b, full, b_blocks, k, b_row, tile.group);
      } else {
        load_part<config.cluster_m>(b_to, &params.b, full, b_blocks, k, b_row);
      }
      if constexpr (brings_scales) {
        bring_scales<true>(smem.a_scale(stage), a_scale, scale_row, k_block, a_scales, full);
        if constexpr (by_column) {
          bring_scales<false>(smem.b_scale(stage), b_scale, tile.row_b, k_block, b_scales, full);
        } else {
          // Four bytes are too few for a bulk copy; this one arrives at the barrier by itself.
          ptx::copy_word_async(smem.b_scale(stage), b_scale_at);
          b_scale_at += b_scale.k_stride;
        }
        ptx::mbarrier_arrive_after_copies(full);
      }
      // A box that sticks out of the matrix arrives whole, filled up with zeros.
      ptx::mbarrier_arrive_expect_bytes(full,
                                        tile_bytes + bulk_bytes(a_scales) + bulk_bytes(b_scales));
      ring.advance();
    }
    if constexpr (draws_tiles(config)) tickets.publish();
  }
  if constexpr (draws_tiles(config)) tickets.finish(walk.behind());
}

// A warp of the producer's that brings the scales of every stage, from any layout. Asynchronous
// copies run as far ahead as the ring is long. The ring begins at stage `first_stage`.
template <GemmConfig config, ScalePath path>
class ScaleProducer {
 public:
  __device__ __forceinline__ ScaleProducer(const GemmArguments<config>& arguments,
                                           const GemmAddresses<config>& smem, int first_stage)
      : arguments_(arguments),
        smem_(smem),
        lane_(static_cast<int>(threadIdx.x) % 32),
        first_stage_(first_stage) {}

  // The stages of a tile, of K-blocks [first, last).
  __device__ __forceinline__ void produce(const Tile& tile, int first, int last) {
    const GemmParams& params = product_of(arguments_, tile);
    const auto& a_scale = a_scale_of(arguments_, tile);
    const auto& b_scale = b_scale_of(arguments_, tile);
    const int a_first = 4 * scale_shift<config>(tile);
    // A lane has four neighbouring rows of every 128.
    constexpr int kGroupRows = 4 * 32;
    const int lane_row = 4 * lane_;
    for (int k_block = first; k_block < last; ++k_block) {
      const int stage = first_stage_ + ring_.stage;
      ptx::mbarrier_wait(smem_.empty(stage), ring_.parity ^ 1);
#pragma unroll
      for (int row = 0; row < config.tile_m; row += kGroupRows) {
        if (config.tile_m % kGroupRows == 0 || row + lane_row < config.tile_m) {
          bring_four(smem_.a_scale(stage) + a_first + 4 * (row + lane_row), a_scale,
                     tile.row_a + row + lane_row, params.m, k_block);
        }
      }
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
#pragma unroll
        for (int row = 0; row < config.tile_n; row += kGroupRows) {
          if (config.tile_n % kGroupRows == 0 || row + lane_row < config.tile_n) {
            bring_four(smem_.b_scale(stage) + 4 * (row + lane_row), b_scale,
                       tile.row_b + row + lane_row, params.n, k_block);
          }
        }
      } else if (b_scales_of_stage(config) > 1 ? lane_ < b_scales_of_stage(config) : lane_ == 0) {
        const int part = b_scales_of_stage(config) > 1 ? lane_ : 0;
        bring_one(smem_.b_scale(stage) + 4 * part, b_scale,
                  min(tile.row_b / kScaleBlock + part, (params.n - 1) / kScaleBlock), k_block);
      }
      if constexpr (path == ScalePath::kDecode) {
        ptx::mbarrier_arrive(smem_.full(stage));
      } else {
        ptx::mbarrier_arrive_after_copies(smem_.full(stage));
      }
      ring_.advance();
    }
  }

 private:
  // Of rows [row, row + 4). Rows behind the end are multiplied by zeros or never stored; any scale
  // will do for them.
  __device__ __forceinline__ void bring_four(unsigned to, const ScaleParams& scale, int row,
                                             int rows, int k_block) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) bring_one(to + 4 * i, scale, min(row + i, rows - 1), k_block);
  }

  __device__ __forceinline__ void bring_one(unsigned to, const ScaleParams& scale, int row,
                                            int k_block) const {
    const long long at = row * scale.row_stride + k_block * scale.k_stride;
    if constexpr (path == ScalePath::kDecode) {
      ptx::store_shared(to, load_scale(scale, at));
    } else {
      ptx::copy_word_async(to, static_cast<const float*>(scale.data) + at);
    }
  }

  const GemmArguments<config>& arguments_;
  const GemmAddresses<config>& smem_;
  int lane_;
  int first_stage_;
  RingPosition<config.stages> ring_;
};

template <GemmConfig config, ScalePath path>
__device__ __forceinline__ void produce_scales(const GemmArguments<config>& arguments,
                                               const GemmAddresses<config>& smem) {
  ScaleProducer<config, path> producer(arguments, smem, 0);
  TileTickets<config> tickets(arguments, smem);
  for (TileWalk<config> walk(arguments); walk.has_tile(); to_next_tile(walk, tickets)) {
    const Tile tile = walk.tile();
    producer.produce(tile, 0, num_k_blocks(product_of(arguments, tile)));
  }
}

}  // namespace octavo
