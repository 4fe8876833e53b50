// SPDX-License-Identifier: Apache-2.0
// Products on a GPU against the CPU's emulated numerics, bit for bit.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "octavo/gemm.hpp"
#include "support/bit_comparison.hpp"
#include "support/device_tensor.hpp"
#include "support/gemm_data.hpp"

namespace octavo::test {
namespace {

const Execution kEmulated{.backend = "cpu", .numerics = Numerics::kEmulated};

// A problem's tensors in device memory, and the problem on them.
struct DeviceGemm {
  explicit DeviceGemm(const GemmProblem& host)
      : a(host.a),
        b(host.b),
        d(host.d),
        a_scale(host.a_scale),
        b_scale(host.b_scale),
        bias(host.bias),
        problem(host) {
    problem.a = a.view();
    problem.b = b.view();
    problem.d = d.mutable_view();
    problem.a_scale = a_scale.view();
    problem.b_scale = b_scale.view();
    problem.bias = bias.view();
  }

  DeviceTensor a, b, d, a_scale, b_scale, bias;
  GemmProblem problem;
};

// Both back ends on the same data.
void expect_equal_bits(GemmData& data, GemmProblem host) {
  const DeviceGemm device(host);
  const GemmReport report = gemm(device.problem, {.backend = "cuda"});
  Gpu::instance().synchronize();
  (void)gemm(host, kEmulated);
  const std::vector<std::uint8_t> bytes = device.d.bytes();
  TensorView got = host.d;
  got.data = bytes.data();
  EXPECT_TRUE(
      same_bits(got, host.d, report.kernel + "\n" + repeat_line(data.spec, Numerics::kEmulated)));
}
void expect_equal_bits(const GemmSpec& spec) {
  GemmData data(spec);
  expect_equal_bits(data, data.problem());
}

class GemmOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::driver().ok()) GTEST_SKIP() << cuda::driver().error().what();
    ASSERT_TRUE(cuda::device_info(0).ok()) << cuda::device_info(0).error().what();
  }
};

// Modes that a recipe has.
std::vector<Accumulation> accumulations(ScaleRecipe recipe) {
  if (is_block_scaled(recipe)) return {Accumulation::kPromoted};
  return {Accumulation::kPromoted, Accumulation::kFast};
}

constexpr ScaleRecipe kRecipes[] = {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                    ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};

// 60 shapes of one recipe and mode: sizes that straddle tiles and clusters, and in turn the FP8
// types, bias, accumulation into D, UE8M0 scales, and Gaussian, all-positive and arbitrary data.
void try_shapes(ScaleRecipe recipe, Accumulation accumulation, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  constexpr int kShapes = 60;
  for (int i = 0; i < kShapes; ++i) {
    GemmSpec spec;
    spec.m = draw(1, i % 4 == 0 ? 700 : 150);
    spec.n = draw(1, i % 4 == 1 ? 900 : 300);
    spec.k = 16 * draw(1, i % 4 == 2 ? 200 : 60);
    spec.recipe = recipe;
    spec.accumulation = accumulation;
    switch (i % 6) {
      case 0: break;
      case 1: spec.bias = true; break;
      case 2: spec.a = DType::kE5M2; break;
      case 3: spec.b = DType::kE5M2; break;
      case 4: spec.a = spec.b = DType::kE5M2; break;
      default: spec.output_mode = OutputMode::kAccumulate; break;
    }
    spec.scale = i % 7 == 6 ? DType::kUE8M0 : DType::kF32;
    spec.bias_dtype = i % 4 == 1 ? DType::kF32 : DType::kBF16;
    spec.data = i % 5 < 2 ? Data::kGaussian : i % 5 < 4 ? Data::kPositive : Data::kAnyBits;
    spec.seed = random();
    expect_equal_bits(spec);
    if (testing::Test::HasFailure()) return;
  }
}

// 8 modes, 480 products. A thread for each mode: most of the time goes into compiling the kernels,
// and the library promises to serve many threads at once.
TEST_F(GemmOnGpu, f32_bits_equal_the_emulation_in_every_recipe_and_mode) {
  std::vector<std::jthread> threads;
  std::uint64_t seed = 20261129;
  for (const ScaleRecipe recipe : kRecipes) {
    for (const Accumulation accumulation : accumulations(recipe)) {
      threads.emplace_back(try_shapes, recipe, accumulation, seed++);
    }
  }
}

TEST_F(GemmOnGpu, outputs_of_16_bits_are_the_rounded_f32_result) {
  for (const DType d : {DType::kBF16, DType::kF16}) {
    for (const ScaleRecipe recipe : kRecipes) {
      for (const std::int64_t n : {8, 129, 520}) {
        expect_equal_bits({.m = 131, .n = n, .k = 400, .d = d, .recipe = recipe, .bias = n == 520});
      }
    }
  }
}

TEST_F(GemmOnGpu, more_tiles_than_multiprocessors_and_every_tile_edge) {
  for (const std::int64_t m : {127, 128, 129, 255, 256, 257, 2100}) {
    for (const std::int64_t n : {255, 256, 257, 2304}) {
      expect_equal_bits({.m = m, .n = n, .k = 640, .recipe = ScaleRecipe::kBlock, .seed = 5});
    }
  }
}

TEST_F(GemmOnGpu, batches) {
  for (const ScaleRecipe recipe : kRecipes) {
    expect_equal_bits({.m = 70, .n = 144, .k = 272, .batch = 3, .recipe = recipe});
  }
}

TEST_F(GemmOnGpu, scales_in_m_major_layout_are_read_in_place) {
  GemmData data({.m = 260, .n = 256, .k = 512, .recipe = ScaleRecipe::kBlock});
  GemmProblem problem = data.problem();
  // The same values with rows and columns exchanged in memory.
  HostTensor m_major(DType::kF32, {4, 260});
  for (std::int64_t row = 0; row < 260; ++row) {
    for (std::int64_t block = 0; block < 4; ++block) {
      m_major.set(block * 260 + row, data.a_scale.at(row * 4 + block));
    }
  }
  problem.a_scale = transposed(TensorView(m_major.view()), 0, 1);
  expect_equal_bits(data, problem);
}

TEST_F(GemmOnGpu, outputs_that_tma_cannot_write) {
  GemmData data({.m = 130, .n = 200, .k = 256, .recipe = ScaleRecipe::kBlock});
  HostTensor wide(DType::kF32, {130, 203});
  wide.fill_bytes(0xFF);
  GemmProblem problem = data.problem();
  problem.d = wide.view();
  problem.d.shape[1] = 200;
  problem.d.data = static_cast<float*>(problem.d.data) + 3;
  expect_equal_bits(data, problem);
}

TEST_F(GemmOnGpu, the_callers_workspace_is_used_and_must_be_large_enough) {
  GemmData data({.m = 130, .n = 256, .k = 256, .recipe = ScaleRecipe::kBlock});
  GemmProblem host = data.problem();
  const DeviceGemm device(host);
  Execution execution{.backend = "cuda"};
  const std::size_t needed = workspace_bytes(device.problem, execution);
  ASSERT_GT(needed, 0U);
  const cuda::DevicePointer workspace = Gpu::instance().allocate(needed);
  execution.workspace = reinterpret_cast<void*>(workspace);
  execution.workspace_bytes = needed - 1;
  EXPECT_THROW((void)gemm(device.problem, execution), Error);
  execution.workspace_bytes = needed;
  (void)gemm(device.problem, execution);
  Gpu::instance().synchronize();
  Gpu::instance().free(workspace);
  (void)gemm(host, kEmulated);
  const std::vector<std::uint8_t> got = device.d.bytes();
  EXPECT_EQ(std::memcmp(got.data(), host.d.data, got.size()), 0);
}

TEST_F(GemmOnGpu, what_is_not_served_is_refused_with_reasons) {
  GemmData data({.m = 4, .n = 8, .k = 24});  // rows of 24 bytes
  const GemmProblem host = data.problem();
  const DeviceGemm device(host);
  try {
    (void)gemm(device.problem, {.backend = "cuda"});
    FAIL() << "rows of 24 bytes were taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("16 bytes"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace octavo::test
