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
  kStreamed,     // for few rows of A, so that B passes through at the rate of the memory: each
                 // consumer has some rows of B; K can be split over teams of a thread block and
                 // over a cluster
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
  // for two with a tile each. Streamed, tile_m is 8, 16, 32 or 64 and tile_n any multiple of 8 up
  // to 256 (of 16 for two consumers with 64 rows of A).
  int tile_m = 256;
  int tile_n = 128;
  int tile_k = 128;
  // Thread blocks of a cluster: cluster_m of them share a tile of B, cluster_n one of A
  // (multicast).
  int cluster_m = 1;
  int cluster_n = 2;
  // Stages of the pipeline from global to shared memory; streamed, of each team.
  int stages = 3;
  // K-blocks in the body of the main loop of promoted sums. What is left over runs one at a time.
  int unroll_k = 4;
  // A band: clusters of rows that neighbouring thread blocks walk before they go on along N.
  int raster_group_m = 8;
  // D = D + result.
  bool accumulates = false;
  bool has_bias = false;
  // Streamed: parts of K, each for a team (streamed_teams). Part of the numerics.
  int num_splits = 1;
  Grouping grouping = Grouping::kNone;

  friend constexpr bool operator==(const GemmConfig&, const GemmConfig&) = default;
};

inline constexpr int kWarpGroupThreads = 128;
inline constexpr int kWarpGroupRows = 64;
// Of the schedules that are not streamed.
inline constexpr int kConsumers = 2;

// Streamed: whether operands are swapped, so that rows of B are wgmma's 64 rows and those of A,
// which are fewer, its columns. With 64 rows of A they are not. PERF: swapped, a tile of 64 rows
// reads operands from shared memory twice as often, and each thread a scale for every row of A
// (docs/experiments.md, "Which operand has wgmma's rows").
[[nodiscard]] constexpr bool is_swapped(const GemmConfig& config) noexcept {
  return config.schedule == Schedule::kStreamed && config.tile_m < kWarpGroupRows;
}
// Streamed: the consumers of a team.
[[nodiscard]] constexpr int streamed_consumers(const GemmConfig& config) noexcept {
  constexpr int kMostColumns = 128;
  const int most = is_swapped(config) ? kWarpGroupRows : kMostColumns;
  return (config.tile_n + most - 1) / most;
}
// Streamed: rows of B that a consumer multiplies; swapped, whether or not the tile has them.
[[nodiscard]] constexpr int streamed_b_rows(const GemmConfig& config) noexcept {
  return is_swapped(config) ? kWarpGroupRows : config.tile_n / streamed_consumers(config);
}
// Streamed: columns of wgmma.
[[nodiscard]] constexpr int streamed_width(const GemmConfig& config) noexcept {
  return is_swapped(config) ? config.tile_m : streamed_b_rows(config);
}
// Threads of a team: consumers, a warp that loads tiles and one for scales.
[[nodiscard]] constexpr int streamed_team_threads(const GemmConfig& config) noexcept {
  constexpr int kLoadingThreads = 64;
  return streamed_consumers(config) * kWarpGroupThreads + kLoadingThreads;
}

// What each thread can have of the registers of a multiprocessor with so many threads: its warps
// lie in four partitions of 16 K registers each, given in units of 8.
[[nodiscard]] constexpr int registers_of_thread(int threads) noexcept {
  constexpr int kPartitions = 4;
  constexpr int kRegistersOfPartition = 16 * 1024;
  constexpr int kUnit = 8;
  constexpr int kWarpThreads = 32;
  const int warps = (threads + kWarpThreads - 1) / kWarpThreads;
  const int of_partition = (warps + kPartitions - 1) / kPartitions;
  return kRegistersOfPartition / (of_partition * kWarpThreads) / kUnit * kUnit;
}
// Sums that each thread of a streamed consumer has.
[[nodiscard]] constexpr int streamed_sums(const GemmConfig& config) noexcept {
  return kWarpGroupRows * streamed_width(config) / kWarpGroupThreads;
}
// What such a thread needs: its sums, those of one K-block, and the rest, of which there is more
// where scales, old values or the place of a group are looked up at the end.
[[nodiscard]] constexpr int streamed_registers(const GemmConfig& config) noexcept {
  const int rest = is_swapped(config) ? 32 : 24;
  const bool looks_up = config.recipe == ScaleRecipe::kRow || config.accumulates ||
                        config.grouping != Grouping::kNone ||
                        (config.recipe == ScaleRecipe::kBlock1d && !is_swapped(config));
  const int more = is_swapped(config) ? 16 : 24;
  return 2 * streamed_sums(config) + rest + (looks_up ? more : 0);
}

// Teams of a thread block, each with a split of K, a ring of stages and an accumulator of its own.
// PERF: a team takes 300 to 500 cycles for a K-block, however few rows it has; several on a
// multiprocessor fill each other's gaps (docs/experiments.md, "Teams"). What is left of the splits
// is spread over a cluster, whose exchange costs 1 to 3 us.
[[nodiscard]] constexpr int streamed_teams(const GemmConfig& config) noexcept {
  constexpr int kMostConsumers = 4;
  int teams = kMostConsumers / streamed_consumers(config);
  while (teams > 1 && (config.num_splits % teams != 0 ||
                       registers_of_thread(teams * streamed_team_threads(config)) <
                           streamed_registers(config))) {
    --teams;
  }
  return teams > 1 ? teams : 1;
}

// Streamed, the threads of all teams; otherwise two consumer warp-groups and one that loads.
[[nodiscard]] constexpr int num_threads(const GemmConfig& config) noexcept {
  return config.schedule == Schedule::kStreamed
             ? streamed_teams(config) * streamed_team_threads(config)
             : (kConsumers + 1) * kWarpGroupThreads;
}
// Thread blocks of a cluster.
[[nodiscard]] constexpr int cluster_size(const GemmConfig& config) noexcept {
  const int of_splits = config.schedule == Schedule::kStreamed
                            ? config.num_splits / streamed_teams(config)
                            : config.num_splits;
  return config.cluster_m * config.cluster_n * of_splits;
}
// Thread blocks that a multiprocessor must have room for. Streamed, two, so that one reads while
// the other stores, if their registers and enough stages of both fit: with teams those of two
// K-blocks in the body of the main loop.
[[nodiscard]] constexpr int blocks_per_multiprocessor(const GemmConfig& config) noexcept {
  constexpr int kMostConsumersOfTwo = 2;
  if (config.schedule != Schedule::kStreamed) return 1;
  const int teams = streamed_teams(config);
  const int registers = streamed_registers(config) + (teams > 1 ? streamed_sums(config) : 0);
  return teams * streamed_consumers(config) <= kMostConsumersOfTwo &&
                 registers_of_thread(2 * num_threads(config)) >= registers
             ? 2
             : 1;
}
// Recipe kBlock: scales of B that a stage holds, each of 128 rows. A streamed tile that is no
// divisor of 128 begins anywhere in such a block.
[[nodiscard]] constexpr int b_scales_of_stage(const GemmConfig& config) noexcept {
  constexpr int kOneScale = 128;
  if (config.schedule != Schedule::kStreamed || kOneScale % config.tile_n == 0) return 1;
  return (config.tile_n + kOneScale - 1) / kOneScale + 1;
}

// Consumers that read the same stage, and the parts of 64 rows that each has of it.
[[nodiscard]] constexpr int consumers_of_stage(const GemmConfig& config) noexcept {
  return config.schedule == Schedule::kCooperative ? kConsumers : 1;
}
[[nodiscard]] constexpr int num_parts(const GemmConfig& config) noexcept {
  return config.tile_m / kWarpGroupRows / consumers_of_stage(config);
}
// Whether thread blocks take tiles as they get to them (tile_tickets.cuh) instead of in turn: where
// tiles differ in what they cost. Smaller ones wait for memory, whatever rows they have, and in
// turn they stay in step. (With something to add to the sums registers would spill.)
[[nodiscard]] constexpr bool draws_tiles(const GemmConfig& config) noexcept {
  constexpr int kRowsOfLarge = 256;
  return config.grouping != Grouping::kNone && config.schedule == Schedule::kCooperative &&
         config.tile_m == kRowsOfLarge && !config.accumulates && !config.has_bias;
}
// The first row of a part in the tile.
[[nodiscard]] constexpr int part_row(const GemmConfig& config, int consumer, int part) noexcept {
  return config.schedule == Schedule::kCooperative ? (part * kConsumers + consumer) * kWarpGroupRows
                                                   : part * kWarpGroupRows;
}

}  // namespace octavo
