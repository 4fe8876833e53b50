// SPDX-License-Identifier: Apache-2.0
// Every kernel that a plan may choose compiles without spilling registers. Needs NVRTC, no GPU.
#include "cuda/jit/gemm_source.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "cuda/jit/nvrtc_compiler.hpp"
#include "cuda/plan/catalogue.hpp"
#include "naming/kernel_name.hpp"
#include "support/test_level.hpp"

namespace octavo {
namespace {

// Of every recipe, sum, schedule and tile one kernel: the last, which has the most to add to its
// results. Left to the full level are kernels that keep less in registers than one that is here:
// among streamed ones and those of many products those with no scales or one a tensor, among
// streamed ones those with fast sums, or with F32 results, which take no turn through shared
// memory.
std::vector<GemmConfig> sample_of(const std::vector<GemmConfig>& configs) {
  std::map<std::string, GemmConfig> heaviest;
  for (const GemmConfig& config : configs) {
    const bool is_streamed = config.schedule == Schedule::kStreamed;
    const bool is_grouped = config.grouping != Grouping::kNone;
    const bool has_many_scales =
        config.recipe == ScaleRecipe::kBlock || config.recipe == ScaleRecipe::kRow;
    if (config.d == DType::kF16) continue;
    if ((is_streamed || is_grouped) && !has_many_scales) continue;
    GemmConfig kind = config;
    kind.stages = 1;
    kind.has_bias = false;
    if (is_streamed) {
      if (config.d == DType::kF32 || config.sum == MainloopSum::kFast || config.tile_m < 32)
        continue;
      // By what decides how many registers a thread has, and needs.
      kind.num_splits = streamed_teams(config);
      if (is_swapped(config)) {
        kind.tile_n = streamed_consumers(config) * kWarpGroupRows + b_scales_of_stage(config);
      }
      kind.accumulates = false;
    } else {
      if (config.cluster_m * config.cluster_n == 1) continue;
      if (is_grouped && config.d != DType::kF32) continue;
      if (is_grouped && !config.accumulates && !draws_tiles(config)) continue;
      kind.d = DType::kF32;
      kind.accumulates = draws_tiles(config);  // they are a kind of their own
    }
    heaviest.insert_or_assign(kernel_name(kind), config);
  }
  std::vector<GemmConfig> sample;
  for (const auto& [kind, config] : heaviest) sample.push_back(config);
  return sample;
}

TEST(GemmSource, planned_kernels_do_not_spill) {
  if (!nvrtc_description().ok()) GTEST_SKIP() << nvrtc_description().error().what();
#ifdef __SANITIZE_ADDRESS__
  GTEST_SKIP() << "NVRTC takes four times as long, and it is not what is looked at";
#endif
  std::vector<GemmConfig> configs = cuda::planned_configs(DType::kE4M3, DType::kE4M3);
  // 5 and 7 splits are one team each in larger clusters, as 1 is without one. How high a band of
  // tiles is, is the host's affair.
  std::erase_if(configs, [](const GemmConfig& config) {
    return config.num_splits == 5 || config.num_splits == 7 ||
           config.raster_group_m != GemmConfig{}.raster_group_m;
  });
  if (!test::full_level()) configs = sample_of(configs);
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
  for (const KernelSource& source :
       {repack_operand_source(), stage_scales_source(), finish_output_source()}) {
    const Result<CompiledKernel> compiled = compile_kernel(source);
    ASSERT_TRUE(compiled.ok()) << compiled.error().what();
    EXPECT_EQ(compiled.value().resources.spill_store_bytes, 0) << source.entry;
    EXPECT_EQ(compiled.value().resources.stack_bytes, 0) << source.entry;
  }
}

}  // namespace
}  // namespace octavo
