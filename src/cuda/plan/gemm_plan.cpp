// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/gemm_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>

#include "kernels/contract/smem_bytes.hpp"

namespace octavo::cuda {
namespace {

// Shared memory of one thread block on compute capability 9.0 (CUDA C++ programming guide, table of
// technical specifications): 227 KiB.
constexpr int kMaxSharedBytes = 227 * 1024;

constexpr std::int64_t kScaleAlignment = 4;  // F32 elements: 16 bytes, what a bulk copy asks for

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t round_up(std::int64_t a, std::int64_t b) { return ceil_div(a, b) * b; }

struct Extents {
  std::int64_t batch;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

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

bool aligned(const void* data) { return reinterpret_cast<std::uintptr_t>(data) % 16 == 0; }

void refuse_operand(const char* name, const TensorView& view, std::vector<Reason>& reasons) {
  if (is_fp8(view.dtype)) return;
  reasons.push_back({"dtype", name, to_string(view.dtype),
                     "e4m3 or e5m2: the \"cuda\" back end multiplies FP8 operands only"});
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
// The clock that an H200 sustains under the load of a product, at its power limit
// (docs/experiments.md, "Where the energy goes"). An idle GPU's first product runs at up to 1.5
// times this.
constexpr double kCyclesPerMicrosecond = 1300;

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
  return aligned(view.data) && (k == 1 || col_stride(view) == 1) &&
         (one_row || (stride >= k && stride % kRepackAlignment == 0 && stride < kMaxTmaStride)) &&
         (view.rank == 2 || view.shape[0] == 1 || view.strides[0] % kRepackAlignment == 0);
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

ScalePlan staged_scale(std::int64_t batch, std::int64_t rows, std::int64_t row_stride) {
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  const std::int64_t bytes = batch * rows * row_stride * kFloatBytes;
  constexpr double kReadAndWritten = 2;
  return {ScalePath::kStaged, row_stride, rows * row_stride, static_cast<std::size_t>(bytes),
          launched(kReadAndWritten * static_cast<double>(bytes), kUnalignedBytesPerMicrosecond)};
}

// Whether a kernel of its own writes D: FP8, or elements of a row that are not adjacent. (The
// stride of a dimension of one element may be anything.)
bool finishes_apart(const GemmProblem& problem) {
  const Extents e = extents_of(problem);
  return is_fp8(problem.d.dtype) || (e.n > 1 && col_stride(problem.d) != 1) ||
         (e.m > 1 && row_stride(problem.d) < 0);
}

// Whether the kernel reads the tensor in place: F32, rows contiguous and at multiples of 16 bytes.
bool reads_in_place(const TensorView& scale, bool rows_are_k_blocks) {
  if (scale.dtype != DType::kF32 || !aligned(scale.data)) return false;
  if (scale.rank == 3 && scale.strides[0] % kScaleAlignment != 0) return false;
  const std::int64_t inner = rows_are_k_blocks ? row_stride(scale) : col_stride(scale);
  const std::int64_t outer = rows_are_k_blocks ? col_stride(scale) : row_stride(scale);
  const auto length =
      scale.shape[static_cast<std::size_t>(scale.rank - (rows_are_k_blocks ? 2 : 1))];
  // The stride of a single row or column of scales may be anything.
  return (inner == 1 || length == 1) && outer % kScaleAlignment == 0 && outer >= length;
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
  if (problem.num_splits != 1) {
    reasons.push_back({"numerics", "num_splits", std::to_string(problem.num_splits),
                       "1: this version's kernels add all of K in one piece"});
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
  const bool is_finished = finishes_apart(problem);
  GemmConfig base;
  base.a = problem.a.dtype;
  base.b = problem.b.dtype;
  base.d = is_finished ? DType::kF32 : problem.d.dtype;
  base.recipe = problem.recipe;
  base.sum =
      problem.accumulation == Accumulation::kFast ? MainloopSum::kFast : MainloopSum::kPromoted;
  base.accumulates = !is_finished && problem.output_mode == OutputMode::kAccumulate;
  base.has_bias = !is_finished && problem.bias.present();

  // PERF: share of the tensor pipe that a main loop keeps busy, from the cycles a K-block in
  // docs/experiments.md; a narrow tile moves more bytes for each product, a single block loads B
  // for itself.
  constexpr double kFastLoop = 0.98;
  constexpr double kPromotedLoop = 0.96;
  constexpr double kScaledLoop = 0.89;
  constexpr double kNarrowTile = 0.87;
  constexpr double kNoMulticast = 0.95;
  constexpr double kMacsPerCycle = 4096;  // FP8, one multiprocessor
  constexpr double kTileOverhead = 1900;  // cycles: the epilogue
  const double loop = base.sum == MainloopSum::kFast    ? kFastLoop
                      : is_block_scaled(problem.recipe) ? kScaledLoop
                                                        : kPromotedLoop;
  std::vector<GemmCandidate> candidates;
  for (const int tile_n : {256, 128}) {
    // What spills in a wide tile: a column's scale for each element of a promotion.
    const bool wide_spills = problem.recipe == ScaleRecipe::kBlock1d;
    for (const int cluster_m : {2, 1}) {
      GemmCandidate candidate{.config = base};
      candidate.config.tile_n = tile_n;
      candidate.config.cluster_m = cluster_m;
      std::string reason;
      if (tile_n == 256 && wide_spills) {
        reason = fmt::format("a thread's share of {} columns and their scales would spill", tile_n);
      } else if (e.m <= (cluster_m - 1) * std::int64_t{base.tile_m}) {
        reason = fmt::format("M={} is one row of tiles: a cluster of {} has nothing to share", e.m,
                             cluster_m);
      }
      if (!reason.empty()) {
        if (refused != nullptr) refused->push_back({candidate.config, std::move(reason)});
        continue;
      }
      while (gemm_shared_memory(candidate.config).total_bytes <= kMaxSharedBytes) {
        ++candidate.config.stages;
      }
      while (gemm_shared_memory(candidate.config).total_bytes > kMaxSharedBytes) {
        --candidate.config.stages;
      }
      const std::int64_t tiles =
          round_up(ceil_div(e.m, candidate.config.tile_m), cluster_m) * ceil_div(e.n, tile_n);
      candidate.waves = ceil_div(tiles, num_multiprocessors / cluster_m * cluster_m);
      const double efficiency =
          loop * (tile_n == 128 ? kNarrowTile : 1.0) * (cluster_m == 1 ? kNoMulticast : 1.0);
      candidate.tile_cycles = static_cast<double>(candidate.config.tile_m) * tile_n *
                                  static_cast<double>(round_up(e.k, kScaleBlock)) / kMacsPerCycle /
                                  efficiency +
                              kTileOverhead;
      candidate.estimated_cycles = static_cast<double>(candidate.waves) * candidate.tile_cycles;
      candidate.microseconds = candidate.estimated_cycles / kCyclesPerMicrosecond;
      candidates.push_back(candidate);
    }
  }
  std::stable_sort(candidates.begin(), candidates.end(),
                   [](const GemmCandidate& x, const GemmCandidate& y) {
                     return x.estimated_cycles < y.estimated_cycles;
                   });
  return candidates;
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

  const GemmCandidate best = gemm_candidates(problem, num_multiprocessors).front();
  plan.config = best.config;
  plan.product_microseconds =
      static_cast<double>(e.batch) * (kLaunchMicroseconds + best.microseconds);
  plan.a = plan_operand(problem.a);
  plan.b = plan_operand(problem.b);

  const TensorView& d = problem.d;
  if (finishes_apart(problem)) {
    constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
    plan.output = OutputPath::kFinished;
    plan.sums_stride = round_up(e.n, static_cast<std::int64_t>(kWorkspaceAlignment) / kFloatBytes);
    plan.sums_bytes = static_cast<std::size_t>(e.m * plan.sums_stride * kFloatBytes);
    plan.finish_microseconds =
        static_cast<double>(e.batch) *
        launched(num_outputs * static_cast<double>(kFloatBytes + d_bytes), finish_rate);
  } else {
    // TMA writes whole 16 bytes: the end of a row that is no multiple of them would be followed by
    // others in what may be somebody else's memory.
    const int d_element = size_bytes(d.dtype);
    plan.stores_directly = !aligned(d.data) || row_stride(d) <= 0 || e.n * d_element % 16 != 0 ||
                           row_stride(d) * d_element % 16 != 0 ||
                           (d.rank == 3 && d.strides[0] * d_element % 16 != 0);
  }

  const std::int64_t k_blocks = num_scale_blocks(e.k);
  if (is_block_scaled(problem.recipe)) {
    if (!reads_in_place(problem.a_scale, true)) {
      plan.a_scale = staged_scale(e.batch, k_blocks, round_up(e.m, kScaleAlignment));
    }
    const bool by_column = problem.recipe == ScaleRecipe::kBlock1d;
    if (!reads_in_place(problem.b_scale, by_column)) {
      plan.b_scale = by_column ? staged_scale(e.batch, k_blocks, round_up(e.n, kScaleAlignment))
                               : staged_scale(e.batch, num_scale_blocks(e.n),
                                              round_up(k_blocks, kScaleAlignment));
    }
  } else {
    // One scale a row or one in all: any stride is read in place, but UE8M0 is converted first.
    const auto plan_scale = [&](const TensorView& scale) {
      if (scale.absent() || scale.dtype == DType::kF32) return ScalePlan{};
      const std::int64_t count = scale.num_elements() / e.batch;
      return staged_scale(e.batch, round_up(count, kScaleAlignment), 1);
    };
    plan.a_scale = plan_scale(problem.a_scale);
    plan.b_scale = plan_scale(problem.b_scale);
  }
  return plan;
}

}  // namespace octavo::cuda
