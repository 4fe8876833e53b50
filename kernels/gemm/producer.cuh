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

// The scales of `rows` rows. With `has_rest` those behind the last whole vector, which a matrix's
// last rows may be, come by copies of their own.
template <bool has_rest>
__device__ __forceinline__ void bring_scales(unsigned to, const float* from, int rows,
                                             unsigned full) {
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

// PERF: of what a walk over groups reads from memory the compiler does not know that it is the same
// for a whole warp. Of what comes out of a shuffle it does.
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ Tile same_for_warp(const Tile& tile) {
  if constexpr (config.grouping == Grouping::kNone) return tile;
  const auto same = [](int value) { return __shfl_sync(0xFFFFFFFFU, value, 0); };
  return {same(tile.row_a), same(tile.row_b), same(tile.end_a), same(tile.group)};
}

// PERF: K-blocks before a tile's end at which the next tile is drawn, so that the second-level
// cache has answered before it is needed.
inline constexpr int kDrawBlocks = 4;

// A warp that loads every stage. PERF: all of its threads come along, and one of them does what
// must be done once: the compiler then knows addresses to be the same for the warp and keeps them
// in uniform registers. In the branch of one thread it does not, and every load becomes a loop over
// threads that might differ (docs/experiments.md, "One thread's branch").
template <GemmConfig config, bool brings_scales>
__device__ __forceinline__ void produce(const GemmArguments<config>& arguments,
                                        const GemmAddresses<config>& smem) {
  const ClusterPosition<config> position;
  RingPosition<config.stages> ring;
  const bool is_elected = ptx::elect_one();
  DrawnTickets<config> tickets(arguments, smem);
  TileWalk<config> walk(arguments);
  for (; walk.has_tile(); to_next_tile(walk, tickets)) {
    const Tile tile = same_for_warp<config>(walk.tile());
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
    const float* a_scale_at = static_cast<const float*>(a_scale.data) + scale_row;
    const float* b_scale_at =
        static_cast<const float*>(b_scale.data) +
        (by_column ? tile.row_b : min(tile.row_b, params.n - 1) / kScaleBlock * b_scale.row_stride);
    const int a_parts = active_tile_parts<config>(tile);
    const bool is_whole = a_parts == config.tile_m / kWarpGroupRows;
    const unsigned tile_bytes =
        smem.layout.b_stage_bytes +
        (is_whole ? smem.layout.a_stage_bytes : a_parts * kWarpGroupRows * kSwizzleBytes);
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      const int stage = ring.stage;
      if constexpr (draws_tiles(config)) {
        if (is_elected && k_block == max(k_blocks - kDrawBlocks, 0)) tickets.draw();
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
      if (is_elected) {
        // A box that sticks out of the matrix arrives whole, filled up with zeros.
        ptx::mbarrier_arrive_expect_bytes(full,
                                          tile_bytes + bulk_bytes(a_scales) + bulk_bytes(b_scales));
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
          bring_scales<true>(smem.a_scale(stage), a_scale_at, a_scales, full);
          if constexpr (by_column) {
            bring_scales<false>(smem.b_scale(stage), b_scale_at, b_scales, full);
          } else {
            // Four bytes are too few for a bulk copy; this one arrives at the barrier by itself.
            ptx::copy_word_async(smem.b_scale(stage), b_scale_at);
          }
          ptx::mbarrier_arrive_after_copies(full);
        }
      }
      a_scale_at += a_scale.k_stride;
      b_scale_at += b_scale.k_stride;
      ring.advance();
    }
    if constexpr (draws_tiles(config)) {
      if (is_elected) tickets.publish();
    }
  }
  if constexpr (draws_tiles(config)) {
    if (is_elected) tickets.finish(walk.behind());
  }
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

  // The stages of a tile, of K-blocks [first, last). Rows behind the end have no scales: they are
  // never stored.
  __device__ __forceinline__ void produce(const Tile& tile, int first, int last) {
    const GemmParams& params = product_of(arguments_, tile);
    const auto& a_scale = a_scale_of(arguments_, tile);
    const auto& b_scale = b_scale_of(arguments_, tile);
    const int a_first = 4 * scale_shift<config>(tile);
    const int b_row = by_column ? tile.row_b : tile.row_b / kScaleBlock;
    const int b_rows = by_column ? params.n : (params.n - 1) / kScaleBlock + 1;
    constexpr int b_count = by_column ? config.tile_n : b_scales_of_stage(config);
    const int a_there = rows_there(params.m, tile.row_a, config.tile_m);
    const int b_there = rows_there(b_rows, b_row, b_count);
    // PERF: where this lane's first scales are, stepped from one K-block to the next; with products
    // of 64 bit in the loop this warp was what small tiles waited for.
    long long a_at = (tile.row_a + lane_) * a_scale.row_stride + first * a_scale.k_stride;
    long long b_at = (b_row + lane_) * b_scale.row_stride + first * b_scale.k_stride;
    // PERF: unrolled, consumers of groups of rows spill (the compiler's choice for one branch
    // changes its choices for others).
#pragma unroll 1
    for (int k_block = first; k_block < last; ++k_block) {
      const int stage = first_stage_ + ring_.stage;
      ptx::mbarrier_wait(smem_.empty(stage), ring_.parity ^ 1);
      bring<config.tile_m>(smem_.a_scale(stage) + a_first, a_scale, a_at, a_there);
      bring<b_count>(smem_.b_scale(stage), b_scale, b_at, b_there);
      if constexpr (path == ScalePath::kDecode) {
        ptx::mbarrier_arrive(smem_.full(stage));
      } else {
        ptx::mbarrier_arrive_after_copies(smem_.full(stage));
      }
      a_at += a_scale.k_stride;
      b_at += b_scale.k_stride;
      ring_.advance();
    }
  }

 private:
  static constexpr bool by_column = config.recipe == ScaleRecipe::kBlock1d;

  // A K-block's scales, `there` of at most `count`, of which every 32nd is this lane's.
  template <int count>
  __device__ __forceinline__ void bring(unsigned to, const ScaleParams& scale, long long at,
                                        int there) const {
#pragma unroll
    for (int i = 0; i < count; i += 32) {
      if (lane_ + i < there) {
        const unsigned to_lane = to + 4 * (lane_ + i);
        const long long at_lane = at + i * scale.row_stride;
        if constexpr (path == ScalePath::kDecode) {
          ptx::store_shared(to_lane, load_scale(scale, at_lane));
        } else {
          ptx::copy_word_async(to_lane, static_cast<const float*>(scale.data) + at_lane);
        }
      }
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
