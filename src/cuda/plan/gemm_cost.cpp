// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/gemm_cost.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "cuda/plan/plan_parts.hpp"

namespace octavo::cuda {
namespace {

// The clock that an H200 sustains under the load of a product, at its power limit
// (docs/experiments.md, "Where the energy goes"). An idle GPU's first product runs at up to 1.5
// times this.
constexpr double kCyclesPerMicrosecond = 1300;

// Time of memory and of what multiprocessors do: near their own limits both take longer.
double together(double memory, double work) {
  constexpr double kPower = 4;
  return std::pow(std::pow(memory, kPower) + std::pow(work, kPower), 1 / kPower);
}

// PERF: measured on an H200 (docs/experiments.md, "Few rows" and "Teams"): what limits a streamed
// product, in cycles of 1.75 GHz.
constexpr double kStreamedCyclesPerMicrosecond = 1750;
constexpr double kCyclesPerRow = 2.44;  // TMA: 128 bytes to one multiprocessor
GemmCandidate streamed_cost(const GemmConfig& config, const Extents& e, int num_multiprocessors) {
  constexpr double kBytesPerCycle = 2457;   // memory to all of them
  constexpr double kStart = 4400;           // until the first tile is there, and the last stored
  constexpr double kStartInPlace = 1000;    // more where the kernel before must leave first
  constexpr double kShareableBlocks = 0.9;  // clusters of more than two do not fill the GPU
  constexpr double kMeeting = 1000;         // of splits
  constexpr double kClusterMeeting = 5000;  // more if they are on several multiprocessors
  constexpr double kNextTile = 3000;        // more if another tile follows: the rings ran empty
  constexpr double kBeside = 0.03;  // of two that wait for memory the one that loads more is slower
  GemmCandidate candidate{.config = config};
  const auto tiles =
      static_cast<double>(ceil_div(e.m, config.tile_m) * ceil_div(e.n, config.tile_n));
  const int cluster = cluster_size(config);
  const int teams = streamed_teams(config);
  // A thread block is on a multiprocessor of its own where there are enough of them.
  const int sharers = tiles * cluster > num_multiprocessors ? blocks_per_multiprocessor(config) : 1;
  const double slots = std::max(1.0, std::floor(sharers * num_multiprocessors *
                                                (cluster > 2 ? kShareableBlocks : 1) / cluster));
  candidate.waves = static_cast<std::int64_t>(std::ceil(tiles / slots));
  // A K-block of each team of a multiprocessor: no consumer is quicker than its own chain from a
  // stage's arrival to its release (longer where it promotes before it multiplies on), nor all of
  // them together than tensor core and registers.
  const bool is_serial = config.sum == MainloopSum::kPromoted && config.unroll_k == 1;
  const double width = streamed_width(config);
  const double chain = is_swapped(config) ? 290 + (is_serial ? 3.1 : 1.6) * width
                                          : 290 + (is_serial ? 2.3 : 2.0) * width;
  const double consumer = is_swapped(config) ? 90 + 3.3 * width : 60 + 2.2 * width;
  const double k_block =
      std::max({chain, sharers * teams * streamed_consumers(config) * consumer,
                sharers * teams * kCyclesPerRow * (config.tile_m + config.tile_n)});
  const auto k_blocks =
      static_cast<double>(ceil_div(ceil_div(e.k, kScaleBlock), config.num_splits));
  const auto waves = static_cast<double>(candidate.waves);
  const double meeting =
      config.num_splits > 1
          ? waves * (kMeeting + (cluster > 1 ? kClusterMeeting : 0)) + (waves - 1) * kNextTile
          : 0;
  candidate.tile_cycles = k_blocks * k_block + meeting / waves;
  const double bytes = static_cast<double>(e.k) * static_cast<double>(e.m + e.n) +
                       2.0 * static_cast<double>(e.m) * static_cast<double>(e.n);
  const double loads = std::ceil(tiles * config.num_splits / num_multiprocessors) * k_blocks *
                       kCyclesPerRow * (config.tile_m + config.tile_n);
  const bool is_in_place = blocks_per_multiprocessor(config) == 1;
  candidate.estimated_cycles = kStart + (is_in_place ? kStartInPlace : 0) + meeting +
                               kBeside * loads +
                               together(bytes / kBytesPerCycle, waves * k_blocks * k_block);
  candidate.microseconds = candidate.estimated_cycles / kStreamedCyclesPerMicrosecond;
  return candidate;
}

// PERF: measured on an H200 (docs/experiments.md): the share of the tensor pipe that a main loop
// keeps busy, and cycles that a tile takes beside it.
struct TileCost {
  double loop;
  double overhead;
};

TileCost tile_cost(const GemmConfig& config) {
  constexpr double kNarrowTile = 0.87;   // moves more bytes for each product
  constexpr double kSmallTile = 0.55;    // waits for them
  constexpr double kNoMulticast = 0.95;  // a block loads all of its operands for itself
  const int size = config.tile_m * config.tile_n;
  const bool is_large = size > 128 * 128;
  TileCost cost{};
  if (size < 128 * 128) return {kSmallTile, 1850};
  if (config.schedule == Schedule::kPingpong) {
    cost = {0.945, 400};
  } else if (config.sum == MainloopSum::kFast) {
    cost = {0.973, 1850};
  } else if (is_block_scaled(config.recipe)) {
    cost = {0.895, 2000};
  } else {
    cost = {0.944, 2300};
  }
  if (!is_large) cost.loop *= kNarrowTile;
  if (config.cluster_m * config.cluster_n == 1) cost.loop *= kNoMulticast;
  return cost;
}

// PERF: measured on an H200 (docs/experiments.md, "Few rows"): tiles of a product that is over
// before it meets the power limit wait for their bytes or for the tensor core.
void set_short_cost(const Extents& e, GemmCandidate& candidate) {
  constexpr double kTensorPipe = 0.93;
  constexpr double kMacsPerCycle = 4096;
  constexpr double kStartMicroseconds = 2;
  constexpr double kStoreMicroseconds = 6e-5;  // of a result
  constexpr double kBytesPerMicrosecond = 4.3e6;
  const GemmConfig& config = candidate.config;
  const double results = static_cast<double>(config.tile_m) * config.tile_n;
  const double k_block = std::max(kCyclesPerRow * (config.tile_m + config.tile_n),
                                  results * kScaleBlock / kMacsPerCycle / kTensorPipe);
  const double tile =
      static_cast<double>(ceil_div(e.k, kScaleBlock)) * k_block / kStreamedCyclesPerMicrosecond +
      kStoreMicroseconds * results;
  const double bytes = static_cast<double>(e.k) * static_cast<double>(e.m + e.n) +
                       2.0 * static_cast<double>(e.m) * static_cast<double>(e.n);
  candidate.microseconds =
      kStartMicroseconds +
      together(bytes / kBytesPerMicrosecond, static_cast<double>(candidate.waves) * tile);
  candidate.tile_cycles = tile * kStreamedCyclesPerMicrosecond;
  candidate.estimated_cycles = candidate.microseconds * kStreamedCyclesPerMicrosecond;
}

GemmCandidate tiled_cost(const GemmConfig& config, const Extents& e, int num_multiprocessors) {
  GemmCandidate candidate{.config = config};
  const int cluster = config.cluster_m * config.cluster_n;
  const std::int64_t tiles = round_up(ceil_div(e.m, config.tile_m), config.cluster_m) *
                             round_up(ceil_div(e.n, config.tile_n), config.cluster_n);
  candidate.waves = ceil_div(tiles, num_multiprocessors / cluster * cluster);
  if (e.m <= kMaxShortRows) {
    set_short_cost(e, candidate);
    return candidate;
  }
  constexpr double kMacsPerCycle = 4096;  // FP8, one multiprocessor
  const TileCost cost = tile_cost(config);
  candidate.tile_cycles = static_cast<double>(config.tile_m) * config.tile_n *
                              static_cast<double>(round_up(e.k, kScaleBlock)) / kMacsPerCycle /
                              cost.loop +
                          cost.overhead;
  candidate.estimated_cycles = static_cast<double>(candidate.waves) * candidate.tile_cycles;
  candidate.microseconds = candidate.estimated_cycles / kCyclesPerMicrosecond;
  return candidate;
}

}  // namespace

GemmCandidate priced(const GemmConfig& config, const Extents& e, int num_multiprocessors) {
  return config.schedule == Schedule::kStreamed ? streamed_cost(config, e, num_multiprocessors)
                                                : tiled_cost(config, e, num_multiprocessors);
}

}  // namespace octavo::cuda
