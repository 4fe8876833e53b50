// SPDX-License-Identifier: Apache-2.0
// Every compile-time knob of a GEMM kernel, once, for host and device: plans choose one, kernel
// names spell it out (src/naming), generated sources carry it as a template argument. No std and no
// CUDA headers. Run-time arguments: gemm_params.hpp.
#pragma once

#include <octavo/dtype.hpp>
#include <octavo/scale.hpp>

namespace octavo {

// How the tensor core's sums become the result (docs/numerics.md).
enum class MainloopSum : unsigned char {
  kFast,      // one accumulator through all of K
  kPromoted,  // every 128 of K added to an FP32 total
};

// How the consumer warp-groups of a thread block share its tiles.
enum class Schedule : unsigned char {
  kCooperative,  // two multiply parts of the same tile
  kPingpong,     // two have a tile each, in turn: one multiplies while the other stores
  kStreamed,     // operands swapped for few rows of A: 64 rows of B for each consumer, so that B
                 // passes through at the rate of the memory; K can be split over a cluster
};

// What one launch multiplies.
enum class Grouping : unsigned char {
  kNone,      // one product
  kRows,      // groups of rows of A with a matrix B each; device memory says where they end
  kProducts,  // several products, each with all of its arguments to itself
};

struct GemmConfig {
  // E4M3 or E5M2.
  DType a = DType::kE4M3;
  DType b = DType::kE4M3;
  // BF16, F16 or F32.
  DType d = DType::kBF16;
  ScaleRecipe recipe = ScaleRecipe::kBlock;
  MainloopSum sum = MainloopSum::kPromoted;
  Schedule schedule = Schedule::kCooperative;
  // D's tile of one thread block, and K of one pipeline stage: tile_k is 128, one scale block.
  // A consumer multiplies parts of 64 rows: tile_m is 128 or 256 for two that share a tile, 128
  // for two with a tile each. Streamed, tile_m is 8, 16, 32, 64 or 128 and tile_n 64, 128 or 192.
  int tile_m = 256;
  int tile_n = 128;
  int tile_k = 128;
  // Thread blocks of a cluster: cluster_m of them share a tile of B, cluster_n one of A
  // (multicast).
  int cluster_m = 1;
  int cluster_n = 2;
  // Stages of the pipeline from global to shared memory.
  int stages = 3;
  // K-blocks in the body of the main loop of promoted sums. What is left over runs one at a time.
  int unroll_k = 4;
  // Clusters of rows that neighbouring thread blocks walk before they go on along N.
  int raster_group_m = 8;
  // D = D + result.
  bool accumulates = false;
  bool has_bias = false;
  // Streamed: parts of K, each for a thread block of a cluster. Part of the numerics.
  int num_splits = 1;
  Grouping grouping = Grouping::kNone;

  friend constexpr bool operator==(const GemmConfig&, const GemmConfig&) = default;
};

inline constexpr int kWarpGroupThreads = 128;
inline constexpr int kWarpGroupRows = 64;
// Of the schedules that are not streamed.
inline constexpr int kConsumers = 2;

// Streamed: more than 64 rows of A are halves for two consumers each, whose sums would not fit into
// registers otherwise.
[[nodiscard]] constexpr int streamed_part_rows(const GemmConfig& config) noexcept {
  return config.tile_m > kWarpGroupRows ? config.tile_m / 2 : config.tile_m;
}
[[nodiscard]] constexpr int streamed_consumers(const GemmConfig& config) noexcept {
  return config.tile_n / kWarpGroupRows * (config.tile_m / streamed_part_rows(config));
}

// Two consumer warp-groups and one that loads; streamed, one warp for tiles and one for scales.
[[nodiscard]] constexpr int num_threads(const GemmConfig& config) noexcept {
  return config.schedule == Schedule::kStreamed
             ? streamed_consumers(config) * kWarpGroupThreads + 64
             : (kConsumers + 1) * kWarpGroupThreads;
}
// Thread blocks of a cluster.
[[nodiscard]] constexpr int cluster_size(const GemmConfig& config) noexcept {
  return config.cluster_m * config.cluster_n * config.num_splits;
}
// Thread blocks that a multiprocessor must have room for. Streamed, more sums than these need the
// registers of both.
[[nodiscard]] constexpr int blocks_per_multiprocessor(const GemmConfig& config) noexcept {
  constexpr int kMostSumsOfTwo = 64 * 128;
  return config.schedule == Schedule::kStreamed && config.tile_m * config.tile_n <= kMostSumsOfTwo
             ? 2
             : 1;
}
// Recipe kBlock: scales of B that a stage holds. Each consumer of a wide tile has one of its own,
// for tiles that are no multiple of 128 columns begin anywhere in a block of them.
[[nodiscard]] constexpr int b_scales_of_stage(const GemmConfig& config) noexcept {
  constexpr int kOneScale = 128;
  return config.tile_n > kOneScale && config.schedule == Schedule::kStreamed ? config.tile_n / 64
                                                                             : 1;
}

// Consumers that read the same stage, and the parts of 64 rows that each has of it.
[[nodiscard]] constexpr int consumers_of_stage(const GemmConfig& config) noexcept {
  return config.schedule == Schedule::kCooperative ? kConsumers : 1;
}
[[nodiscard]] constexpr int num_parts(const GemmConfig& config) noexcept {
  return config.tile_m / kWarpGroupRows / consumers_of_stage(config);
}
// The first row of a part in the tile.
[[nodiscard]] constexpr int part_row(const GemmConfig& config, int consumer, int part) noexcept {
  return config.schedule == Schedule::kCooperative ? (part * kConsumers + consumer) * kWarpGroupRows
                                                   : part * kWarpGroupRows;
}

}  // namespace octavo
