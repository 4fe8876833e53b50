// SPDX-License-Identifier: Apache-2.0
#include "cuda/grouped_launch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "backend/group_problem.hpp"
#include "cuda/gemm_launch.hpp"
#include "cuda/launch/gemm_operand.hpp"
#include "cuda/launch/kernel_launch.hpp"
#include "cuda/launch/scratch.hpp"
#include "cuda/launch/tile_counter.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "kernels/contract/gemm_params.hpp"

namespace octavo::cuda {
namespace {

// From one matrix of a stack to the next.
std::int64_t stack_bytes(const TensorView& view) {
  return view.absent() ? 0 : view.strides[0] * size_bytes(view.dtype);
}

const std::int32_t* list_of(const TensorView& view) {
  return static_cast<const std::int32_t*>(view.data);
}

}  // namespace

Status launch_grouped(const DeviceInfo& device, const GroupedGemmProblem& problem,
                      const Execution& execution, const PreparedGemm& prepared) {
  const GemmPlan& plan = prepared.plan;
  if (plan.work == GemmWork::kNothing) return Ok{};
  if (Status s = load_kernels(device, prepared); !s.ok()) return s;
  const KernelLauncher launcher(device, execution.stream);
  const ContextScope scope(launcher.api(), device.context);
  Scratch scratch("grouped_gemm", device, execution);
  if (Status s = scratch.reserve(plan.workspace_bytes()); !s.ok()) return s;
  std::byte* const a_memory = scratch.take(plan.a.bytes);
  std::byte* const b_memory = scratch.take(plan.b.bytes);
  std::byte* const a_scale_memory = scratch.take(plan.a_scale.bytes);
  std::byte* const b_scale_memory = scratch.take(plan.b_scale.bytes);
  const Result<Operand> a = place_operand(launcher, problem.a, plan.a, a_memory);
  if (!a.ok()) return a.error();
  const Result<Operand> b = place_operand(launcher, problem.b, plan.b, b_memory);
  if (!b.ok()) return b.error();

  const bool masked = is_masked(problem);
  const Result<PlacedScales> a_scale =
      place_scales(launcher, problem.a_scale, masked, plan.a_scale, a_scale_memory);
  if (!a_scale.ok()) return a_scale.error();
  const Result<PlacedScales> b_scale =
      place_scales(launcher, problem.b_scale, true, plan.b_scale, b_scale_memory);
  if (!b_scale.ok()) return b_scale.error();

  const GemmConfig& config = plan.config;
  GroupedGemmParams grouped{};
  GemmParams& params = grouped.gemm;
  params.a_scale = a_scale.value().first;
  params.b_scale = b_scale.value().first;
  if (Status s =
          set_operands(launcher.api(), config, a.value(), b.value(), params, &grouped.a_parts);
      !s.ok()) {
    return s;
  }
  const TensorView d = masked ? element_of(TensorView(problem.d), 0) : TensorView(problem.d);
  params.output = const_cast<void*>(d.data);
  params.output_stride = d.strides[0];
  params.stores_directly = plan.stores_directly ? 1 : 0;
  if (Status s = set_output_map(launcher.api(), config, params, masked ? num_groups(problem) : 1,
                                problem.d.strides[0]);
      !s.ok()) {
    return s;
  }
  if (config.has_bias) {
    set_bias(problem.bias, params);
    grouped.bias_bytes = stack_bytes(problem.bias);
  }
  grouped.ends = masked ? nullptr : list_of(problem.group_ends);
  grouped.rows = list_of(problem.group_rows);
  grouped.num_groups = static_cast<int>(num_groups(problem));
  grouped.tile_counter = draws_tiles(config) ? tile_counter(launcher.api(), launcher.stream()) : -1;
  if (masked) {
    grouped.a_scale_bytes = a_scale.value().batch_bytes();
    grouped.output_bytes = stack_bytes(problem.d);
  }
  grouped.b_scale_bytes = b_scale.value().batch_bytes();
  // Bulk copies begin at multiples of 16 bytes in every group.
  constexpr std::int64_t kBulkBytes = 16;
  const bool by_column = config.recipe == ScaleRecipe::kBlock1d;
  if (params.scale_path == ScalePath::kBulk &&
      (grouped.a_scale_bytes % kBulkBytes != 0 ||
       (by_column && grouped.b_scale_bytes % kBulkBytes != 0))) {
    params.scale_path = ScalePath::kCopy;
  }
  // As many as there can be: those without a tile end at once. (The raster is one group's that has
  // all rows; the kernel counts each group's own.)
  const std::int64_t clusters =
      (static_cast<std::int64_t>(params.raster.clusters_m) * (masked ? grouped.num_groups : 1) +
       (masked ? 0 : grouped.num_groups)) *
      params.raster.clusters_n;
  return launch_product(launcher, prepared, clusters, grouped);
}

namespace {

Status launch_together(const KernelLauncher& launcher, std::span<const GemmProblem> problems,
                       const PreparedFusedLaunch& launch) {
  const GemmConfig& config = launch.product.plan.config;
  FusedGemmParams fused{};
  fused.tile_counter = draws_tiles(config) ? tile_counter(launcher.api(), launcher.stream()) : -1;
  std::int64_t clusters = 0;
  ScalePath path = ScalePath::kBulk;
  for (const std::size_t i : launch.problems) {
    const GemmProblem& problem = problems[i];
    TensorMap& a_parts = fused.a_parts[fused.count];
    GemmParams& params = fused.products[fused.count++];
    const Result<Operand> a = place_operand(launcher, problem.a, {}, nullptr);
    if (!a.ok()) return a.error();
    const Result<Operand> b = place_operand(launcher, problem.b, {}, nullptr);
    if (!b.ok()) return b.error();
    params.a_scale = scale_params(problem.a_scale);
    params.b_scale = scale_params(problem.b_scale);
    if (Status s = set_operands(launcher.api(), config, a.value(), b.value(), params, &a_parts);
        !s.ok()) {
      return s;
    }
    params.output = problem.d.data;
    params.output_stride = problem.d.strides[0];
    params.stores_directly = stores_directly(problem.d) ? 1 : 0;
    if (Status s = set_output_map(launcher.api(), config, params); !s.ok()) return s;
    if (config.has_bias) set_bias(problem.bias, params);
    clusters += params.raster.num_clusters();
    path = std::max(path, params.scale_path);
  }
  // A way that brings the scales of all of them: each reads what those before it do.
  for (int i = 0; i < fused.count; ++i) fused.products[i].scale_path = path;
  return launch_product(launcher, launch.product, clusters, fused);
}

}  // namespace

Status launch_fused(const DeviceInfo& device, std::span<const GemmProblem> problems,
                    const Execution& execution, const std::list<PreparedFusedLaunch>& launches) {
  for (const PreparedFusedLaunch& launch : launches) {
    if (launch.problems.size() == 1) {
      if (Status s = launch_gemm(device, with_splits(problems[launch.problems[0]]), execution,
                                 launch.product);
          !s.ok()) {
        return s;
      }
      continue;
    }
    if (Status s = load_kernels(device, launch.product); !s.ok()) return s;
    const KernelLauncher launcher(device, execution.stream);
    const ContextScope scope(launcher.api(), device.context);
    if (Status s = launch_together(launcher, problems, launch); !s.ok()) return s;
  }
  return Ok{};
}

}  // namespace octavo::cuda
