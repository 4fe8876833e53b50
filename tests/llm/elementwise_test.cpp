// SPDX-License-Identifier: Apache-2.0
// The decoder's elementwise steps against plain FP64.
#include "llm/elementwise.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "octavo/quantize.hpp"

namespace octavo::llm {
namespace {

std::vector<float> uniform(std::size_t count, float low, float high, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values(count);
  for (float& value : values) value = draw(generator);
  return values;
}

TEST(Elementwise, exp_approx_is_within_two_ulp_and_saturates) {
  for (const float x : uniform(20000, -87.0F, 88.0F, 1)) {
    const double expected = std::exp(static_cast<double>(x));
    ASSERT_NEAR(static_cast<double>(exp_approx(x)), expected, expected * 0x1p-22) << x;
  }
  EXPECT_EQ(exp_approx(0.0F), 1.0F);
  EXPECT_EQ(exp_approx(-1e30F), exp_approx(-87.0F));
  EXPECT_EQ(exp_approx(-std::numeric_limits<float>::infinity()), exp_approx(-87.0F));
  EXPECT_TRUE(std::isfinite(exp_approx(1e30F)));
  EXPECT_TRUE(std::isnan(exp_approx(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Elementwise, to_bf16_equals_the_library) {
  for (std::uint32_t i = 0; i < 100000; ++i) {
    const auto x = std::bit_cast<float>(i * 42943U);
    if (std::isnan(x)) continue;
    ASSERT_EQ(to_bf16(x), encode(DType::kBF16, x)) << x;
  }
  const float nan_value = decode(DType::kBF16, to_bf16(std::bit_cast<float>(0x7F800001U)));
  EXPECT_TRUE(std::isnan(nan_value));
}

TEST(Elementwise, rms_norm) {
  for (const std::size_t width : {1UL, 15UL, 16UL, 17UL, 576UL}) {
    const std::vector<float> x = uniform(3 * width, -3, 5, 2);
    const std::vector<float> weight = uniform(width, 0.5F, 2, 3);
    std::vector<float> out(3 * width, std::numeric_limits<float>::quiet_NaN());
    rms_norm(x.data(), 3, weight, 1e-5F, out.data());
    for (std::size_t row = 0; row < 3; ++row) {
      double squares = 0;
      for (std::size_t i = 0; i < width; ++i) {
        squares += std::pow(static_cast<double>(x[row * width + i]), 2);
      }
      const double factor = 1 / std::sqrt(squares / static_cast<double>(width) + 1e-5);
      for (std::size_t i = 0; i < width; ++i) {
        const double expected =
            static_cast<double>(x[row * width + i]) * factor * static_cast<double>(weight[i]);
        ASSERT_NEAR(static_cast<double>(out[row * width + i]), expected,
                    1e-6 * std::fabs(expected) + 1e-7);
      }
    }
  }
}

TEST(Elementwise, silu_mul) {
  constexpr std::size_t kWidth = 37;
  std::vector<float> gate_up = uniform(4 * kWidth, -20, 20, 4);
  gate_up[0] = -200.0F;
  std::vector<float> out(2 * kWidth, std::numeric_limits<float>::quiet_NaN());
  silu_mul(gate_up.data(), 2, kWidth, out.data());
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < kWidth; ++i) {
      const auto gate = static_cast<double>(gate_up[row * 2 * kWidth + i]);
      const auto up = static_cast<double>(gate_up[row * 2 * kWidth + kWidth + i]);
      const double expected = gate / (1 + std::exp(-gate)) * up;
      ASSERT_NEAR(static_cast<double>(out[row * kWidth + i]), expected,
                  1e-6 * std::fabs(expected) + 1e-30);
    }
  }
}

TEST(Elementwise, max_finite_magnitude_skips_what_is_not_finite) {
  const std::vector<float> x{1, -7, std::numeric_limits<float>::quiet_NaN(),
                             -std::numeric_limits<float>::infinity(), 3};
  EXPECT_EQ(max_finite_magnitude(x), 7.0F);
  EXPECT_EQ(max_finite_magnitude({}), 0.0F);
}

TEST(Elementwise, log_sum_exp) {
  for (const std::size_t count : {1UL, 2UL, 255UL, 256UL, 257UL, 49152UL}) {
    const std::vector<float> x = uniform(count, -15, 30, 5);
    double total = 0;
    for (const float value : x) total += std::exp(static_cast<double>(value));
    EXPECT_NEAR(log_sum_exp(x), std::log(total), 1e-6) << count;
  }
  EXPECT_NEAR(log_sum_exp(std::vector<float>(100, -3e4F)), -3e4 + std::log(100.0), 1e-6);
  EXPECT_EQ(log_sum_exp({}), -std::numeric_limits<double>::infinity());
}

TEST(Elementwise, rope_turns_a_pair_half_a_head_apart) {
  LlamaConfig config;
  config.head_dim = 8;
  config.rope_theta = 100.0F;
  const std::vector<double> frequencies = rope_frequencies(config, {});
  ASSERT_EQ(frequencies.size(), 4U);
  EXPECT_DOUBLE_EQ(frequencies[0], 1.0);
  EXPECT_NEAR(frequencies[1], std::pow(100.0, -0.25), 1e-12);

  const std::vector<float> x = uniform(2 * 3 * 8, -1, 1, 6);  // two rows of three heads
  std::vector<float> turned = x;
  std::vector<float> cosine(8);
  std::vector<float> sine(8);
  rope_angles(frequencies, 7, 2, cosine.data(), sine.data());
  apply_rope({.x = turned.data(), .rows = 2, .row_stride = 24, .heads = 2, .head_dim = 8},
             cosine.data(), sine.data());
  for (std::size_t row = 0; row < 2; ++row) {
    for (std::size_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(7 + row) * frequencies[i];
      const auto a = static_cast<double>(x[row * 24 + 8 + i]);  // the second head
      const auto b = static_cast<double>(x[row * 24 + 12 + i]);
      EXPECT_NEAR(turned[row * 24 + 8 + i], a * std::cos(angle) - b * std::sin(angle), 1e-6);
      EXPECT_NEAR(turned[row * 24 + 12 + i], b * std::cos(angle) + a * std::sin(angle), 1e-6);
      EXPECT_EQ(turned[row * 24 + 16 + i], x[row * 24 + 16 + i]);  // the third head stays
    }
  }
}

// Values worked out from Llama 3.1's published rule: factor 8, low 1, high 4, original 8192.
TEST(Elementwise, rope_scaling_of_llama3) {
  LlamaConfig config;
  config.head_dim = 128;
  config.rope_theta = 500000.0F;
  const std::vector<double> plain = rope_frequencies(config, {});
  config.rope_scaling = {.kind = RopeScalingKind::kLlama3,
                         .factor = 8,
                         .low_freq_factor = 1,
                         .high_freq_factor = 4,
                         .original_max_positions = 8192};
  const std::vector<double> scaled = rope_frequencies(config, {});
  int kept = 0;
  int between = 0;
  int stretched = 0;
  for (std::size_t i = 0; i < plain.size(); ++i) {
    const double wavelength = 2 * std::numbers::pi / plain[i];
    if (wavelength < 2048) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i]);
      ++kept;
    } else if (wavelength > 8192) {
      EXPECT_DOUBLE_EQ(scaled[i], plain[i] / 8);
      ++stretched;
    } else {
      EXPECT_LT(scaled[i], plain[i]);
      EXPECT_GT(scaled[i], plain[i] / 8);
      ++between;
    }
  }
  EXPECT_GT(kept, 0);
  EXPECT_GT(between, 0);
  EXPECT_GT(stretched, 0);
}

TEST(Elementwise, rope_factors_divide_and_linear_scaling_divides_all) {
  LlamaConfig config;
  config.head_dim = 4;
  config.rope_theta = 10000.0F;
  const std::vector<float> factors{1, 4};
  EXPECT_DOUBLE_EQ(rope_frequencies(config, factors)[1], 0.01 / 4);
  config.rope_scaling = {.kind = RopeScalingKind::kLinear, .factor = 2};
  EXPECT_DOUBLE_EQ(rope_frequencies(config, {})[0], 0.5);
}

TEST(Elementwise, rotate_heads_is_the_orthonormal_hadamard_matrix) {
  // Heads of 12: runs of 4, the largest power of two that divides 12.
  for (const std::int64_t head_dim : {1, 2, 8, 12, 64}) {
    const std::int64_t run = head_dim & -head_dim;
    constexpr std::int64_t kHeads = 3;
    const std::int64_t stride = kHeads * head_dim + 5;
    const std::vector<float> x = uniform(static_cast<std::size_t>(2 * stride), -3, 5, 9);
    std::vector<float> turned = x;
    const HeadRows rows{
        .x = turned.data(), .rows = 2, .row_stride = stride, .heads = kHeads, .head_dim = head_dim};
    rotate_heads(rows);
    for (std::int64_t i = 0; i < 2 * stride; ++i) {
      const std::int64_t at = i % stride;
      double expected = static_cast<double>(x[static_cast<std::size_t>(i)]);
      if (at < kHeads * head_dim) {
        expected = 0;
        for (std::int64_t j = 0; j < run; ++j) {
          const auto common = static_cast<std::uint32_t>(at % run & j);
          const double sign = std::popcount(common) % 2 == 0 ? 1 : -1;
          expected += sign * static_cast<double>(x[static_cast<std::size_t>(i - at % run + j)]);
        }
        expected /= std::sqrt(static_cast<double>(run));
      }
      EXPECT_NEAR(static_cast<double>(turned[static_cast<std::size_t>(i)]), expected, 2e-5);
    }
    rotate_heads(rows);
    for (std::size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(turned[i], x[i], 2e-5F);
  }
}

}  // namespace
}  // namespace octavo::llm
