// SPDX-License-Identifier: Apache-2.0
// Products of awkward shapes: empty, ragged, long and sharded, in every way the CPU computes.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "gemm/gemm_sample.hpp"
#include "octavo/gemm.hpp"
#include "octavo/metrics.hpp"
#include "support/bit_comparison.hpp"
#include "support/gemm_data.hpp"
#include "support/test_level.hpp"

namespace octavo::test {
namespace {

INSTANTIATE_TEST_SUITE_P(Cpu, Gemm, ::testing::ValuesIn(kEveryNumerics), numerics_name);

constexpr ScaleRecipe kScaledRecipes[] = {ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                          ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};

// Whether this way of computing gets a case's own, large sizes; the slow ones only in level full.
bool own_sizes(Numerics numerics) { return full_level() || numerics == Numerics::kBlocked; }

TEST_P(Gemm, C22_zero_m_or_zero_n_writes_nothing) {
  for (const ScaleRecipe recipe : kScaledRecipes) {
    for (const bool zero_m : {true, false}) {
      GemmData data({.m = zero_m ? 0 : 5, .n = zero_m ? 256 : 0, .k = 512, .recipe = recipe});
      GemmProblem problem = data.problem();
      // D is empty, but there is memory where it would be.
      HostTensor around(DType::kF32, {5 * 256});
      around.fill(7);
      const std::vector<std::uint8_t> before = around.bytes();
      problem.d.data = around.bytes().data();
      EXPECT_EQ(gemm(problem, execution()).backend, "cpu");
      EXPECT_EQ(around.bytes(), before) << to_string(recipe);
    }
  }
}

TEST_P(Gemm, C22_zero_k_writes_zeros_or_leaves_d) {
  for (const ScaleRecipe recipe : kScaledRecipes) {
    for (const float before : {7.0F, std::numeric_limits<float>::quiet_NaN(), -0.0F}) {
      GemmSpec spec{.m = 3, .n = 70, .k = 0, .recipe = recipe};
      GemmData data(spec);
      data.d.fill(before);
      const HostTensor untouched = data.d;
      GemmProblem problem = data.problem();
      problem.output_mode = OutputMode::kAccumulate;
      gemm(problem, execution());
      EXPECT_EQ(data.d.bytes(), untouched.bytes());
      problem.output_mode = OutputMode::kOverwrite;
      gemm(problem, execution());
      HostTensor zeros(DType::kF32, {3, 70});
      EXPECT_TRUE(same_bits(data.d.view(), zeros.view(), repeat_line(spec, GetParam())));
    }
    GemmSpec spec{.m = 3, .n = 70, .k = 0, .recipe = recipe, .bias = true};
    for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
      spec.output_mode = mode;
      GemmData data(spec);
      HostTensor want = data.d;
      for (std::int64_t i = 0; i < want.size(); ++i) {
        const float start = mode == OutputMode::kAccumulate ? want.at(i) : 0.0F;
        want.set(i, start + data.bias.at(i % 70));
      }
      gemm(data.problem(), execution());
      EXPECT_TRUE(same_bits(data.d.view(), want.view(), repeat_line(spec, GetParam())));
    }
  }
}

// M = 8.5 tiles of 128; every scale block has a value of its own.
TEST_P(Gemm, C25_tile_remainder_with_block_scales) {
  struct Shape {
    std::int64_t m, n, k;
  };
  std::vector<Shape> shapes{{136, 200, 1024}, {250, 130, 512}};
  if (own_sizes(GetParam())) shapes = {{1088, 2048, 2048}, {1000, 1000, 1024}};
  for (const Shape& shape : shapes) {
    for (const Data data_kind : {Data::kGaussian, Data::kPositive}) {
      const GemmSpec spec{.m = shape.m,
                          .n = shape.n,
                          .k = shape.k,
                          .recipe = ScaleRecipe::kBlock,
                          .data = data_kind};
      GemmData data(spec);
      const std::int64_t k_blocks = num_scale_blocks(spec.k);
      for (std::int64_t i = 0; i < data.a_scale.size(); ++i) {
        const std::int64_t m = i / k_blocks;
        data.a_scale.set(i,
                         1 + static_cast<float>(m % 7) / 8 + static_cast<float>(i % k_blocks) / 64);
      }
      for (std::int64_t i = 0; i < data.b_scale.size(); ++i) {
        const std::int64_t sum = i / k_blocks + i % k_blocks;
        data.b_scale.set(i, std::ldexp(1.0F, static_cast<int>(sum % 5 - 2)));
      }
      expect_right(spec, data.problem());
    }
  }
}

TEST_P(Gemm, C26_n_not_a_multiple_of_a_tile) {
  for (const std::int64_t n : {1, 8, 16, 24, 64, 72, 192, 576, 1000, 2112}) {
    const GemmSpec spec{.m = n > 600 && !own_sizes(GetParam()) ? 3 : 33,
                        .n = n,
                        .k = 1024,
                        .recipe = ScaleRecipe::kBlock};
    GemmData data(spec);
    EXPECT_TRUE(supports(data.problem(), execution()).front().supported);
    expect_right(spec, data.problem());
  }
  const GemmSpec spec{
      .m = own_sizes(GetParam()) ? 4096 : 2, .n = 7168, .k = 1152, .recipe = ScaleRecipe::kBlock};
  GemmData data(spec);
  expect_right(spec, data.problem());
}

TEST_P(Gemm, C27_k_not_a_multiple_of_16_or_128) {
  for (const std::int64_t k : {1, 16, 48, 64, 112, 128, 144, 192, 712, 767}) {
    for (const std::int64_t m : {1, 50}) {
      for (const std::int64_t n : {15, 16, own_sizes(GetParam()) ? 712 : 80}) {
        for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
          const GemmSpec spec{.m = m, .n = n, .k = k, .recipe = recipe};
          GemmData data(spec);
          expect_right(spec, data.problem());
        }
      }
    }
  }
}

// All products are 1.125: the sum is exact in FP64, within 1e-3 promoted, and sticks at 16,388 in
// an accumulator of 13 fraction bits.
TEST_P(Gemm, C32_long_k_stays_right_by_default) {
  constexpr std::int64_t kDepth = 262144;
  constexpr double kExact = 294912;
  const std::uint8_t one = E4M3::encode(1.0F);
  const std::uint8_t nine_eighths = E4M3::encode(1.125F);
  const std::int64_t extent = GetParam() == Numerics::kReference && !full_level() ? 8 : 64;
  HostTensor d(DType::kF32, {extent, extent});
  GemmProblem problem;
  problem.a = make_view(&one, DType::kE4M3, {extent, kDepth});
  problem.b = make_view(&nine_eighths, DType::kE4M3, {extent, kDepth});
  problem.a.strides = problem.b.strides = {0, 0};
  problem.d = d.view();
  gemm(problem, execution());
  const double bound = GetParam() == Numerics::kEmulated ? 1e-3 * kExact : 0.0;
  for (std::int64_t i = 0; i < d.size(); ++i) ASSERT_NEAR(d.at(i), kExact, bound);
  if (GetParam() != Numerics::kEmulated) return;
  EXPECT_EQ(problem.accumulation, Accumulation::kPromoted);
  problem.accumulation = Accumulation::kFast;
  gemm(problem, execution());
  for (std::int64_t i = 0; i < d.size(); ++i) ASSERT_EQ(d.at(i), 16388.0F);
}

// The first rows of a larger product are the smaller product, bit for bit; a single row may run on
// a blocked kernel of its own, which adds in its own order and says so in its name.
TEST_P(Gemm, C35_a_row_has_the_same_bits_in_every_batch) {
  // Drawing the case's 4096 rows of B takes longer than multiplying by them.
  const std::int64_t n = full_level() ? 4096 : own_sizes(GetParam()) ? 520 : 72;
  const std::int64_t k = own_sizes(GetParam()) ? 7168 : 1920;
  for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kRow}) {
    const GemmSpec spec{.m = 257, .n = n, .k = k, .recipe = recipe};
    GemmData data(spec);
    const std::string kernel = gemm(data.problem(), execution()).kernel;
    for (const std::int64_t m : {1, 2, 8, 31, 32, 64}) {
      for (const std::int64_t first : {std::int64_t{0}, 257 - m}) {
        HostTensor d(DType::kF32, {m, n});
        GemmProblem problem = data.problem();
        problem.a.shape[0] = problem.a_scale.shape[0] = m;
        problem.a.data = static_cast<const std::uint8_t*>(problem.a.data) + first * k;
        problem.a_scale.data =
            static_cast<const float*>(problem.a_scale.data) + first * problem.a_scale.strides[0];
        problem.d = d.view();
        if (gemm(problem, execution()).kernel != kernel) {
          ASSERT_EQ(m, 1);
          ASSERT_EQ(GetParam(), Numerics::kBlocked);
          continue;
        }
        TensorView rows = data.d.view();
        rows.shape[0] = m;
        rows.data = static_cast<const float*>(rows.data) + first * n;
        ASSERT_TRUE(same_bits(d.view(), rows, repeat_line(spec, GetParam()))) << "M=" << m;
      }
    }
  }
}

// W[512, 256] with 128x128 scales over 8 ranks: 64 rows each, two ranks to a scale row.
TEST_P(Gemm, C81_shards_smaller_than_a_scale_block) {
  const GemmSpec spec{.m = 9, .n = 512, .k = 256, .recipe = ScaleRecipe::kBlock};
  GemmData data(spec);
  gemm(data.problem(), execution());
  HostTensor joined(DType::kF32, {9, 512});
  joined.fill_bytes(0xFF);
  for (int rank = 0; rank < 8; ++rank) {
    GemmProblem problem = data.problem();
    problem.b.data = static_cast<const std::uint8_t*>(problem.b.data) + rank * 64 * 256;
    problem.b.shape[0] = 64;
    problem.b_scale.data = static_cast<const float*>(problem.b_scale.data) + rank / 2 * 2;
    problem.b_scale.shape[0] = 1;
    problem.d = joined.view();
    problem.d.data = static_cast<float*>(problem.d.data) + rank * 64;
    problem.d.shape[1] = 64;
    gemm(problem, execution());
  }
  EXPECT_TRUE(same_bits(joined.view(), data.d.view(), repeat_line(spec, GetParam())));

  // K over 4 ranks: 64 columns each, two ranks to a scale column; the parts are added in FP32.
  HostTensor sum(DType::kF32, {9, 512});
  for (int rank = 0; rank < 4; ++rank) {
    GemmProblem problem = data.problem();
    for (TensorView* view : {&problem.a, &problem.b}) {
      view->data = static_cast<const std::uint8_t*>(view->data) + rank * 64;
      view->shape[1] = 64;
    }
    for (TensorView* view : {&problem.a_scale, &problem.b_scale}) {
      view->data = static_cast<const float*>(view->data) + rank / 2;
      view->shape[1] = 1;
    }
    problem.d = sum.view();
    problem.output_mode = OutputMode::kAccumulate;
    gemm(problem, execution());
  }
  EXPECT_LE(compare(sum.view(), data.d.view()).relative_frobenius, 1e-3);
  EXPECT_LE(sampled_error(data.problem()), promoted_bound(GetParam(), spec.data));
}

}  // namespace
}  // namespace octavo::test
