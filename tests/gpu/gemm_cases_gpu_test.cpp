// SPDX-License-Identifier: Apache-2.0
// Products that went wrong elsewhere (tests/README.md), on a GPU. FP32 outputs, bit for bit.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "gpu/gemm_on_gpu.hpp"

namespace octavo::test {
namespace {

// What a problem in device memory gives, as floats of D's memory.
std::vector<float> run_on_gpu(const DeviceGemm& device) {
  Gpu::instance().synchronize();
  (void)gemm(device.problem, {.backend = "cuda"});
  Gpu::instance().synchronize();
  const std::vector<std::uint8_t> bytes = device.d.bytes();
  std::vector<float> values(bytes.size() / sizeof(float));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(float));
  return values;
}

TEST_F(GemmOnGpu, C32_long_k_stays_right_by_default) {
  constexpr std::int64_t kLongK = 262144;
  constexpr double kExact = 1.125 * static_cast<double>(kLongK);
  constexpr double kTolerance = 1e-3;
  GemmSpec spec{.m = 64, .n = 64, .k = kLongK};
  GemmData data(spec);
  for (std::int64_t i = 0; i < data.a.size(); ++i) data.a.set(i, 1.0F);
  for (std::int64_t i = 0; i < data.b.size(); ++i) data.b.set(i, 1.125F);
  GemmProblem problem = data.problem();
  for (const float value : run_on_gpu(DeviceGemm(problem))) {
    ASSERT_NEAR(value, kExact, kExact * kTolerance);
  }
  // Asked for by name, one tensor-core accumulator through all of K: its 13 fraction bits stick.
  problem.accumulation = Accumulation::kFast;
  spec.accumulation = Accumulation::kFast;
  expect_equal_bits(spec, problem);
  EXPECT_LT(data.d.at(0), kExact / 2);
}

// Shapes at which kernels of others crashed, and random ones from the same range, cut where the
// emulation would take minutes.
TEST_F(GemmOnGpu, C34_shapes_that_crashed_others) {
  expect_equal_bits({.m = 1536, .n = 256, .k = 2048, .recipe = ScaleRecipe::kBlock});
  expect_equal_bits({.m = 512, .n = 1024, .k = 147456, .recipe = ScaleRecipe::kBlock});
  expect_equal_bits({.m = 32, .n = 8192, .k = 8192, .recipe = ScaleRecipe::kBlock});
  std::mt19937_64 random(34);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random);
  };
  constexpr int kShapes = 20;
  for (int i = 0; i < kShapes && !HasFailure(); ++i) {
    expect_equal_bits({.m = draw(1, 4096),
                       .n = 8 * draw(8, 128),
                       .k = 16 * draw(8, 128),
                       .recipe = ScaleRecipe::kBlock,
                       .seed = random()});
  }
}

TEST_F(GemmOnGpu, C35_a_row_has_the_same_bits_in_every_batch) {
  constexpr std::int64_t kRows = 257;
  constexpr std::int64_t kN = 4096;
  constexpr std::int64_t kK = 7168;
  for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kRow}) {
    GemmData data({.m = kRows, .n = kN, .k = kK, .recipe = recipe});
    const std::vector<float> all = run_on_gpu(DeviceGemm(data.problem()));
    for (const std::int64_t m : {1, 8, 31, 32, 64}) {
      for (const std::int64_t first : {std::int64_t{0}, kRows - m}) {
        HostTensor d(DType::kF32, {m, kN});
        GemmProblem problem = data.problem();
        problem.a.shape[0] = problem.a_scale.shape[0] = m;
        problem.a.data = static_cast<const std::uint8_t*>(problem.a.data) + first * kK;
        problem.a_scale.data =
            static_cast<const float*>(problem.a_scale.data) + first * problem.a_scale.strides[0];
        problem.d = d.view();
        const std::vector<float> rows = run_on_gpu(DeviceGemm(problem));
        ASSERT_EQ(rows.size(), static_cast<std::size_t>(m * kN));
        ASSERT_EQ(std::memcmp(rows.data(), all.data() + first * kN, rows.size() * sizeof(float)), 0)
            << to_string(recipe) << " M=" << m << " from row " << first;
      }
    }
  }
}

TEST_F(GemmOnGpu, C45_rows_behind_m_are_never_read) {
  constexpr std::int64_t kBuffer = 128;
  constexpr std::int64_t kValid = 7;
  constexpr std::int64_t kK = 512;
  constexpr int kNan = 0x7F;
  for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kRow}) {
    const GemmSpec spec{.m = kBuffer, .n = 200, .k = kK, .recipe = recipe};
    GemmData data(spec);
    std::memset(data.a.bytes().data() + kValid * kK, kNan, (kBuffer - kValid) * kK);
    const std::int64_t scales_a_row = data.a_scale.size() / kBuffer;
    for (std::int64_t i = kValid * scales_a_row; i < data.a_scale.size(); ++i) {
      data.a_scale.set(i, i % 2 == 0 ? std::numeric_limits<float>::infinity()
                                     : std::numeric_limits<float>::quiet_NaN());
    }
    GemmProblem host = data.problem();
    DeviceGemm device(host);  // the whole buffer
    for (GemmProblem* problem : {&host, &device.problem}) {
      problem->a.shape[0] = problem->a_scale.shape[0] = problem->d.shape[0] = kValid;
    }
    Gpu::instance().synchronize();
    (void)gemm(device.problem, {.backend = "cuda"});
    Gpu::instance().synchronize();
    (void)gemm(host, kEmulated);
    EXPECT_TRUE(same_output(device, host, repeat_line(spec, Numerics::kEmulated)));
  }
}

}  // namespace
}  // namespace octavo::test
