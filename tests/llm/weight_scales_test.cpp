// SPDX-License-Identifier: Apache-2.0
#include "llm/weight_scales.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "octavo/quantize.hpp"

namespace octavo::llm {
namespace {

constexpr std::int64_t kRows = 40;
constexpr std::int64_t kCols = 577;

std::vector<float> gaussian_rows() {
  std::mt19937 generator(11);
  std::normal_distribution<float> draw(0, 1);
  std::vector<float> weight(kRows * kCols);
  for (std::size_t i = 0; i < weight.size(); ++i) {
    weight[i] = draw(generator) * std::pow(10.0F, static_cast<float>(i / kCols % 9) - 4);
  }
  return weight;
}

// What a weight is after quantizing with these scales.
std::vector<float> rounded(const std::vector<float>& weight, std::vector<float>& scales,
                           ScaleSource source) {
  std::vector<std::uint8_t> codes(weight.size());
  QuantizeProblem writing;
  writing.x = make_view(weight.data(), DType::kF32, {kRows, kCols});
  writing.q = make_view(codes.data(), DType::kE4M3, {kRows, kCols});
  writing.granularity = ScaleGranularity::kRow;
  writing.scale = make_view(scales.data(), DType::kF32, {kRows});
  writing.scale_source = source;
  (void)quantize(writing, {.backend = "cpu"});
  std::vector<float> values(weight.size());
  DequantizeProblem reading;
  reading.q = writing.q;
  reading.granularity = ScaleGranularity::kRow;
  reading.scale = writing.scale;
  reading.x = make_view(values.data(), DType::kF32, {kRows, kCols});
  (void)dequantize(reading, {.backend = "cpu"});
  return values;
}

double row_error(const std::vector<float>& a, const std::vector<float>& b, std::int64_t row) {
  double error = 0;
  for (std::int64_t i = row * kCols; i < (row + 1) * kCols; ++i) {
    const auto at = static_cast<std::size_t>(i);
    error += std::pow(static_cast<double>(a[at]) - static_cast<double>(b[at]), 2);
  }
  return error;
}

TEST(WeightScales, never_worse_than_amax_and_better_in_the_mean) {
  const std::vector<float> weight = gaussian_rows();
  std::vector<float> dynamic(kRows);
  std::vector<float> fitted(kRows);
  const std::vector<float> plain = rounded(weight, dynamic, ScaleSource::kDynamic);
  fit_row_scales(weight, kCols, fitted);
  const std::vector<float> best = rounded(weight, fitted, ScaleSource::kGiven);
  double ratios = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const double ratio = row_error(best, weight, row) / row_error(plain, weight, row);
    EXPECT_LE(ratio, 1.0001) << row;
    ratios += ratio;
  }
  EXPECT_LE(ratios / kRows, 0.99);
}

TEST(WeightScales, the_largest_magnitude_stays_exact) {
  const std::vector<float> weight = gaussian_rows();
  std::vector<float> scales(kRows);
  fit_row_scales(weight, kCols, scales);
  const std::vector<float> values = rounded(weight, scales, ScaleSource::kGiven);
  for (std::int64_t row = 0; row < kRows; ++row) {
    std::size_t largest = static_cast<std::size_t>(row * kCols);
    for (std::size_t i = largest; i < static_cast<std::size_t>((row + 1) * kCols); ++i) {
      if (std::fabs(weight[i]) > std::fabs(weight[largest])) largest = i;
    }
    EXPECT_NEAR(values[largest], weight[largest], 4e-7F * std::fabs(weight[largest])) << row;
  }
}

TEST(WeightScales, rows_of_zeros_nan_and_infinity_get_the_quantizers_scale) {
  std::vector<float> weight = gaussian_rows();
  for (std::size_t i = 0; i < kCols; ++i) weight[i] = 0;
  for (std::size_t i = kCols; i < 2 * kCols; ++i) weight[i] = 1e-30F;
  weight[2 * kCols + 7] = std::numeric_limits<float>::quiet_NaN();
  weight[3 * kCols + 7] = -std::numeric_limits<float>::infinity();
  std::vector<float> dynamic(kRows);
  std::vector<float> fitted(kRows);
  (void)rounded(weight, dynamic, ScaleSource::kDynamic);
  fit_row_scales(weight, kCols, fitted);
  for (std::size_t row = 0; row < 4; ++row) EXPECT_EQ(fitted[row], dynamic[row]) << row;
}

}  // namespace
}  // namespace octavo::llm
