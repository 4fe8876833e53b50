// SPDX-License-Identifier: Apache-2.0
// Every quantize kernel compiles without spilling registers, and each has a name of its own. Needs
// NVRTC, no GPU.
#include "cuda/jit/quantize_source.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "cuda/jit/nvrtc_compiler.hpp"
#include "naming/quantize_name.hpp"
#include "support/test_level.hpp"

namespace octavo {
namespace {

TEST(QuantizeSource, kernels_do_not_spill) {
  if (!nvrtc_description().ok()) GTEST_SKIP() << nvrtc_description().error().what();
  std::vector<QuantizeConfig> configs = quantize_configs();
  if (!test::full_level()) {
    // Every step, and in turn every type and access.
    std::vector<QuantizeConfig> sample;
    for (std::size_t i = 0; i < configs.size(); i += 9) sample.push_back(configs[i]);
    configs = sample;
  }
  std::atomic<std::size_t> next{0};
  const auto compile = [&] {
    for (std::size_t i = next++; i < configs.size(); i = next++) {
      const KernelSource source = quantize_source(configs[i]);
      const Result<CompiledKernel> compiled = compile_kernel(source);
      ASSERT_TRUE(compiled.ok()) << compiled.error().what();
      EXPECT_EQ(compiled.value().resources.spill_store_bytes, 0) << source.entry;
      EXPECT_EQ(compiled.value().resources.spill_load_bytes, 0) << source.entry;
      EXPECT_EQ(compiled.value().resources.stack_bytes, 0) << source.entry;
    }
  };
  std::jthread other(compile);
  compile();
}

TEST(QuantizeSource, names_are_distinct_and_say_what_the_kernel_is) {
  std::set<std::string> names;
  for (const QuantizeConfig& config : quantize_configs()) {
    EXPECT_TRUE(names.insert(quantize_kernel_name(config)).second) << quantize_kernel_name(config);
  }
  EXPECT_TRUE(names.contains("octavo_sm90_quantize_1x128_bf16_e4m3_vectors"));
  EXPECT_TRUE(names.contains("octavo_sm90_quantize_longrow_f32_e5m2_elements"));
  EXPECT_TRUE(names.contains("octavo_sm90_amax_f16_vectors"));
  EXPECT_TRUE(names.contains("octavo_sm90_dequantize_e5m2_bf16_vectors"));
}

}  // namespace
}  // namespace octavo
