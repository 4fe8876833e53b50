// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/gemm_source.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "kernels/contract/finish_output_params.hpp"
#include "kernels/contract/repack_params.hpp"
#include "kernels/contract/stage_scales_params.hpp"
#include "naming/kernel_name.hpp"

namespace octavo {
namespace {

std::string config_text(const GemmConfig& config) {
  const auto number = [](auto value) { return std::to_string(static_cast<int>(value)); };
  return fmt::format(
      "octavo::GemmConfig{{octavo::DType({}), octavo::DType({}), octavo::DType({}), "
      "octavo::ScaleRecipe({}), octavo::MainloopSum({}), octavo::Schedule({}), {}, {}, {}, {}, {}, "
      "{}, {}, {}, {}, {}, {}, octavo::Grouping({})}}",
      number(config.a), number(config.b), number(config.d), number(config.recipe),
      number(config.sum), number(config.schedule), config.tile_m, config.tile_n, config.tile_k,
      config.cluster_m, config.cluster_n, config.stages, config.unroll_k, config.raster_group_m,
      config.accumulates, config.has_bias, config.num_splits, number(config.grouping));
}

// The entry around kernels/gemm/<function>.cuh. `blocks`: that a multiprocessor must hold at once.
KernelSource small_kernel_source(const char* entry, const char* function, const char* params,
                                 unsigned threads, unsigned blocks = 1) {
  return {entry, fmt::format("#include \"kernels/gemm/{1}.cuh\"\n"
                             "extern \"C\" __global__ void __launch_bounds__({3}, {4})\n"
                             "{0}(const __grid_constant__ octavo::{2} params) {{\n"
                             "  octavo::{1}(params);\n}}\n",
                             entry, function, params, threads, blocks)};
}

}  // namespace

KernelSource gemm_source(const GemmConfig& config) {
  std::string name = kernel_name(config);
  std::string text = fmt::format(
      "#include \"kernels/gemm/{0}.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__({1}, {2})\n"
      "{3}(const __grid_constant__ octavo::GemmArguments<{4}> arguments) {{\n"
      "  octavo::{0}<{4}>(arguments);\n}}\n",
      config.schedule == Schedule::kStreamed ? "gemm_streamed" : "gemm_warpspecialized",
      num_threads(config), blocks_per_multiprocessor(config), name, config_text(config));
  return {std::move(name), std::move(text)};
}

KernelSource repack_operand_source() {
  return small_kernel_source(kRepackOperandEntry, "repack_operand", "RepackParams", kRepackThreads,
                             kRepackBlocks);
}

KernelSource stage_scales_source() {
  return small_kernel_source(kStageScalesEntry, "stage_scales", "StageScalesParams",
                             kStageScalesThreads);
}

KernelSource finish_output_source() {
  return small_kernel_source(kFinishOutputEntry, "finish_output", "FinishOutputParams",
                             kFinishThreads, kFinishBlocks);
}

}  // namespace octavo
