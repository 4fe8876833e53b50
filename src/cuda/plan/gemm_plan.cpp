// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/gemm_plan.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <limits>

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
  if (!is_fp8(view.dtype)) {
    reasons.push_back({"dtype", name, to_string(view.dtype), "e4m3 or e5m2"});
    return;
  }
  // FP8 wgmma reads rows of 16-byte units, contiguous along K (PTX ISA, "wgmma", matrix layouts).
  const std::int64_t stride = row_stride(view);
  const bool one_row = view.shape[static_cast<std::size_t>(view.rank - 2)] == 1;
  if (col_stride(view) != 1 || !aligned(view.data) ||
      (!one_row && (stride <= 0 || stride % 16 != 0)) ||
      (view.rank == 3 && view.strides[0] % 16 != 0)) {
    reasons.push_back({"layout", name,
                       fmt::format("strides [{}, {}], address {} mod 16", stride, col_stride(view),
                                   reinterpret_cast<std::uintptr_t>(view.data) % 16),
                       "contiguous along K, every row at a multiple of 16 bytes"});
  }
}

// Whether the kernel reads the tensor in place: F32, rows contiguous and at multiples of 16 bytes.
bool reads_in_place(const TensorView& scale, bool rows_are_k_blocks) {
  if (scale.dtype != DType::kF32 || !aligned(scale.data)) return false;
  if (scale.rank == 3 && scale.strides[0] % kScaleAlignment != 0) return false;
  const std::int64_t inner = rows_are_k_blocks ? row_stride(scale) : col_stride(scale);
  const std::int64_t outer = rows_are_k_blocks ? col_stride(scale) : row_stride(scale);
  const auto length =
      scale.shape[static_cast<std::size_t>(scale.rank - (rows_are_k_blocks ? 2 : 1))];
  return inner == 1 && outer % kScaleAlignment == 0 && outer >= length;
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
  if (is_fp8(problem.d.dtype)) {
    reasons.push_back({"dtype", "d", to_string(problem.d.dtype), "bf16, f16 or f32"});
  }
  if (col_stride(problem.d) != 1 || row_stride(problem.d) < 0) {
    reasons.push_back({"layout", "d", fmt::format("column stride {}", col_stride(problem.d)),
                       "contiguous along N"});
  }
  if (problem.num_splits != 1) {
    reasons.push_back(
        {"numerics", "num_splits", std::to_string(problem.num_splits), "1 in this version"});
  }
  const Extents e = extents_of(problem);
  if (e.k == 0) reasons.push_back({"layout", "a", "K=0", "K of at least 1"});
  constexpr std::int64_t kMaxExtent = std::numeric_limits<std::int32_t>::max() - 1024;
  if (std::max({e.m, e.n, e.k}) > kMaxExtent) {
    reasons.push_back({"layout", "a", fmt::format("M={}, N={}, K={}", e.m, e.n, e.k),
                       fmt::format("extents up to {}", kMaxExtent)});
  }
  return reasons;
}

std::vector<GemmCandidate> gemm_candidates(const GemmProblem& problem, int num_multiprocessors) {
  const Extents e = extents_of(problem);
  GemmConfig base;
  base.a = problem.a.dtype;
  base.b = problem.b.dtype;
  base.d = problem.d.dtype;
  base.recipe = problem.recipe;
  base.sum =
      problem.accumulation == Accumulation::kFast ? MainloopSum::kFast : MainloopSum::kPromoted;
  base.accumulates = problem.output_mode == OutputMode::kAccumulate;
  base.has_bias = problem.bias.present();

  // PERF: share of the tensor pipe that a tile sustains, from the sweeps in docs/experiments.md: a
  // narrow tile moves more bytes for each product, a single block loads B for itself.
  constexpr double kNarrowTile = 0.87;
  constexpr double kNoMulticast = 0.97;
  constexpr double kMacsPerCycle = 4096;  // FP8, one multiprocessor
  constexpr double kTileOverhead = 2500;  // cycles: first loads and the epilogue
  std::vector<GemmCandidate> candidates;
  for (const int tile_n : {256, 128}) {
    // What spills in a wide tile: a column's scale for each element of a promotion, and F32 values
    // of D to add to beside the scales of rows and columns.
    const bool wide_spills =
        problem.recipe == ScaleRecipe::kBlock1d ||
        (problem.recipe == ScaleRecipe::kRow && base.accumulates && base.d == DType::kF32);
    if (tile_n == 256 && wide_spills) continue;
    for (const int cluster_m : {2, 1}) {
      if (e.m <= (cluster_m - 1) * std::int64_t{base.tile_m}) continue;  // nothing to share
      GemmCandidate candidate{.config = base};
      candidate.config.tile_n = tile_n;
      candidate.config.cluster_m = cluster_m;
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
          (tile_n == 128 ? kNarrowTile : 1.0) * (cluster_m == 1 ? kNoMulticast : 1.0);
      candidate.tile_cycles = static_cast<double>(candidate.config.tile_m) * tile_n *
                                  static_cast<double>(round_up(e.k, kScaleBlock)) / kMacsPerCycle /
                                  efficiency +
                              kTileOverhead;
      candidate.estimated_cycles = static_cast<double>(candidate.waves) * candidate.tile_cycles;
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
  plan.config = gemm_candidates(problem, num_multiprocessors).front().config;
  const TensorView& d = problem.d;
  plan.stores_directly = !aligned(d.data) || row_stride(d) <= 0 ||
                         row_stride(d) * size_bytes(d.dtype) % 16 != 0 ||
                         (d.rank == 3 && d.strides[0] * size_bytes(d.dtype) % 16 != 0);
  const std::int64_t k_blocks = num_scale_blocks(e.k);
  constexpr auto kFloatBytes = static_cast<std::int64_t>(sizeof(float));
  if (is_block_scaled(problem.recipe)) {
    if (!reads_in_place(problem.a_scale, true)) {
      plan.a_scale = ScalePath::kStaged;
      plan.a_scale_stride = round_up(e.m, kScaleAlignment);
      plan.a_scale_bytes =
          static_cast<std::size_t>(e.batch * k_blocks * plan.a_scale_stride * kFloatBytes);
    }
    const bool by_column = problem.recipe == ScaleRecipe::kBlock1d;
    if (!reads_in_place(problem.b_scale, by_column)) {
      plan.b_scale = ScalePath::kStaged;
      const std::int64_t rows = by_column ? k_blocks : num_scale_blocks(e.n);
      plan.b_scale_stride = round_up(by_column ? e.n : k_blocks, kScaleAlignment);
      plan.b_scale_bytes =
          static_cast<std::size_t>(e.batch * rows * plan.b_scale_stride * kFloatBytes);
    }
  } else {
    // One scale a row or one in all: any stride is read in place, but UE8M0 is converted first.
    const auto stage = [&](const TensorView& scale, ScalePath& path, std::int64_t& stride,
                           std::size_t& bytes) {
      if (scale.absent() || scale.dtype == DType::kF32 || e.batch == 0) return;
      path = ScalePath::kStaged;
      stride = 1;
      bytes = static_cast<std::size_t>(
          e.batch * round_up(scale.num_elements() / e.batch, kScaleAlignment) * kFloatBytes);
    };
    stage(problem.a_scale, plan.a_scale, plan.a_scale_stride, plan.a_scale_bytes);
    stage(problem.b_scale, plan.b_scale, plan.b_scale_stride, plan.b_scale_bytes);
  }
  return plan;
}

}  // namespace octavo::cuda
