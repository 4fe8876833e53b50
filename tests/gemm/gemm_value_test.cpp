// SPDX-License-Identifier: Apache-2.0
// Products of special values, layouts and scales, in every way the CPU computes.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "gemm/gemm_sample.hpp"
#include "octavo/gemm.hpp"
#include "octavo/metrics.hpp"
#include "octavo/quantize.hpp"
#include "support/bit_comparison.hpp"
#include "support/denormal_mode.hpp"
#include "support/gemm_data.hpp"

namespace octavo::test {
namespace {

using GemmValues = Gemm;
INSTANTIATE_TEST_SUITE_P(Cpu, GemmValues, ::testing::ValuesIn(kEveryNumerics), numerics_name);

// The same values in memory with a stride for each dimension.
HostTensor laid_out(const TensorView& from, std::int64_t row_stride, std::int64_t col_stride,
                    std::uint8_t gap) {
  const std::int64_t last = (from.shape[0] - 1) * row_stride + (from.shape[1] - 1) * col_stride;
  HostTensor to(from.dtype, {last + 1});
  to.fill_bytes(gap);
  for (std::int64_t i = 0; i < from.shape[0]; ++i) {
    for (std::int64_t j = 0; j < from.shape[1]; ++j) {
      to.set(i * row_stride + j * col_stride,
             load_element(from.data, from.dtype, i * from.strides[0] + j * from.strides[1]));
    }
  }
  return to;
}

// Row 1 of A is zeros, and so is the second scale block of row 2, whose products are then those of
// the first block alone.
TEST_P(GemmValues, C01_zero_rows_multiply_to_zero) {
  constexpr std::int64_t kDepth = 256;
  for (const ScaleRecipe recipe :
       {ScaleRecipe::kTensor, ScaleRecipe::kRow, ScaleRecipe::kBlock1d}) {
    for (const DType scale_dtype : {DType::kF32, DType::kUE8M0}) {
      GemmData data({.m = 4, .n = 70, .k = kDepth, .recipe = recipe, .scale = scale_dtype});
      HostTensor x(DType::kBF16, {4, kDepth});
      std::mt19937_64 random(101);
      randomize(x, Data::kGaussian, random);
      for (std::int64_t i = 0; i < kDepth; ++i) x.set(kDepth + i, 0);
      for (std::int64_t i = kScaleBlock; i < kDepth; ++i) x.set(2 * kDepth + i, 0);
      QuantizeProblem rounding;
      rounding.x = x.view();
      rounding.q = data.a.view();
      rounding.granularity = a_granularity(recipe);
      rounding.scale = data.a_scale.view();
      quantize(rounding);
      gemm(data.problem(), execution());
      const HostTensor whole = data.d;
      for (std::int64_t col = 0; col < 70; ++col) ASSERT_EQ(whole.at(70 + col), 0.0F) << col;
      // Whatever those zeros are multiplied by.
      for (std::int64_t n = 0; n < 70; ++n) {
        for (std::int64_t i = kScaleBlock; i < kDepth; ++i) data.b.set(n * kDepth + i, 1.0F);
      }
      gemm(data.problem(), execution());
      for (std::int64_t col = 0; col < 70; ++col) {
        ASSERT_EQ(data.d.at(2 * 70 + col), whole.at(2 * 70 + col)) << col;
      }
    }
  }
}

TEST_P(GemmValues, C06_subnormal_codes_have_their_values) {
  constexpr std::int64_t kDepth = 256;
  HostTensor a(DType::kE4M3, {8, kDepth});
  HostTensor b(DType::kE4M3, {3, kDepth});
  HostTensor d(DType::kF32, {8, 3});
  b.fill(1.0F);
  for (std::int64_t row = 0; row < 8; ++row) {
    for (std::int64_t k = 0; k < kDepth; ++k) {
      const auto code = static_cast<std::uint8_t>(row == 7 ? k % 8 : row + 1);
      a.bytes()[static_cast<std::size_t>(row * kDepth + k)] = code;
    }
  }
  GemmProblem problem;
  problem.a = a.view();
  problem.b = b.view();
  problem.d = d.view();
  gemm(problem, execution());
  for (std::int64_t row = 0; row < 8; ++row) {
    // 256 * m * 2^-9, and 32 of each m on the mixed row: exact in every way of adding.
    const float want = row == 7 ? 32 * 28 * 0x1p-9F : 256 * static_cast<float>(row + 1) * 0x1p-9F;
    for (std::int64_t col = 0; col < 3; ++col) EXPECT_EQ(d.at(row * 3 + col), want) << row;
  }
}

TEST_P(GemmValues, C07_nan_and_inf_reach_their_outputs_and_no_other) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const ScaleRecipe recipe :
       {ScaleRecipe::kTensor, ScaleRecipe::kRow, ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    const GemmSpec spec{.m = 8, .n = 70, .k = 256, .a = DType::kE5M2, .recipe = recipe};
    GemmData clean(spec);
    // No zero in B: Inf * 0 would be NaN.
    for (std::uint8_t& code : clean.b.bytes()) code |= 0x08;
    GemmData bad = clean;
    bad.a.set(3 * 256 + 7, std::numeric_limits<float>::quiet_NaN());
    bad.a.bytes()[5 * 256 + 200] = 0x7C;  // +Inf: encoding saturates, so the code is written
    bad.a.bytes()[6 * 256 + 1] = 0xFC;
    bad.b.bytes()[11 * 256 + 5] = 0x7F;
    gemm(clean.problem(), execution());
    gemm(bad.problem(), execution());
    for (std::int64_t row = 0; row < 8; ++row) {
      for (std::int64_t col = 0; col < 70; ++col) {
        const float got = bad.d.at(row * 70 + col);
        if (row == 3 || col == 11) {
          EXPECT_EQ(std::bit_cast<std::uint32_t>(got), kCanonicalNan) << row << ", " << col;
        } else if (row == 5 || row == 6) {
          const std::int64_t k = row == 5 ? 200 : 1;
          const float sign = bad.b.at(col * 256 + k) > 0 ? 1.0F : -1.0F;
          EXPECT_EQ(got, (row == 5 ? sign : -sign) * infinity);
        } else {
          EXPECT_EQ(got, clean.d.at(row * 70 + col)) << row << ", " << col;
        }
      }
    }
  }
}

// What a quantizer writes with the dequantization scale, amax / 448, and what one that inverts it
// would: a relative error tells them apart, an absolute one cannot.
TEST_P(GemmValues, C10_scales_multiply) {
  HostTensor exact_a(DType::kF32, {64, 256});
  HostTensor exact_b(DType::kF32, {64, 256});
  std::mt19937_64 random(10);
  randomize(exact_a, Data::kGaussian, random);
  randomize(exact_b, Data::kGaussian, random);
  HostTensor want(DType::kF32, {64, 64});
  GemmProblem exact;
  exact.a = exact_a.view();
  exact.b = exact_b.view();
  exact.d = want.view();
  gemm(exact, on_cpu(Numerics::kReference));

  const auto quantized_error = [&](auto scale_of_amax) {
    HostTensor a(DType::kE4M3, {64, 256});
    HostTensor b(DType::kE4M3, {64, 256});
    HostTensor scale_a(DType::kF32, {1});
    HostTensor scale_b(DType::kF32, {1});
    const auto quantize_tensor = [&](const HostTensor& from, HostTensor& to, HostTensor& scale) {
      float amax = 0;
      for (std::int64_t i = 0; i < from.size(); ++i) amax = std::max(amax, std::fabs(from.at(i)));
      scale.set(0, scale_of_amax(amax));
      for (std::int64_t i = 0; i < from.size(); ++i) to.set(i, from.at(i) / scale.at(0));
    };
    quantize_tensor(exact_a, a, scale_a);
    quantize_tensor(exact_b, b, scale_b);
    HostTensor d(DType::kF32, {64, 64});
    GemmProblem problem;
    problem.a = a.view();
    problem.b = b.view();
    problem.d = d.view();
    problem.recipe = ScaleRecipe::kTensor;
    problem.a_scale = scale_a.view();
    problem.b_scale = scale_b.view();
    gemm(problem, execution());
    return compare(d.view(), want.view()).relative_frobenius;
  };
  EXPECT_LE(quantized_error([](float amax) { return amax / 448; }), 0.05);
  // A scale of the caller's, far from the data's: coarse, still the right size.
  EXPECT_LE(quantized_error([](float amax) { return 100 * amax / 448; }), 0.05);
  EXPECT_GE(quantized_error([](float amax) { return 448 / amax; }), 0.05);
}

TEST_P(GemmValues, C10_given_scales_of_100_multiply_the_product) {
  const GemmSpec spec{.m = 5, .n = 66, .k = 256, .recipe = ScaleRecipe::kTensor};
  GemmData unit(spec);
  unit.a_scale.set(0, 1);
  unit.b_scale.set(0, 1);
  GemmData hundred = unit;
  hundred.a_scale.set(0, 100);
  gemm(unit.problem(), execution());
  gemm(hundred.problem(), execution());
  for (std::int64_t i = 0; i < unit.d.size(); ++i) {
    EXPECT_FLOAT_EQ(hundred.d.at(i), 100 * unit.d.at(i));
  }
}

TEST_P(GemmValues, C17_slices_and_broadcasts_equal_their_copies) {
  const GemmSpec spec{.m = 64, .n = 40, .k = 256, .recipe = ScaleRecipe::kRow};
  GemmData data(spec);
  gemm(data.problem(), execution());
  struct Strides {
    std::int64_t row, col;
  };
  // Columns 128-383 of 512; row stride K + 1; transposed; no stride of 1.
  for (const Strides strides :
       {Strides{512, 1}, Strides{257, 1}, Strides{1, 64}, Strides{700, 2}}) {
    const HostTensor a = laid_out(data.a.view(), strides.row, strides.col, 0x7F);
    HostTensor d(DType::kF32, {64, 40});
    GemmProblem problem = data.problem();
    problem.a.data = a.bytes().data();
    problem.a.strides = {strides.row, strides.col};
    problem.d = d.view();
    gemm(problem, execution());
    EXPECT_TRUE(same_bits(d.view(), data.d.view(), repeat_line(spec, GetParam())))
        << strides.row << ", " << strides.col;
  }
  // One row and its scale as all 64.
  GemmProblem broadcast = data.problem();
  HostTensor d(DType::kF32, {64, 40});
  broadcast.a.strides[0] = broadcast.a_scale.strides[0] = 0;
  broadcast.d = d.view();
  gemm(broadcast, execution());
  for (std::int64_t i = 0; i < d.size(); ++i) ASSERT_EQ(d.at(i), data.d.at(i % 40));
}

TEST_P(GemmValues, C17_batched_slices_equal_their_copies) {
  // [2, 5, 256] out of [2, 8, 256]: the batch stride is not rows * K.
  const GemmSpec spec{.m = 8, .n = 33, .k = 256, .batch = 2, .recipe = ScaleRecipe::kBlock1d};
  GemmData data(spec);
  gemm(data.problem(), execution());
  GemmProblem problem = data.problem();
  HostTensor d(DType::kF32, {2, 5, 33});
  problem.a.data = static_cast<const std::uint8_t*>(problem.a.data) + 3 * 256;
  problem.a.shape[1] = problem.a_scale.shape[1] = 5;
  problem.a_scale.data = static_cast<const float*>(problem.a_scale.data) + 3 * 2;
  problem.d = d.view();
  gemm(problem, execution());
  TensorView rows = data.d.view();
  rows.data = static_cast<const float*>(rows.data) + 3 * 33;
  rows.shape[1] = 5;
  EXPECT_TRUE(same_bits(d.view(), rows, repeat_line(spec, GetParam())));
}

TEST_P(GemmValues, C29_every_stride_combination_of_square_operands) {
  const GemmSpec spec{.m = 256, .n = 256, .k = 256, .recipe = ScaleRecipe::kBlock};
  GemmData data(spec);
  gemm(data.problem(), execution());
  EXPECT_LE(sampled_error(data.problem()), promoted_bound(GetParam(), spec.data));
  const HostTensor b_columns = laid_out(data.b.view(), 1, 256, 0x7F);
  const HostTensor b_padded = laid_out(data.b.view(), 256 + 16, 1, 0x7F);
  const HostTensor a_columns = laid_out(data.a.view(), 1, 256, 0x7F);
  const auto with = [&](const HostTensor* a, const HostTensor* b, std::int64_t b_row,
                        std::int64_t b_col) {
    HostTensor d(DType::kF32, {256, 256});
    GemmProblem problem = data.problem();
    if (a != nullptr) {
      problem.a.data = a->bytes().data();
      problem.a.strides = {1, 256};
    }
    problem.b.data = b->bytes().data();
    problem.b.strides = {b_row, b_col};
    problem.d = d.view();
    gemm(problem, execution());
    return d;
  };
  const auto expect_same = [&](const HostTensor& d) {
    EXPECT_TRUE(same_bits(d.view(), data.d.view(), repeat_line(spec, GetParam())));
  };
  expect_same(with(nullptr, &b_columns, 1, 256));
  expect_same(with(nullptr, &b_padded, 272, 1));
  expect_same(with(&a_columns, &data.b, 256, 1));
  expect_same(with(&a_columns, &b_columns, 1, 256));
  // Reading B as its transpose is another product.
  EXPECT_GT(compare(with(nullptr, &data.b, 1, 256).view(), data.d.view()).relative_frobenius, 0.5);
}

// Where two readings of one scale tensor are possible they give the same product.
TEST_P(GemmValues, C31_ambiguous_scale_shapes_agree) {
  GemmSpec spec{.m = 1, .n = 64, .k = 128, .recipe = ScaleRecipe::kRow};
  GemmData row(spec);
  for (std::int64_t i = 0; i < row.b_scale.size(); ++i) row.b_scale.set(i, 0.75F);
  gemm(row.problem(), execution());
  const auto with_recipe = [&](ScaleRecipe recipe, std::int64_t b_rows) {
    HostTensor d(DType::kF32, {1, 64});
    GemmProblem problem = row.problem();
    problem.recipe = recipe;
    problem.d = d.view();
    for (TensorView* scale : {&problem.a_scale, &problem.b_scale}) {
      scale->rank = recipe == ScaleRecipe::kTensor ? 1 : 2;
      scale->shape = {1, 1};
      scale->strides = {1, 1};
    }
    problem.b_scale.shape[0] = b_rows;
    gemm(problem, execution());
    return d;
  };
  // One scale for A and equal scales for B: every recipe is the same product up to where it rounds.
  for (const HostTensor& d :
       {with_recipe(ScaleRecipe::kTensor, 1), with_recipe(ScaleRecipe::kBlock, 1),
        with_recipe(ScaleRecipe::kBlock1d, 64)}) {
    EXPECT_LE(compare(d.view(), row.d.view()).relative_frobenius, 1e-7);
  }
}

TEST_P(GemmValues, C45_rows_behind_m_are_never_read) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kRow}) {
    const GemmSpec spec{.m = 128, .n = 72, .k = 256, .recipe = recipe};
    GemmData zero_padded(spec);
    GemmData nan_padded(spec);
    for (GemmData* data : {&zero_padded, &nan_padded}) {
      const bool nan = data == &nan_padded;
      for (std::int64_t i = 7 * 256; i < data->a.size(); ++i) {
        data->a.bytes()[static_cast<std::size_t>(i)] = nan ? 0x7F : 0x00;
      }
      const std::int64_t per_row = data->a_scale.size() / 128;
      for (std::int64_t i = 7 * per_row; i < data->a_scale.size(); ++i) {
        data->a_scale.set(i, !nan         ? 1.0F
                             : i % 2 == 0 ? std::numeric_limits<float>::infinity()
                                          : std::numeric_limits<float>::quiet_NaN());
      }
      GemmProblem problem = data->problem();
      problem.a.shape[0] = problem.a_scale.shape[0] = problem.d.shape[0] = 7;
      gemm(problem, execution());
    }
    // All of D: rows 7 and up keep what was there.
    EXPECT_EQ(nan_padded.d.bytes(), zero_padded.d.bytes());
    for (std::int64_t i = 0; i < 7 * 72; ++i) ASSERT_TRUE(std::isfinite(nan_padded.d.at(i)));
    for (std::int64_t i = 7 * 72; i < 128 * 72; ++i) ASSERT_TRUE(std::isnan(nan_padded.d.at(i)));
  }
}

// FP32 subnormals are numbers here, whatever mode the calling thread is in.
TEST_P(GemmValues, SubnormalsAreKeptForACallerThatFlushesThem) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kRow, ScaleRecipe::kBlock}) {
    GemmData data({.m = 70, .n = 70, .k = 128, .recipe = recipe});
    for (std::int64_t i = 0; i < data.a_scale.size(); ++i) data.a_scale.set(i, 0x1p-60F);
    for (std::int64_t i = 0; i < data.b_scale.size(); ++i) data.b_scale.set(i, 0x1p-75F);
    gemm(data.problem(), execution());
    const HostTensor kept = data.d;
    int num_subnormal = 0;
    for (std::int64_t i = 0; i < kept.size(); ++i) {
      num_subnormal += std::fpclassify(kept.at(i)) == FP_SUBNORMAL ? 1 : 0;
    }
    EXPECT_GT(num_subnormal, 4000);
    {
      const FlushDenormals flush;
      gemm(data.problem(), execution());
    }
    EXPECT_EQ(data.d.bytes(), kept.bytes());
  }
}

// Every output type is one rounding of the same sum; BF16 after FP32 would round twice.
TEST(ReferenceGemm, RoundsOnce) {
  // 1 + 2^-8 is a tie between two BF16 numbers and 2^-40 decides it, but not through FP32.
  const float a[] = {1.0F, 0x1p-8F, 0x1p-40F};
  const float b[] = {1.0F, 1.0F, 1.0F};
  HostTensor d(DType::kBF16, {1, 1});
  GemmProblem problem;
  problem.a = make_view(a, DType::kF32, {1, 3});
  problem.b = make_view(b, DType::kF32, {1, 3});
  problem.d = d.view();
  gemm(problem, on_cpu(Numerics::kReference));
  EXPECT_EQ(d.at(0), 1 + 0x1p-7F);
}

TEST(ReferenceGemm, EveryMixOfTypesIsTheLiteralSum) {
  constexpr DType kValueTypes[] = {DType::kE4M3, DType::kE5M2, DType::kBF16, DType::kF16,
                                   DType::kF32};
  for (const DType a : kValueTypes) {
    for (const DType b : kValueTypes) {
      for (const DType d : kValueTypes) {
        const GemmSpec spec{
            .m = 17,
            .n = 18,
            .k = 150,
            .batch = 2,
            .a = a,
            .b = b,
            .d = d,
            .recipe = is_fp8(a) || is_fp8(b) ? ScaleRecipe::kBlock : ScaleRecipe::kNone,
            .scale = DType::kUE8M0,
            .bias = true,
            .bias_dtype = DType::kF16,
            .d_scale = is_fp8(d)};
        GemmData data(spec);
        gemm(data.problem(), on_cpu(Numerics::kReference));
        const GemmProblem problem = data.problem();
        // One rounding: half a step of the type, relative to the element or at its least.
        const double step = d == DType::kE4M3   ? 0x1p-4
                            : d == DType::kE5M2 ? 0x1p-3
                            : d == DType::kBF16 ? 0x1p-8
                            : d == DType::kF16  ? 0x1p-11
                                                : 0x1p-24;
        const double least = d == DType::kE4M3 ? 0x1p-10 : d == DType::kE5M2 ? 0x1p-17 : 0x1p-25;
        for (std::int64_t i = 0; i < data.d.size(); ++i) {
          const double want = literal_fp64(problem, {}, i / (17 * 18), i / 18 % 17, i % 18);
          if (is_fp8(d) && std::abs(want) > max_finite_fp8(d)) {
            ASSERT_EQ(std::abs(data.d.at(i)), max_finite_fp8(d));
          } else {
            ASSERT_NEAR(data.d.at(i), want, std::max(step * std::abs(want), least) * (1 + 1e-9))
                << repeat_line(spec, Numerics::kReference);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
