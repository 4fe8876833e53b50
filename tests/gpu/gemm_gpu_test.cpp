// SPDX-License-Identifier: Apache-2.0
// Products on a GPU against the CPU's emulated numerics, bit for bit.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gemm_on_gpu.hpp"

namespace octavo::test {
namespace {

// Modes that a recipe has.
std::vector<Accumulation> accumulations(ScaleRecipe recipe) {
  if (is_block_scaled(recipe)) return {Accumulation::kPromoted};
  return {Accumulation::kPromoted, Accumulation::kFast};
}

// 60 shapes of one recipe and mode: extents of any parity that straddle tiles and clusters, and in
// turn the FP8 types, bias, accumulation into D, UE8M0 scales, and Gaussian, all-positive and
// arbitrary data. Two of three have operands that the kernel cannot read in place, at any address;
// one of three a D that it cannot write. `num_odd` counts shapes with an odd extent.
void try_shapes(ScaleRecipe recipe, Accumulation accumulation, std::uint64_t seed,
                std::atomic<int>& num_odd) {
  std::mt19937_64 random(seed);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  const auto draw_layout = [&](const auto& layouts) {
    return layouts[static_cast<std::size_t>(draw(0, std::ssize(layouts) - 1))];
  };
  constexpr int kShapes = 60;
  for (int i = 0; i < kShapes; ++i) {
    GemmSpec spec;
    spec.m = draw(1, i % 4 == 0 ? 700 : 150);
    spec.n = draw(1, i % 4 == 1 ? 900 : 300);
    spec.k = draw(1, i % 4 == 2 ? 3200 : 960);
    if (spec.m % 2 + spec.n % 2 + spec.k % 2 > 0) ++num_odd;
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
    GemmData data(spec);
    GemmProblem problem = data.problem();
    const bool is_dense = i % 3 == 0;
    const Layout layout_a = is_dense ? Layout::kDense : draw_layout(kLayouts);
    const Layout layout_b = is_dense ? Layout::kDense : draw_layout(kLayouts);
    const Layout layout_d = i % 3 == 1 ? draw_layout(kOutputLayouts) : Layout::kDense;
    LaidOut a(spec.a, 0, spec.m, spec.k, layout_a);
    LaidOut b(spec.b, 0, spec.n, spec.k, layout_b);
    LaidOut d(spec.d, 0, spec.m, spec.n, layout_d);
    randomize(a.memory(), spec.data, random);
    randomize(b.memory(), spec.data, random);
    randomize(d.memory(), Data::kGaussian, random);
    problem.a = a.view();
    problem.b = b.view();
    problem.d = d.view();
    const Shifts shifts = is_dense ? Shifts{} : Shifts{random() % 16, random() % 16};
    expect_equal_bits(spec, problem, shifts,
                      std::string("; a ") + to_string(layout_a) + ", b " + to_string(layout_b) +
                          ", d " + to_string(layout_d) + ", shifts " + std::to_string(shifts.a) +
                          ", " + std::to_string(shifts.b));
    if (testing::Test::HasFailure()) return;
  }
}

// 8 modes, 480 products. A thread for each mode: most of the time goes into compiling the kernels,
// and the library promises to serve many threads at once.
TEST_F(GemmOnGpu, f32_bits_equal_the_emulation_in_every_recipe_and_mode) {
  std::atomic<int> num_odd{0};
  {
    std::vector<std::jthread> threads;
    std::uint64_t seed = 20261129;
    for (const ScaleRecipe recipe : kRecipes) {
      for (const Accumulation accumulation : accumulations(recipe)) {
        threads.emplace_back(try_shapes, recipe, accumulation, seed++, std::ref(num_odd));
      }
    }
  }
  constexpr int kHalf = 240;
  EXPECT_TRUE(HasFailure() || num_odd >= kHalf) << num_odd;
}

TEST_F(GemmOnGpu, outputs_of_16_bits_are_the_rounded_f32_result) {
  std::vector<std::jthread> threads;
  for (const DType d : {DType::kBF16, DType::kF16}) {
    for (const ScaleRecipe recipe : kRecipes) {
      threads.emplace_back([d, recipe] {
        for (const std::int64_t n : {8, 129, 520}) {
          expect_equal_bits(
              {.m = 131, .n = n, .k = 400, .d = d, .recipe = recipe, .bias = n == 520});
        }
      });
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
  expect_equal_bits(data.spec, problem);
}

TEST_F(GemmOnGpu, outputs_that_tma_cannot_write) {
  GemmData data({.m = 130, .n = 200, .k = 256, .recipe = ScaleRecipe::kBlock});
  HostTensor wide(DType::kF32, {130, 203});
  wide.fill_bytes(0xFF);
  GemmProblem problem = data.problem();
  problem.d = wide.view();
  problem.d.shape[1] = 200;
  problem.d.data = static_cast<float*>(problem.d.data) + 3;
  expect_equal_bits(data.spec, problem);
}

// TMA writes whole 16 bytes: what follows a row in a wider tensor must stay.
TEST_F(GemmOnGpu, rows_that_end_within_16_bytes_in_a_wider_tensor) {
  for (const std::int64_t n : {1, 15, 71, 126, 129}) {
    const GemmSpec spec{.m = 130, .n = n, .k = 256, .recipe = ScaleRecipe::kRow};
    GemmData data(spec);
    HostTensor wide(DType::kF32, {130, 256});
    wide.fill(7.0F);
    GemmProblem problem = data.problem();
    problem.d = wide.view();
    problem.d.shape[1] = n;
    expect_equal_bits(spec, problem);
  }
}

TEST_F(GemmOnGpu, the_callers_workspace_is_used_and_must_be_large_enough) {
  GemmData data({.m = 130, .n = 256, .k = 257, .recipe = ScaleRecipe::kBlock});
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
  EXPECT_TRUE(same_output(device, host, "the caller's workspace"));
}

TEST_F(GemmOnGpu, what_is_not_served_is_refused_with_reasons) {
  GemmData data({.m = 4, .n = 8, .k = 256, .b = DType::kBF16});
  const GemmProblem host = data.problem();
  const DeviceGemm device(host);
  try {
    (void)gemm(device.problem, {.backend = "cuda"});
    FAIL() << "a bf16 operand was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("FP8 operands only"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace octavo::test
