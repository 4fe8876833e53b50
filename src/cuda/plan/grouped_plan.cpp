// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/grouped_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>

#include "backend/group_problem.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "kernels/contract/gemm_params.hpp"

namespace octavo::cuda {
namespace {

// `count` products of these extents.
struct Work {
  double count;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

// PERF: measured on an H200 (docs/experiments.md, "Many products"). Cycles of 1.75 GHz where
// memory is what limits, of the clock under a product's load where the tensor core is.
constexpr double kMemoryCyclesPerMicrosecond = 1750;
constexpr double kTensorCyclesPerMicrosecond = 1500;
// Three stages of a large tile with few rows keep fewer bytes under way.
constexpr double kBytesPerMicrosecond = 4.3e6;
constexpr double kLargeTileBytesPerMicrosecond = 3.7e6;
constexpr double kStartMicroseconds = 3;
// TMA: 128 bytes to one multiprocessor; the lower number with two thread blocks on it.
constexpr double kCyclesPerRow = 3.0;
constexpr double kCyclesPerRowOfTwo = 2.8;

// What one tile with `rows` rows that count costs the multiprocessor that has it.
double tile_microseconds(const GemmConfig& config, std::int64_t rows, std::int64_t k) {
  const auto k_blocks = static_cast<double>(ceil_div(k, kScaleBlock));
  if (config.schedule == Schedule::kStreamed) {
    const double loads =
        (blocks_per_multiprocessor(config) == 2 ? kCyclesPerRowOfTwo : kCyclesPerRow) *
        (config.tile_m + config.tile_n);
    return (k_blocks * loads + 8.0 * config.tile_m) / kMemoryCyclesPerMicrosecond;
  }
  // Of each consumer's chain: a part is multiplied, waited for and promoted (545 cycles); two parts
  // of the same one follow each other.
  constexpr double kChain = 545;
  const auto parts = static_cast<double>(
      std::min<std::int64_t>(ceil_div(rows, kWarpGroupRows), config.tile_m / kWarpGroupRows));
  const double loads = kCyclesPerRow * (kWarpGroupRows * parts + config.tile_n);
  const double chain = config.sum == MainloopSum::kFast ? 264 * parts * config.tile_n / kScaleBlock
                                                        : kChain * std::ceil(parts / kConsumers);
  // Less of A crosses the second-level cache where two thread blocks share it.
  const double sharing = config.cluster_n == 1 ? 1 : 0.97;
  constexpr double kStoreCyclesPerRow = 8;
  return (k_blocks * sharing * std::max(loads, chain) + kStoreCyclesPerRow * config.tile_m) /
         kTensorCyclesPerMicrosecond;
}

GemmCandidate priced(const GemmConfig& config, std::span<const Work> works,
                     int num_multiprocessors) {
  GemmCandidate candidate{.config = config};
  double tiles = 0;
  double busy = 0;
  double bytes = 0;
  double longest = 0;
  for (const Work& work : works) {
    const std::int64_t across = round_up(ceil_div(work.n, config.tile_n), config.cluster_n);
    const std::int64_t whole = work.m / config.tile_m;
    const std::int64_t rest = work.m % config.tile_m;
    const double of_each = work.count * static_cast<double>(across);
    const double of_whole = tile_microseconds(config, config.tile_m, work.k);
    const double of_rest = rest > 0 ? tile_microseconds(config, rest, work.k) : 0;
    tiles += of_each * static_cast<double>(whole + (rest > 0 ? 1 : 0));
    busy += of_each * (static_cast<double>(whole) * of_whole + of_rest);
    longest = std::max(longest, whole > 0 ? of_whole : of_rest);
    bytes += work.count * (static_cast<double>(work.k) * static_cast<double>(work.m + work.n) +
                           2.0 * static_cast<double>(work.m) * static_cast<double>(work.n));
  }
  const int cluster = cluster_size(config);
  const int multiprocessors = num_multiprocessors / cluster * cluster;
  // The last round is as long as the others.
  const double rounds = std::ceil(tiles / multiprocessors);
  candidate.waves = static_cast<std::int64_t>(rounds);
  const double average = tiles > 0 ? busy / tiles : 0;
  candidate.tile_cycles = average * kTensorCyclesPerMicrosecond;
  // Memory and tensor cores draw on the same power: both at their limits take longer than either.
  const double memory =
      bytes / (config.tile_m == 256 ? kLargeTileBytesPerMicrosecond : kBytesPerMicrosecond);
  const double multiply = std::max(rounds * average, longest);
  const double power = config.schedule == Schedule::kStreamed ? 2 : 3;
  candidate.microseconds =
      kStartMicroseconds + std::pow(std::pow(memory, power) + std::pow(multiply, power), 1 / power);
  candidate.estimated_cycles = candidate.microseconds * kTensorCyclesPerMicrosecond;
  return candidate;
}

// The tiles that are worth a try. `base`: types, recipe, sum and what is added.
std::vector<GemmCandidate> candidates_of(const GemmConfig& base, std::span<const Work> works,
                                         int num_multiprocessors) {
  std::vector<GemmCandidate> candidates;
  std::int64_t most_rows = 0;
  std::int64_t most_k = 0;
  bool has_columns = true;  // enough of them for two tiles
  for (const Work& work : works) {
    most_rows = std::max(most_rows, work.m);
    most_k = std::max(most_k, work.k);
    has_columns = has_columns && work.n > 256;
  }
  const auto consider = [&](Schedule schedule, int tile_m, int tile_n, int cluster_n, int stages) {
    GemmConfig config = base;
    config.schedule = schedule;
    config.tile_m = tile_m;
    config.tile_n = tile_n;
    config.cluster_m = 1;
    config.cluster_n = cluster_n;
    config.raster_group_m = band_height(config, most_rows, most_k);
    if (schedule == Schedule::kStreamed) config.unroll_k = streamed_unroll(config);
    config.stages = stages > 0 ? stages : most_stages(config);
    candidates.push_back(priced(config, works, num_multiprocessors));
  };
  constexpr std::array kStreamedRows = {8, 16, 32, 64};
  for (const int tile_m : kStreamedRows) {
    if (most_rows > 4 * tile_m) continue;
    consider(Schedule::kStreamed, tile_m, kScaleBlock, 1, 0);
    if (tile_m >= most_rows) break;
  }
  if (most_rows > 32) {
    for (const int cluster_n : {1, 2}) {
      if (cluster_n > 1 && !has_columns) continue;
      const bool fast = base.sum == MainloopSum::kFast;
      if (fast) consider(Schedule::kCooperative, 128, 256, cluster_n, 0);
      consider(Schedule::kCooperative, 128, 128, cluster_n, 0);
      // A thread's share of 256 x 128 results and what they are multiplied by or added to would
      // spill.
      const bool spills = base.recipe == ScaleRecipe::kBlock1d ||
                          (base.d == DType::kF32 && base.recipe == ScaleRecipe::kRow &&
                           (base.accumulates || base.has_bias));
      if (!fast && !spills) consider(Schedule::kCooperative, 256, 128, cluster_n, 3);
    }
  }
  sort_best_first(candidates);
  return candidates;
}

std::int64_t rows_of(const TensorView& view) {
  return view.shape[static_cast<std::size_t>(view.rank - 2)];
}

// Groups of eight sizes around the expected one: some have next to nothing, some twice as much.
std::array<Work, 8> works_of(const GroupedGemmProblem& problem) {
  const std::int64_t groups = num_groups(problem);
  const std::int64_t room = rows_of(problem.a);
  std::int64_t expected = problem.expected_rows;
  if (expected == 0) {
    expected = is_masked(problem) ? room : ceil_div(room, std::max<std::int64_t>(groups, 1));
  }
  expected = std::min(expected, std::max<std::int64_t>(room, 1));
  std::array<Work, 8> works{};
  constexpr auto kClasses = static_cast<std::int64_t>(works.size());
  for (std::int64_t i = 0; i < kClasses; ++i) {
    const std::int64_t rows = expected * (2 * i + 1) / kClasses;
    works[static_cast<std::size_t>(i)] = {
        static_cast<double>(groups) / static_cast<double>(kClasses),
        std::clamp<std::int64_t>(rows, 1, std::max<std::int64_t>(room, 1)), problem.b.shape[1],
        problem.b.shape[2]};
  }
  return works;
}

}  // namespace

std::vector<Reason> grouped_refusals(const GroupedGemmProblem& problem,
                                     const Execution& execution) {
  std::vector<Reason> reasons;
  if (problem.a.device.kind != DeviceKind::kCuda) {
    reasons.push_back({"device", "a", to_string(problem.a.device), "device memory (cuda:N)"});
    return reasons;
  }
  if (execution.numerics != Numerics::kDefault) {
    reasons.push_back({"numerics", "numerics", to_string(execution.numerics), "default"});
  }
  refuse_operand("a", problem.a, reasons);
  refuse_operand("b", problem.b, reasons);
  const auto refuse_stack = [&](const char* name, const auto& view) {
    if (view.rank == 3 && view.shape[0] > 1 && view.strides[0] <= 0) {
      reasons.push_back({"layout", name, fmt::format("group stride {}", view.strides[0]),
                         "a stride above 0: the matrices of the groups one after another"});
    }
  };
  refuse_stack("a", problem.a);
  refuse_stack("b", problem.b);
  const auto row = static_cast<std::size_t>(problem.d.rank - 2);
  if (is_fp8(problem.d.dtype)) {
    reasons.push_back({"dtype", "d", to_string(problem.d.dtype),
                       "bf16, f16 or f32: rows that no group has must keep their values"});
  } else if (problem.d.shape[row + 1] > 1 && problem.d.strides[row + 1] != 1) {
    reasons.push_back({"layout", "d", fmt::format("column stride {}", problem.d.strides[row + 1]),
                       "1: the columns of a row adjacent"});
  }
  const std::int64_t n = problem.b.shape[1];
  const std::int64_t k = problem.b.shape[2];
  if (k == 0) reasons.push_back({"layout", "a", "K=0", "K from 1 on"});
  constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;
  // The fewest rows a tile has, and columns.
  const std::int64_t tiles_down = rows_of(problem.a) / 8 + num_groups(problem);
  const std::int64_t tiles_across = n / kScaleBlock + 2;
  const auto tiles = static_cast<double>(tiles_down) * static_cast<double>(tiles_across) *
                     static_cast<double>(is_masked(problem) ? num_groups(problem) : 1);
  if (std::max({rows_of(problem.a), n, k, num_groups(problem)}) > kMaxExtent ||
      tiles > static_cast<double>(kMaxExtent)) {
    reasons.push_back({"layout", "a",
                       fmt::format("{} groups, {} rows, N={}, K={}", num_groups(problem),
                                   rows_of(problem.a), n, k),
                       fmt::format("extents, and tiles in all, up to {}", kMaxExtent)});
  }
  return reasons;
}

std::vector<GemmCandidate> grouped_candidates(const GroupedGemmProblem& problem,
                                              int num_multiprocessors) {
  GemmProblem one;
  one.a = problem.a;
  one.b = problem.b;
  one.d = problem.d;
  one.recipe = problem.recipe;
  one.accumulation = problem.accumulation;
  one.output_mode = problem.output_mode;
  one.bias = problem.bias;
  GemmConfig base = base_of(one);
  base.grouping = Grouping::kRows;
  return candidates_of(base, works_of(problem), num_multiprocessors);
}

GemmPlan plan_grouped(const GroupedGemmProblem& problem, int num_multiprocessors) {
  GemmPlan plan;
  if (num_groups(problem) == 0 || problem.d.num_elements() == 0) {
    plan.work = GemmWork::kNothing;
    return plan;
  }
  const GemmCandidate best = grouped_candidates(problem, num_multiprocessors).front();
  plan.config = best.config;
  plan.product_microseconds = best.microseconds;
  plan.a = plan_operand(problem.a);
  plan.b = plan_operand(problem.b);
  plan_scales(problem.recipe, problem.a_scale, problem.b_scale, problem.b.shape[1], plan);
  plan.stores_directly = stores_directly(problem.d);
  return plan;
}

GemmProblem with_splits(GemmProblem problem) {
  if (problem.num_splits == kAutomaticSplits) problem.num_splits = 1;
  return problem;
}

std::vector<GemmCandidate> fused_candidates(std::span<const GemmProblem> problems,
                                            int num_multiprocessors) {
  std::vector<Work> works;
  for (const GemmProblem& problem : problems) {
    works.push_back({1, rows_of(problem.a), rows_of(problem.b),
                     problem.a.shape[static_cast<std::size_t>(problem.a.rank - 1)]});
  }
  GemmConfig base = base_of(problems.front());
  base.grouping = Grouping::kProducts;
  return candidates_of(base, works, num_multiprocessors);
}

std::vector<FusedLaunch> plan_fused(std::span<const GemmProblem> problems,
                                    int num_multiprocessors) {
  std::vector<FusedLaunch> launches;
  // Of the launches that others may join: what their products have in common, and whether D is
  // stored element by element (a kernel counts its stores by TMA alone).
  struct Kind {
    GemmConfig base;
    bool stores_directly;

    bool operator==(const Kind&) const = default;
  };
  std::vector<Kind> kinds;
  std::vector<std::size_t> joined;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const GemmProblem problem = with_splits(problems[i]);
    const GemmPlan alone = plan_gemm(problem, num_multiprocessors);
    if (alone.work == GemmWork::kNothing) continue;
    const bool can_join = alone.work == GemmWork::kProduct && problem.num_splits == 1 &&
                          problem.a.rank == 2 && alone.a.path == OperandPath::kDirect &&
                          alone.b.path == OperandPath::kDirect && !alone.a_scale.is_staged &&
                          !alone.b_scale.is_staged && alone.output == OutputPath::kDirect;
    const Kind kind{base_of(problem), alone.stores_directly};
    if (can_join) {
      const auto found = std::find_if(joined.begin(), joined.end(), [&](std::size_t launch) {
        return kinds[launch] == kind && launches[launch].problems.size() < kMaxFusedProducts;
      });
      if (found != joined.end()) {
        launches[*found].problems.push_back(i);
        continue;
      }
      joined.push_back(launches.size());
    }
    kinds.push_back(kind);
    launches.push_back({{i}, alone});
  }
  for (const std::size_t launch : joined) {
    FusedLaunch& fused = launches[launch];
    if (fused.problems.size() == 1) continue;
    std::vector<GemmProblem> members;
    for (const std::size_t i : fused.problems) members.push_back(problems[i]);
    const GemmCandidate best = fused_candidates(members, num_multiprocessors).front();
    fused.plan = {};
    fused.plan.config = best.config;
    fused.plan.product_microseconds = best.microseconds;
  }
  return launches;
}

}  // namespace octavo::cuda
