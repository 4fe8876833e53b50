// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/gemm_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/group_problem.hpp"
#include "cuda/plan/gemm_cost.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "kernels/contract/smem_bytes.hpp"

namespace octavo::cuda {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

GemmConfig base_of(const GemmProblem& problem) {
  GemmConfig base;
  base.a = problem.a.dtype;
  base.b = problem.b.dtype;
  base.d = problem.d.dtype;
  base.recipe = problem.recipe;
  base.sum =
      problem.accumulation == Accumulation::kFast ? MainloopSum::kFast : MainloopSum::kPromoted;
  base.accumulates = problem.output_mode == OutputMode::kAccumulate;
  base.has_bias = problem.bias.present();
  return base;
}

void sort_best_first(std::vector<GemmCandidate>& candidates) {
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const GemmCandidate& x, const GemmCandidate& y) {
                     return x.microseconds < y.microseconds;
                   });
}

void refuse_operand(const char* name, const TensorView& view, std::vector<Reason>& reasons) {
  if (is_fp8(view.dtype)) return;
  reasons.push_back({"dtype", name, to_string(view.dtype),
                     "e4m3 or e5m2: the \"cuda\" back end multiplies FP8 operands only"});
}

namespace {

// To a multiple of 16 bytes.
bool is_aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

// Shared memory of one thread block on compute capability 9.0 (CUDA C++ programming guide, table of
// technical specifications): 227 KiB.
constexpr int kMaxSharedBytes = 227 * 1024;
// Of each of two on one multiprocessor: half of 228 KiB less the system's 1 KiB.
constexpr int kMaxSharedBytesOfTwo = 113 * 1024;

Extents extents_of(const GemmProblem& problem) {
  const auto& a = problem.a;
  const auto& b = problem.b;
  if (a.rank == 3) return {a.shape[0], a.shape[1], b.shape[1], a.shape[2]};
  return {1, a.shape[0], b.shape[0], a.shape[1]};
}

// Row and column strides of a matrix or of each matrix of a batch.
std::int64_t row_stride(const TensorView& view) {
  return view.strides[static_cast<std::size_t>(view.rank - 2)];
}
std::int64_t col_stride(const TensorView& view) {
  return view.strides[static_cast<std::size_t>(view.rank - 1)];
}

// PERF: measured on an H200 (docs/experiments.md, "Around the product"). What a kernel's launch
// adds to the time of the work before it, and bytes read and written in a microsecond: by copies of
// whole words, by copies that shift or gather bytes, and by the kernel that finishes outputs, for
// rows and for other layouts.
constexpr double kLaunchMicroseconds = 2;
constexpr double kCopyBytesPerMicrosecond = 3.3e6;
constexpr double kUnalignedBytesPerMicrosecond = 2.0e6;
constexpr double kFinishRowsBytesPerMicrosecond = 3.0e6;
constexpr double kFinishBytesPerMicrosecond = 1.7e6;

double launched(double bytes, double bytes_per_microsecond) {
  return kLaunchMicroseconds + bytes / bytes_per_microsecond;
}

// Whether TMA and wgmma read the operand where it is: contiguous along K, every row at a multiple
// of 16 bytes. K itself may be anything: what lies behind it arrives as zeros.
bool reads_operand_in_place(const TensorView& view) {
  constexpr std::int64_t kMaxTmaStride = std::int64_t{1} << 40;  // bytes
  const std::int64_t stride = row_stride(view);
  const bool one_row = view.shape[static_cast<std::size_t>(view.rank - 2)] == 1;
  const std::int64_t k = view.shape[static_cast<std::size_t>(view.rank - 1)];
  return is_aligned(view.data) && (k == 1 || col_stride(view) == 1) &&
         (one_row || (stride >= k && stride % kRepackAlignment == 0 && stride < kMaxTmaStride)) &&
         (view.rank == 2 || view.shape[0] == 1 || view.strides[0] % kRepackAlignment == 0);
}

}  // namespace

bool stores_directly(const MutableTensorView& d) {
  const int element = size_bytes(d.dtype);
  const auto row = static_cast<std::size_t>(d.rank - 2);
  return !is_aligned(d.data) || d.strides[row] <= 0 || d.shape[row + 1] * element % 16 != 0 ||
         d.strides[row] * element % 16 != 0 ||
         (d.rank == 3 && (d.strides[0] <= 0 || d.strides[0] * element % 16 != 0));
}

OperandPlan plan_operand(const TensorView& view) {
  OperandPlan plan;
  if (reads_operand_in_place(view)) return plan;
  const std::int64_t rows = view.shape[static_cast<std::size_t>(view.rank - 2)];
  const std::int64_t k = view.shape[static_cast<std::size_t>(view.rank - 1)];
  plan.path = OperandPath::kRepacked;
  if (k > 1 && col_stride(view) == 1) {
    plan.from = RepackFrom::kRows;
  } else if (rows > 1 && row_stride(view) == 1) {
    plan.from = RepackFrom::kColumns;
  } else {
    plan.from = RepackFrom::kAny;
  }
  plan.row_stride = round_up(k, kRepackAlignment);
  const bool is_shared = view.rank == 2 || view.strides[0] == 0;
  plan.num_copies = is_shared ? 1 : view.shape[0];
  plan.batch_stride = is_shared ? 0 : rows * plan.row_stride;
  plan.bytes = static_cast<std::size_t>(plan.num_copies * rows * plan.row_stride);
  // Rows are shifted at no cost; columns only if they lie at whole words.
  constexpr std::int64_t kWordBytes = 4;
  const bool moves_words =
      plan.from == RepackFrom::kRows ||
      (plan.from == RepackFrom::kColumns && col_stride(view) % kWordBytes == 0 &&
       reinterpret_cast<std::uintptr_t>(view.data) % kWordBytes == 0);
  plan.microseconds =
      launched(static_cast<double>(plan.num_copies) * static_cast<double>(rows) *
                   static_cast<double>(k + plan.row_stride),
               moves_words ? kCopyBytesPerMicrosecond : kUnalignedBytesPerMicrosecond);
  return plan;
}

ScaleParams scale_params(const TensorView& scale) {
  ScaleParams params{};
  if (scale.absent()) return params;
  params.data = scale.data;
  params.row_stride = scale.strides[0];
  params.k_stride = scale.rank > 1 ? scale.strides[1] : 0;
  params.is_ue8m0 = scale.dtype == DType::kUE8M0 ? 1 : 0;
  return params;
}

namespace {
constexpr std::int64_t kBulkScales = 4;  // 16 bytes
}

bool is_bulk(const ScaleParams& scale) {
  return scale.is_ue8m0 == 0 && scale.row_stride == 1 && scale.k_stride % kBulkScales == 0 &&
         is_aligned(scale.data);
}

bool is_bulk(const TensorView& scale) {
  if (scale.rank < 3) return is_bulk(scale_params(scale));
  return (scale.shape[0] == 1 || scale.strides[0] % kBulkScales == 0) &&
         is_bulk(scale_params(element_of(scale, 0)));
}

namespace {

ScalePlan plan_staging(const TensorView& scale) {
  ScalePlan plan;
  plan.is_staged = true;
  const auto row = static_cast<std::size_t>(scale.rank - 2);
  const std::int64_t k_blocks = scale.shape[row + 1];
  plan.k_stride = round_up(scale.shape[row], kBulkScales);
  const bool is_shared = scale.rank == 2 || scale.strides[0] == 0;
  plan.num_copies = is_shared ? 1 : scale.shape[0];
  plan.batch_stride = is_shared ? 0 : k_blocks * plan.k_stride;
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  plan.bytes = static_cast<std::size_t>(plan.num_copies * k_blocks * plan.k_stride * kFloatBytes);
  plan.microseconds = launched(2 * static_cast<double>(plan.bytes), kUnalignedBytesPerMicrosecond);
  return plan;
}

}  // namespace

void plan_scales(ScaleRecipe recipe, const TensorView& a_scale, const TensorView& b_scale,
                 std::int64_t n, GemmPlan& plan) {
  plan.a_scale = plan.b_scale = {};
  // A streamed kernel waits for memory; its scales come by a warp of their own in any layout.
  if (!is_block_scaled(recipe) || plan.config.schedule == Schedule::kStreamed) return;
  if (a_scale.absent() || b_scale.absent()) return;
  const bool by_column = recipe == ScaleRecipe::kBlock1d;
  // One scale for 128 columns comes by a copy of 4 bytes, from anywhere.
  const bool b_is_fine = by_column ? is_bulk(b_scale) : b_scale.dtype == DType::kF32;
  const bool a_is_fine = is_bulk(a_scale);
  const bool can_be_bulk = !by_column || n % kBulkScales == 0;
  if (a_is_fine && b_is_fine && can_be_bulk) return;
  // PERF: measured on an H200 (docs/experiments.md, "Scales in any layout").
  constexpr double kLostToCopies = 0.13;
  constexpr double kLostToDecoding = 0.45;
  const bool is_decoded = a_scale.dtype == DType::kUE8M0 || b_scale.dtype == DType::kUE8M0;
  const double lost = plan.product_microseconds * (is_decoded ? kLostToDecoding : kLostToCopies);
  const ScalePlan staged_a = a_is_fine ? ScalePlan{} : plan_staging(a_scale);
  const ScalePlan staged_b = b_is_fine ? ScalePlan{} : plan_staging(b_scale);
  if (can_be_bulk && staged_a.microseconds + staged_b.microseconds < lost) {
    plan.a_scale = staged_a;
    plan.b_scale = staged_b;
    return;
  }
  plan.product_microseconds += lost;
}

namespace {

// Whether a kernel of its own writes D: FP8, or elements of a row that are not adjacent. (The
// stride of a dimension of one element may be anything.)
bool finishes_apart(const GemmProblem& problem) {
  const Extents e = extents_of(problem);
  return is_fp8(problem.d.dtype) || (e.n > 1 && col_stride(problem.d) != 1) ||
         (e.m > 1 && row_stride(problem.d) < 0);
}

struct TileShape {
  Schedule schedule;
  int tile_m;
  int tile_n;
  // Thread blocks of its clusters: along M they share B's tile, along N A's.
  int cluster_m;
  int cluster_n;
  int stages;  // 0: as many as fit
  int num_splits = 1;
};
constexpr int kAllStages = 0;

// With promotion a part of a tile has a scale of B to itself, so that tiles grow along M. Three
// stages of the large tile leave room for all of its results on their way out. The small one is for
// products that would leave multiprocessors without a tile.
constexpr std::array kPromotedShapes = {
    TileShape{Schedule::kCooperative, 256, 128, 1, 2, 3},
    TileShape{Schedule::kCooperative, 128, 128, 2, 1, kAllStages},
    TileShape{Schedule::kCooperative, 128, 64, 1, 1, kAllStages},
};
constexpr std::array kFastShapes = {
    TileShape{Schedule::kCooperative, 128, 256, 2, 1, kAllStages},
    TileShape{Schedule::kPingpong, 128, 192, 2, 1, kAllStages},
    TileShape{Schedule::kPingpong, 128, 176, 2, 1, kAllStages},
    TileShape{Schedule::kCooperative, 128, 128, 2, 1, kAllStages},
    TileShape{Schedule::kCooperative, 128, 64, 1, 1, kAllStages},
};

// A product is streamed if its rows of A are few enough that reading B is what takes time, or if K
// is split. PERF: with more rows a small tile of the other kind took half the time (12 instead of
// 24 us, 128 x 6144 x 4096).
constexpr std::int64_t kMaxStreamedRows = 64;
constexpr int kMaxSplits = 8;  // thread blocks of a portable cluster, each with one team

// Rows of B, so that there are nearly as many tiles as multiprocessors, or twice as many, for the N
// that models have: 32 for 4096, 56 for 7168 and 14336, 112 and 224 for 28672, 96 and 192 for
// 24576.
constexpr std::array kStreamedRowsOfB = {32, 48, 56, 64, 96, 112, 128, 192, 224};

std::vector<TileShape> streamed_shapes(const Extents& e, int num_splits) {
  std::vector<TileShape> shapes;
  if (e.m > kMaxStreamedRows && num_splits == 1) return shapes;
  int tile_m = 8;  // the narrowest wgmma
  while (tile_m < e.m && tile_m < kWarpGroupRows) tile_m *= 2;
  for (const int tile_n : kStreamedRowsOfB) {
    // Whoever has tiles enough need not split K, and who splits it into many parts has few tiles.
    constexpr int kManySplits = 5;
    if (num_splits > 1 && tile_n > kWarpGroupRows) continue;
    if (num_splits >= kManySplits && kWarpGroupRows % tile_n != 0) continue;
    shapes.push_back({Schedule::kStreamed, tile_m, tile_n, 1, 1, kAllStages, num_splits});
  }
  return shapes;
}

}  // namespace

int most_stages(GemmConfig config) {
  const int most = blocks_per_multiprocessor(config) == 2 ? kMaxSharedBytesOfTwo : kMaxSharedBytes;
  config.stages = 0;
  do {
    ++config.stages;
  } while (gemm_shared_memory(config).total_bytes <= most);
  return config.stages - 1;
}

// K-blocks in the body of a streamed product's main loop, of which one is multiplied while another
// is promoted: as many as their sums leave without spills.
int streamed_unroll(const GemmConfig& config) {
  // PERF: four were no better (docs/experiments.md, "One thread's branch").
  constexpr int kMost = 2;
  const int registers =
      registers_of_thread(blocks_per_multiprocessor(config) * num_threads(config));
  const int needed = streamed_registers(config) + (kMost - 1) * streamed_sums(config);
  return needed <= registers ? kMost : 1;
}

int band_height(const GemmConfig& config, std::int64_t m, std::int64_t k) {
  // Thread blocks that run at the same time read the fewest rows if their tiles make a square: on
  // 132 multiprocessors 8 clusters high. But where a band's rows of A stay in the second-level
  // cache, B comes from memory once for each band, and higher is better. PERF: at K = 1,536 by 3 %,
  // at 4,096 by 1 %; at 7,168 worse by 0.5 % (docs/experiments.md, "Higher bands").
  constexpr std::int64_t kSquare = 8;
  constexpr std::int64_t kHigh = 16;
  constexpr std::int64_t kCachedBytes = 20'000'000;
  const std::int64_t rows = std::int64_t{config.tile_m} * config.cluster_m;
  const bool is_high = ceil_div(m, rows) > kSquare && kHigh * rows * k <= kCachedBytes;
  return static_cast<int>(is_high ? kHigh : kSquare);
}

namespace {

// Why a kernel of this config is not considered; empty if it is.
std::string unsuitable(const GemmConfig& config, const Extents& e) {
  // PERF: 40 us where a streamed kernel took 31 (16 x 28672 x 4096, H200), 44 where one took 33
  // with 64 rows: rows behind the end cost as much as others or more.
  constexpr std::int64_t kFewRows = 64;
  if (config.schedule != Schedule::kStreamed && e.m <= kFewRows) {
    return fmt::format("M={}: half of a tile's rows or more would lie behind the end", e.m);
  }
  if (e.m <= (config.cluster_m - 1) * std::int64_t{config.tile_m}) {
    return fmt::format("M={} is one row of tiles: a cluster of {} has nothing to share", e.m,
                       config.cluster_m);
  }
  if (e.n <= (config.cluster_n - 1) * std::int64_t{config.tile_n}) {
    return fmt::format("N={} is one column of tiles: a cluster of {} has nothing to share", e.n,
                       config.cluster_n);
  }
  const bool adds = config.accumulates || config.has_bias;
  if (config.tile_m == 256 && config.d == DType::kF32 &&
      (config.recipe == ScaleRecipe::kBlock1d || (config.recipe == ScaleRecipe::kRow && adds))) {
    return fmt::format(
        "a thread's share of {}x{} F32 results, their scales and what is added would spill",
        config.tile_m, config.tile_n);
  }
  if (config.schedule == Schedule::kPingpong && adds) {
    return fmt::format("a thread's share of {} columns and what is added to them would spill",
                       config.tile_n);
  }
  return {};
}

void set_shape(const TileShape& shape, int cluster_m, int cluster_n, GemmConfig& config) {
  config.schedule = shape.schedule;
  config.tile_m = shape.tile_m;
  config.tile_n = shape.tile_n;
  config.cluster_m = cluster_m;
  config.cluster_n = cluster_n;
  config.num_splits = shape.num_splits;
  if (shape.schedule == Schedule::kStreamed) config.unroll_k = streamed_unroll(config);
}

// What kAutomaticSplits means. Of M, N, K and the GPU alone: a bias, a layout or a recipe must not
// change the order in which products are added. So it asks for one recipe and sum for all of them.
int automatic_splits(const Extents& e, int num_multiprocessors) {
  GemmCandidate best;
  best.microseconds = std::numeric_limits<double>::infinity();
  const auto consider = [&](const TileShape& shape, int cluster_m, int cluster_n) {
    GemmConfig config;  // block, promoted
    set_shape(shape, cluster_m, cluster_n, config);
    if (!unsuitable(config, e).empty()) return;
    const GemmCandidate candidate = priced(config, e, num_multiprocessors);
    if (candidate.microseconds < best.microseconds) best = candidate;
  };
  for (const TileShape& shape : kPromotedShapes) {
    consider(shape, shape.cluster_m, shape.cluster_n);
    if (shape.cluster_m * shape.cluster_n > 1) consider(shape, 1, 1);
  }
  const std::int64_t k_blocks = ceil_div(e.k, kScaleBlock);
  for (int splits = 1; splits <= kMaxSplits && splits <= k_blocks && e.m <= kMaxShortRows;
       splits *= 2) {
    for (const TileShape& shape : streamed_shapes(e, splits)) consider(shape, 1, 1);
  }
  return best.config.num_splits;
}

}  // namespace

std::vector<Reason> gemm_refusals(const GemmProblem& problem, const Execution& execution) {
  std::vector<Reason> reasons;
  if (problem.a.device.kind != DeviceKind::kCuda) {
    // Every product on the CPU passes here: one reason is enough, and quick.
    reasons.push_back({"device", "a", to_string(problem.a.device), "device memory (cuda:N)"});
    return reasons;
  }
  if (execution.numerics != Numerics::kDefault) {
    reasons.push_back({"numerics", "numerics", to_string(execution.numerics), "default"});
  }
  refuse_operand("a", problem.a, reasons);
  refuse_operand("b", problem.b, reasons);
  if (problem.num_splits > kMaxSplits) {
    reasons.push_back(
        {"numerics", "num_splits", std::to_string(problem.num_splits),
         fmt::format("from 1 to {}, or {}: the teams of a cluster have a part of K each",
                     kMaxSplits, kAutomaticSplits)});
  }
  const Extents e = extents_of(problem);
  constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;
  if (std::max({e.m, e.n, e.k}) > kMaxExtent) {
    reasons.push_back({"layout", "a", fmt::format("M={}, N={}, K={}", e.m, e.n, e.k),
                       fmt::format("extents up to {}", kMaxExtent)});
  }
  return reasons;
}

std::vector<GemmCandidate> gemm_candidates(const GemmProblem& problem, int num_multiprocessors,
                                           std::vector<RefusedGemmCandidate>* refused) {
  const Extents e = extents_of(problem);
  GemmConfig base = base_of(problem);
  if (finishes_apart(problem)) {
    base.d = DType::kF32;
    base.accumulates = base.has_bias = false;
  }

  std::vector<GemmCandidate> candidates;
  const auto consider = [&](const TileShape& shape, int cluster_m, int cluster_n) {
    GemmConfig config = base;
    set_shape(shape, cluster_m, cluster_n, config);
    config.raster_group_m = band_height(config, e.m, e.k);
    config.stages = shape.stages == kAllStages ? most_stages(config) : shape.stages;
    if (std::string reason = unsuitable(config, e); !reason.empty()) {
      if (refused != nullptr) refused->push_back({config, std::move(reason)});
      return;
    }
    candidates.push_back(priced(config, e, num_multiprocessors));
  };
  const auto consider_all = [&](std::span<const TileShape> shapes) {
    for (const TileShape& shape : shapes) {
      consider(shape, shape.cluster_m, shape.cluster_n);
      if (shape.cluster_m * shape.cluster_n > 1) consider(shape, 1, 1);
    }
  };
  const int num_splits = problem.num_splits == kAutomaticSplits
                             ? automatic_splits(e, num_multiprocessors)
                             : problem.num_splits;
  if (num_splits == 1) {
    if (base.sum == MainloopSum::kFast) {
      consider_all(kFastShapes);
    } else {
      consider_all(kPromotedShapes);
    }
  }
  for (const TileShape& shape : streamed_shapes(e, num_splits)) {
    consider(shape, shape.cluster_m, shape.cluster_n);
  }
  sort_best_first(candidates);
  return candidates;
}

void set_product(const GemmProblem& problem, const GemmCandidate& candidate, GemmPlan& plan) {
  const Extents e = extents_of(problem);
  plan.config = candidate.config;
  plan.product_microseconds =
      static_cast<double>(e.batch) * (kLaunchMicroseconds + candidate.microseconds);
  plan_scales(problem.recipe, problem.a_scale, problem.b_scale, e.n, plan);
}

GemmPlan plan_gemm(const GemmProblem& problem, int num_multiprocessors) {
  const Extents e = extents_of(problem);
  GemmPlan plan;
  const bool changes_without_product =
      problem.output_mode == OutputMode::kOverwrite || problem.bias.present();
  if (e.batch == 0 || e.m == 0 || e.n == 0 || (e.k == 0 && !changes_without_product)) {
    plan.work = GemmWork::kNothing;
    return plan;
  }
  const auto num_outputs = static_cast<double>(e.m) * static_cast<double>(e.n);
  const int d_bytes = size_bytes(problem.d.dtype) *
                      (problem.output_mode == OutputMode::kAccumulate ? 2 : 1);  // read too
  const double finish_rate =
      col_stride(problem.d) == 1 ? kFinishRowsBytesPerMicrosecond : kFinishBytesPerMicrosecond;
  if (e.k == 0) {
    plan.work = GemmWork::kEpilogue;
    plan.output = OutputPath::kFinished;
    plan.finish_microseconds =
        static_cast<double>(e.batch) * launched(num_outputs * d_bytes, finish_rate);
    return plan;
  }

  set_product(problem, gemm_candidates(problem, num_multiprocessors).front(), plan);
  plan.a = plan_operand(problem.a);
  plan.b = plan_operand(problem.b);

  const MutableTensorView& d = problem.d;
  if (finishes_apart(problem)) {
    constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
    plan.output = OutputPath::kFinished;
    plan.sums_stride = round_up(e.n, static_cast<std::int64_t>(kWorkspaceAlignment) / kFloatBytes);
    plan.sums_bytes = static_cast<std::size_t>(e.m * plan.sums_stride * kFloatBytes);
    plan.finish_microseconds =
        static_cast<double>(e.batch) *
        launched(num_outputs * static_cast<double>(kFloatBytes + d_bytes), finish_rate);
  } else {
    plan.stores_directly = stores_directly(d);
  }
  return plan;
}

}  // namespace octavo::cuda
