// SPDX-License-Identifier: Apache-2.0
// Inputs that broke other quantizers: zeros, subnormals, NaN and infinities, values out of range,
// shards of different size. Strides: quantize_strides_test.cpp.
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quantize/quantized_matrix.hpp"
#include "support/denormal_mode.hpp"

namespace octavo {
namespace {

using test::Matrix;
using test::Quantized;
using test::Recipe;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename F>
void for_each_recipe(const F& f) {
  for (const ScaleGranularity granularity : test::kGranularities) {
    for (const DType q_dtype : test::kFp8Types) {
      for (const DType scale_dtype : test::kScaleTypes) {
        f(Recipe{granularity, q_dtype, scale_dtype});
      }
    }
  }
}

// An all-zero group gives zero codes and a finite, positive scale, and disturbs no other group.
TEST(Quantize, C01_zero_rows) {
  constexpr std::int64_t kRows = 4;
  constexpr std::int64_t kCols = 256;
  std::vector<float> values = test::normal_values(kRows * kCols, 101);
  std::fill_n(values.begin() + kCols, kCols, 0.0F);
  std::fill_n(values.begin() + 2 * kCols + kScaleBlock, kScaleBlock, 0.0F);
  values[kCols + 5] = -0.0F;
  Matrix x(DType::kBF16, kRows, kCols, values);
  for_each_recipe([&](const Recipe& recipe) {
    Quantized result = test::quantized(x.view(), recipe);
    const Matrix back = test::dequantized(result, recipe.granularity);
    for (std::size_t i = 0; i < result.scale.size(); ++i) {
      ASSERT_TRUE(std::isfinite(result.scale.value(i))) << describe(recipe);
      ASSERT_GT(result.scale.value(i), 0.0F) << describe(recipe);
    }
    for (std::size_t i = 0; i < x.size(); ++i) {
      if (x.value(i) != 0) continue;
      ASSERT_EQ(result.q.code(i), std::signbit(x.value(i)) ? 0x80U : 0x00U) << describe(recipe);
      ASSERT_EQ(back.value(i), 0.0F) << describe(recipe);
    }
    if (recipe.granularity == ScaleGranularity::kTensor) return;
    // Row 3 alone. Its 128x128 groups are shared with other rows, so only the finer ones compare.
    if (recipe.granularity == ScaleGranularity::kBlock128x128) return;
    Matrix row(DType::kBF16, 1, kCols);
    for (std::size_t i = 0; i < kCols; ++i) row.set(i, x.value(3 * kCols + i));
    const Quantized alone = test::quantized(row.view(), recipe);
    for (std::size_t i = 0; i < kCols; ++i) {
      ASSERT_EQ(result.q.code(3 * kCols + i), alone.q.code(i)) << describe(recipe);
    }
  });
}

// Inputs near and below the least normal FP32 number: finite results within the bound, with the
// default floor and with the least one, with denormals kept and with denormals flushed.
void expect_tiny_inputs_survive() {
  std::vector<float> values = test::normal_values(3 * kScaleBlock, 103, 2e-35F);
  for (float& value : values) value = std::clamp(value, -5.7e-35F, 5.7e-35F);
  values[7] = 9.2e-40F;
  for (std::int64_t i = 0; i < kScaleBlock; ++i) {
    values[static_cast<std::size_t>(kScaleBlock + i)] =
        std::ldexp(1.0F, -126 - static_cast<int>(i % 20));
    values[static_cast<std::size_t>(2 * kScaleBlock + i)] =
        std::bit_cast<float>(static_cast<std::uint32_t>(i * 557));  // up to 1e-40
  }
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    Matrix x(dtype, 1, 3 * kScaleBlock, values);
    for_each_recipe([&](Recipe recipe) {
      for (const float floor : {kDefaultAmaxFloor, 0x1p-100F}) {
        recipe.amax_floor = floor;
        Quantized result = test::quantized(x.view(), recipe, 1);
        const Matrix back = test::dequantized(result, recipe.granularity);
        for (std::size_t i = 0; i < result.scale.size(); ++i) {
          ASSERT_TRUE(std::isnormal(result.scale.value(i))) << describe(recipe);
          ASSERT_TRUE(std::isnormal(1.0F / result.scale.value(i))) << describe(recipe);
        }
        const std::uint32_t max_code = recipe.q_dtype == DType::kE4M3 ? 0x7EU : 0x7BU;
        for (std::size_t i = 0; i < x.size(); ++i) {
          ASSERT_LT(result.q.code(i) & 0x7FU, max_code) << describe(recipe);
          ASSERT_TRUE(std::isfinite(back.value(i))) << describe(recipe);
        }
        test::expect_within_bound(x, back, result, recipe);
      }
    });
  }
}

TEST(Quantize, C03_tiny_inputs) {
  expect_tiny_inputs_survive();
  const test::FlushDenormals flushing;
  expect_tiny_inputs_survive();
}

TEST(Quantize, C04_saturates_with_a_given_scale) {
  const std::vector<float> values = {
      447,  448,   463.9F,    464,       std::nextafter(464.0F, kInfinity), 465, 480,
      1000, -1000, kInfinity, -kInfinity};
  const std::vector<float> expected = {448, 448, 448, 448, 448, 448, 448, 448, -448, 448, -448};
  std::vector<float> with_nan = values;
  with_nan.push_back(kNan);
  Matrix x(DType::kF32, 1, std::ssize(with_nan), with_nan);
  const Matrix q = test::quantized_with_scale(x, 1.0F);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(q.value(i), expected[i]) << values[i];
  EXPECT_EQ(q.code(values.size()), 0x7FU);
  const Matrix wide = test::quantized_with_scale(x, 0x1p-8F, DType::kE5M2);
  EXPECT_EQ(wide.value(7), 57344.0F) << "1000 * 256 saturates";
  EXPECT_EQ(wide.value(9), 57344.0F) << "infinity saturates";

  // Activations up to 900 with a static scale of 1, in a length with a vector part and a rest.
  std::vector<float> activations = test::normal_values(1003, 107, 200.0F);
  activations[0] = 900;
  activations[1002] = -900;
  Matrix wide_x(DType::kBF16, 1, std::ssize(activations), activations);
  const Matrix clipped = test::quantized_with_scale(wide_x, 1.0F);
  for (std::size_t i = 0; i < clipped.size(); ++i) {
    ASSERT_TRUE(std::isfinite(clipped.value(i)));
    if (std::fabs(wide_x.value(i)) >= 448) {
      ASSERT_EQ(clipped.value(i), std::copysign(448.0F, wide_x.value(i)));
    }
  }
}

// NaN stays at its place, infinities saturate, and groups without either keep their bits.
TEST(Quantize, C07_nan_and_infinity) {
  constexpr std::int64_t kRows = 8;
  constexpr std::int64_t kCols = 256;
  const std::vector<float> clean_values = test::normal_values(kRows * kCols, 109);
  std::vector<float> bad_values = clean_values;
  constexpr std::size_t kNanAt = 3 * kCols + 7;
  constexpr std::size_t kInfinityAt = 5 * kCols + 200;
  constexpr std::size_t kMinusInfinityAt = 6 * kCols + 1;
  bad_values[kNanAt] = kNan;
  bad_values[kInfinityAt] = kInfinity;
  bad_values[kMinusInfinityAt] = -kInfinity;
  for (const DType dtype : test::kWideTypes) {
    Matrix clean(dtype, kRows, kCols, clean_values);
    Matrix bad(dtype, kRows, kCols, bad_values);
    for_each_recipe([&](const Recipe& recipe) {
      const Quantized wanted = test::quantized(clean.view(), recipe);
      const Quantized result = test::quantized(bad.view(), recipe);
      const std::uint32_t max_code = recipe.q_dtype == DType::kE4M3 ? 0x7EU : 0x7BU;
      ASSERT_EQ(result.q.code(kNanAt), 0x7FU) << describe(recipe);
      ASSERT_EQ(result.q.code(kInfinityAt), max_code) << describe(recipe);
      ASSERT_EQ(result.q.code(kMinusInfinityAt), 0x80U | max_code) << describe(recipe);
      // None of the three replaced a group's largest value, so every scale is as before.
      ASSERT_EQ(result.scale.codes(), wanted.scale.codes()) << describe(recipe);
      for (std::size_t i = 0; i < bad.size(); ++i) {
        if (i == kNanAt || i == kInfinityAt || i == kMinusInfinityAt) continue;
        ASSERT_EQ(result.q.code(i), wanted.q.code(i)) << describe(recipe) << " at " << i;
      }
    });
  }
}

TEST(Quantize, a_group_with_nothing_finite_has_the_floor_scale) {
  Matrix x(DType::kF32, 1, 4, {kNan, kInfinity, -kInfinity, kNan});
  Quantized result = test::quantized(x.view(), Recipe{ScaleGranularity::kRow});
  EXPECT_EQ(result.scale.value(0), kDefaultAmaxFloor / 448.0F);
  EXPECT_EQ(result.q.codes(), (std::vector<std::uint32_t>{0x7F, 0x7E, 0xFE, 0x7F}));
}

// The scale multiplies codes back into values; quantizing divides by it.
TEST(Quantize, C10_scale_is_the_dequantization_scale) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kCols = 256;
  Matrix a(DType::kF32, kRows, kCols, test::normal_values(kRows * kCols, 113));
  Matrix b(DType::kF32, kRows, kCols, test::normal_values(kRows * kCols, 127));
  const Recipe recipe{ScaleGranularity::kTensor};
  Quantized qa = test::quantized(a.view(), recipe);
  Quantized qb = test::quantized(b.view(), recipe);
  for (const Quantized* result : {&qa, &qb}) {
    float largest = 0;
    for (std::size_t i = 0; i < result->q.size(); ++i) {
      largest = std::max(largest, std::fabs(result->q.value(i)));
    }
    EXPECT_GE(largest, 416.0F);
    EXPECT_LE(largest, 448.0F);
  }
  double error = 0;
  double total = 0;
  for (std::int64_t i = 0; i < kRows; ++i) {
    for (std::int64_t j = 0; j < kRows; ++j) {
      double exact = 0;
      double scaled = 0;
      for (std::int64_t k = 0; k < kCols; ++k) {
        exact += static_cast<double>(a.value(i, k)) * b.value(j, k);
        scaled += static_cast<double>(qa.q.value(i, k)) * qb.q.value(j, k);
      }
      scaled *= static_cast<double>(qa.scale.value(0)) * qb.scale.value(0);
      error += (scaled - exact) * (scaled - exact);
      total += exact * exact;
    }
  }
  EXPECT_LE(std::sqrt(error / total), 0.05);

  // A given scale of 100: the codes hold a hundredth.
  Matrix large(DType::kF32, 1, 3, {100.0F, -4400.0F, 50.0F});
  const Matrix q = test::quantized_with_scale(large, 100.0F);
  EXPECT_EQ(q.value(0), 1.0F);
  EXPECT_EQ(q.value(1), -44.0F);
  EXPECT_EQ(q.value(2), 0.5F);
}

// The stored UE8M0 codes are the FP32 scales rounded up to a power of two.
TEST(Quantize, C12_ue8m0_scales) {
  constexpr std::int64_t kGroups = 40;
  std::vector<float> values(kGroups * kScaleBlock, 0.0F);
  for (std::int64_t g = 0; g < kGroups; ++g) {
    const float power = std::ldexp(448.0F, static_cast<int>(g / 4) - 5);
    const float amax[] = {power, std::nextafter(power, kInfinity), std::nextafter(power, 0.0F),
                          power * 0.75F};
    values[static_cast<std::size_t>(g * kScaleBlock + g)] = amax[g % 4];
  }
  Matrix x(DType::kF32, kGroups, kScaleBlock, values);
  const Quantized result =
      test::quantized(x.view(), {ScaleGranularity::kBlock1x128, DType::kE4M3, DType::kUE8M0});
  for (std::int64_t g = 0; g < kGroups; ++g) {
    const auto exact = static_cast<std::uint32_t>(127 + g / 4 - 5);
    const bool above = g % 4 == 1;
    EXPECT_EQ(result.scale.code(static_cast<std::size_t>(g)), above ? exact + 1 : exact) << g;
  }
}

// One scale over a large and a small shard ruins the small one; a scale per row or block does not.
TEST(Quantize, C21_shards_of_different_size) {
  constexpr std::int64_t kShardRows = 128;
  constexpr std::int64_t kCols = 256;
  const auto error_of_small_shard = [&](ScaleGranularity granularity, float ratio) {
    std::vector<float> values = test::normal_values(kShardRows * kCols, 131);
    const std::vector<float> small = test::normal_values(kShardRows * kCols, 137, 1.0F / ratio);
    values.insert(values.end(), small.begin(), small.end());
    const Matrix x(DType::kF32, 2 * kShardRows, kCols, values);
    Matrix source = x;
    Quantized result = test::quantized(source.view(), Recipe{granularity});
    const Matrix back = test::dequantized(result, granularity);
    EXPECT_LE(test::relative_rms(back, x, 0, kShardRows), 0.035) << to_string(granularity);
    return test::relative_rms(back, x, kShardRows, 2 * kShardRows);
  };
  for (const float ratio : {1.0F, 1e3F, 1e5F}) {
    EXPECT_LE(error_of_small_shard(ScaleGranularity::kRow, ratio), 0.035) << ratio;
    EXPECT_LE(error_of_small_shard(ScaleGranularity::kBlock128x128, ratio), 0.035) << ratio;
  }
  // What a shared scale costs, so that a change of it is noticed: the small shard sinks among the
  // subnormals. How far depends a little on the largest value drawn.
  EXPECT_NEAR(error_of_small_shard(ScaleGranularity::kTensor, 1e3F), 0.027, 0.003);
  EXPECT_NEAR(error_of_small_shard(ScaleGranularity::kTensor, 1e4F), 0.055, 0.015);
  EXPECT_NEAR(error_of_small_shard(ScaleGranularity::kTensor, 1e5F), 0.52, 0.12);
  EXPECT_GT(error_of_small_shard(ScaleGranularity::kTensor, 1e6F), 0.95);
}

// A scale calibrated to the data keeps the error at every size of data; a scale of 1 does not.
TEST(Quantize, C61_calibrated_scale_and_scale_of_one) {
  constexpr std::int64_t kRows = 64;
  constexpr std::int64_t kCols = 128;
  const auto error_with_scale = [&](float sigma, bool calibrated) {
    Matrix x(DType::kF32, kRows, kCols, test::normal_values(kRows * kCols, 139, sigma));
    float scale = 1;
    if (calibrated) {
      float amax = 0;
      for (std::size_t i = 0; i < x.size(); ++i) amax = std::max(amax, std::fabs(x.value(i)));
      scale = amax / 448.0F;
    }
    Matrix q = test::quantized_with_scale(x, scale);
    Matrix back(DType::kF32, kRows, kCols);
    DequantizeProblem problem;
    problem.q = q.view();
    problem.scale = make_view(&scale, DType::kF32, {1});
    problem.granularity = ScaleGranularity::kTensor;
    problem.x = back.view();
    dequantize(problem);
    return test::relative_rms(back, x, 0, kRows);
  };
  for (const float sigma : {0.001F, 0.01F, 0.1F, 1.0F, 100.0F, 200.0F, 600.0F}) {
    EXPECT_LE(error_with_scale(sigma, true), 0.03) << sigma;
  }
  for (const float sigma : {0.1F, 1.0F, 100.0F}) {
    EXPECT_NEAR(error_with_scale(sigma, false), 0.027, 0.003) << sigma;
  }
  EXPECT_NEAR(error_with_scale(0.01F, false), 0.056, 0.006);
  EXPECT_NEAR(error_with_scale(0.001F, false), 0.56, 0.06);
  // Clipping at t sigma adds 2 ((1 + t^2) Q(t) - t phi(t)) to the squared error.
  EXPECT_NEAR(error_with_scale(200.0F, false), 0.079, 0.012);
  EXPECT_NEAR(error_with_scale(600.0F, false), 0.51, 0.05);
}

// Sizes that are no multiple of 128: the last blocks hold only real elements.
TEST(Quantize, C83_odd_sizes) {
  struct Size {
    std::int64_t rows;
    std::int64_t cols;
  };
  for (const Size size : {Size{576, 512}, {2112, 7168}, {192, 320}, {1, 1}, {129, 127}}) {
    // A fixed cycle of normal values: the large weight would take long to draw.
    const std::vector<float> cycle = test::normal_values(8191, 149);
    std::vector<float> values(static_cast<std::size_t>(size.rows * size.cols));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = cycle[i % cycle.size()];
    const std::int64_t whole_rows = size.rows / kScaleBlock * kScaleBlock;
    for (std::int64_t row = whole_rows; row < size.rows; ++row) {
      for (std::int64_t col = 0; col < size.cols; ++col) {
        values[static_cast<std::size_t>(row * size.cols + col)] *= 1000;
      }
    }
    Matrix x(DType::kBF16, size.rows, size.cols, values);
    for (const DType scale_dtype : test::kScaleTypes) {
      // The largest matrix takes a second: once is enough.
      if (size.rows > 1000 && scale_dtype == DType::kUE8M0) continue;
      const Recipe recipe{ScaleGranularity::kBlock128x128, DType::kE4M3, scale_dtype};
      Quantized result = test::quantized(x.view(), recipe);
      const Quantized wanted = test::reference_quantized(x, recipe);
      ASSERT_EQ(result.scale.codes(), wanted.scale.codes()) << size.rows << "x" << size.cols;
      ASSERT_EQ(result.q.codes(), wanted.q.codes()) << size.rows << "x" << size.cols;
      const Matrix back = test::dequantized(result, recipe.granularity);
      test::expect_within_bound(x, back, result, recipe);
    }
  }
}

}  // namespace
}  // namespace octavo
