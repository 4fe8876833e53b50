// SPDX-License-Identifier: Apache-2.0
// Every kernel that a plan may choose compiles without spilling registers. Needs NVRTC, no GPU.
#include "cuda/jit/gemm_source.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "cuda/jit/nvrtc_compiler.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "naming/kernel_name.hpp"
#include "support/test_level.hpp"

namespace octavo {
namespace {

// What the plan offers for `m` rows and N and K that allow every tile, cluster and split.
std::vector<GemmConfig> planned(std::int64_t m, int num_splits, ScaleRecipe recipe,
                                Accumulation accumulation, DType d, bool accumulates,
                                bool has_bias) {
  const auto view = [](DType dtype, std::int64_t rows, std::int64_t cols) {
    return make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 20U), dtype, {rows, cols},
                     {DeviceKind::kCuda, 0});
  };
  GemmProblem problem;
  problem.a = view(DType::kE4M3, m, 4096);
  problem.b = view(DType::kE4M3, 4096, 4096);
  problem.d = view(d, m, 4096);
  problem.num_splits = num_splits;
  problem.recipe = recipe;
  problem.accumulation = accumulation;
  problem.output_mode = accumulates ? OutputMode::kAccumulate : OutputMode::kOverwrite;
  if (has_bias) problem.bias = make_view(problem.a.data, DType::kF32, {4096}, problem.a.device);
  constexpr int kH200Multiprocessors = 132;
  std::vector<GemmConfig> configs;
  for (const cuda::GemmCandidate& candidate :
       cuda::gemm_candidates(problem, kH200Multiprocessors)) {
    configs.push_back(candidate.config);
  }
  return configs;
}

std::vector<GemmConfig> all_configs() {
  std::vector<GemmConfig> configs;
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const Accumulation accumulation : {Accumulation::kPromoted, Accumulation::kFast}) {
      if (is_block_scaled(recipe) && accumulation == Accumulation::kFast) continue;
      for (const DType d : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const bool accumulates : {false, true}) {
          for (const bool has_bias : {false, true}) {
            for (const std::int64_t m : {8, 16, 32, 64, 128, 4096}) {
              for (const int num_splits : {1, 3, 8}) {
                for (const GemmConfig& config :
                     planned(m, num_splits, recipe, accumulation, d, accumulates, has_bias)) {
                  // What is not streamed is the same for every M, and few M have tiles of 128.
                  if ((m == 4096) != (config.schedule == Schedule::kStreamed)) {
                    configs.push_back(config);
                  }
                }
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

// What the plans of many products offer, for groups of every size.
std::vector<GemmConfig> grouped_configs() {
  std::vector<GemmConfig> configs;
  const auto view = [](DType dtype, std::initializer_list<std::int64_t> shape) {
    return make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 20U), dtype, shape,
                     {DeviceKind::kCuda, 0});
  };
  constexpr int kH200Multiprocessors = 132;
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const Accumulation accumulation : {Accumulation::kPromoted, Accumulation::kFast}) {
      if (is_block_scaled(recipe) && accumulation == Accumulation::kFast) continue;
      for (const DType d : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const bool adds : {false, true}) {
          for (const std::int64_t m : {8, 16, 32, 64, 4096}) {
            GemmProblem one;
            one.a = view(DType::kE4M3, {m, 4096});
            one.b = view(DType::kE4M3, {4096, 4096});
            one.d = view(d, {m, 4096});
            one.recipe = recipe;
            one.accumulation = accumulation;
            one.output_mode = adds ? OutputMode::kAccumulate : OutputMode::kOverwrite;
            if (adds) one.bias = view(DType::kF32, {4096});
            GroupedGemmProblem many;
            many.a = view(DType::kE4M3, {8 * m, 4096});
            many.b = view(DType::kE4M3, {8, 4096, 4096});
            many.d = view(d, {8 * m, 4096});
            many.recipe = recipe;
            many.accumulation = accumulation;
            many.output_mode = one.output_mode;
            if (adds) many.bias = view(DType::kF32, {8, 4096});
            for (const auto& candidates :
                 {cuda::grouped_candidates(many, kH200Multiprocessors),
                  cuda::fused_candidates(std::span(&one, 1), kH200Multiprocessors)}) {
              for (const cuda::GemmCandidate& candidate : candidates) {
                configs.push_back(candidate.config);
              }
            }
          }
        }
      }
    }
  }
  return configs;
}

TEST(GemmSource, planned_kernels_do_not_spill) {
  if (!nvrtc_description().ok()) GTEST_SKIP() << nvrtc_description().error().what();
  std::vector<GemmConfig> configs = all_configs();
  for (const GemmConfig& config : grouped_configs()) configs.push_back(config);
    // Under AddressSanitizer NVRTC takes four times as long, and it is not what is looked at.
#ifdef __SANITIZE_ADDRESS__
  constexpr bool kSanitized = true;
#else
  constexpr bool kSanitized = false;
#endif
  if (!test::full_level() || kSanitized) {
    // Of every recipe, sum, schedule and tile the last, which has the most to add to its results.
    std::map<std::string, GemmConfig> heaviest;
    for (const GemmConfig& config : configs) {
      const bool is_streamed = config.schedule == Schedule::kStreamed;
      if (config.d == DType::kF16) continue;
      // Of many products the ones with the most to keep: block scales, and rows' with F32 results.
      if (config.grouping != Grouping::kNone &&
          (!config.accumulates || config.d != DType::kF32 ||
           (config.recipe != ScaleRecipe::kBlock && config.recipe != ScaleRecipe::kRow))) {
        continue;
      }
      if (is_streamed ? config.tile_m < 32 || config.num_splits == 3
                      : config.cluster_m * config.cluster_n == 1) {
        continue;
      }
      GemmConfig kind = config;
      kind.d = DType::kBF16;
      kind.stages = 1;
      kind.num_splits = std::min(kind.num_splits, 2);
      kind.accumulates = kind.has_bias = false;
      heaviest.insert_or_assign(kernel_name(kind), config);
    }
    configs.clear();
    for (const auto& [kind, config] : heaviest) configs.push_back(config);
  }
  std::atomic<std::size_t> next{0};
  const auto compile = [&] {
    for (std::size_t i = next++; i < configs.size(); i = next++) {
      const KernelSource source = gemm_source(configs[i]);
      const Result<CompiledKernel> compiled = compile_kernel(source);
      ASSERT_TRUE(compiled.ok()) << compiled.error().what();
      const KernelResources& resources = compiled.value().resources;
      EXPECT_EQ(resources.spill_store_bytes, 0) << source.entry;
      EXPECT_EQ(resources.spill_load_bytes, 0) << source.entry;
      EXPECT_EQ(resources.stack_bytes, 0) << source.entry;
      EXPECT_EQ(source.entry, kernel_name(configs[i]));
    }
  };
  std::jthread other(compile);
  compile();
}

TEST(GemmSource, small_kernels_do_not_spill) {
  if (!nvrtc_description().ok()) GTEST_SKIP() << nvrtc_description().error().what();
  for (const KernelSource& source : {repack_operand_source(), finish_output_source()}) {
    const Result<CompiledKernel> compiled = compile_kernel(source);
    ASSERT_TRUE(compiled.ok()) << compiled.error().what();
    EXPECT_EQ(compiled.value().resources.spill_store_bytes, 0) << source.entry;
    EXPECT_EQ(compiled.value().resources.stack_bytes, 0) << source.entry;
  }
}

}  // namespace
}  // namespace octavo
