// SPDX-License-Identifier: Apache-2.0
// The largest finite magnitude, and the scale it leads to.
#include "numerics/scale_math.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "numerics/bit_patterns.hpp"
#include "numerics/codec.hpp"
#include "numerics/codec_array.hpp"
#include "support/denormal_mode.hpp"
#include "support/nearest_encoder.hpp"
#include "support/simd_targets.hpp"

namespace octavo {
namespace {

constexpr DType kWideTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

float plain_amax(const std::vector<float>& values, std::size_t first, std::size_t last) {
  float amax = 0;
  for (std::size_t i = first; i < last; ++i) {
    if (std::isfinite(values[i])) amax = std::max(amax, std::fabs(values[i]));
  }
  return amax;
}

// Random bits hold NaN and infinities; a position of every length carries the largest value.
TEST(ScaleMath, amax_skips_what_is_not_finite) {
  constexpr std::int64_t kLongest = 130;
  const std::vector<float> source = test::random_floats(kLongest + 3, 23);
  test::for_each_simd_target([&] {
    for (const DType dtype : kWideTypes) {
      std::vector<float> codes(source.size());
      encode_array(dtype, source.data(), std::ssize(source), codes.data());
      std::vector<float> values(source.size());
      decode_array(dtype, codes.data(), std::ssize(source), values.data());
      for (std::int64_t n = 0; n <= kLongest; ++n) {
        const std::int64_t shift = n % 4;
        const auto* data =
            reinterpret_cast<const std::uint8_t*>(codes.data()) + shift * size_bytes(dtype);
        const auto first = static_cast<std::size_t>(shift);
        const auto last = first + static_cast<std::size_t>(n);
        ASSERT_EQ(amax_of_finite(dtype, data, n), plain_amax(values, first, last))
            << to_string(dtype) << " n=" << n;
      }
      for (const std::int64_t group : {1, 7, 32, 64, 128}) {
        std::vector<float> amax(source.size(), 1.0F);
        accumulate_amax(dtype, codes.data(), std::ssize(values), group, amax.data());
        for (std::int64_t g = 0; g * group < std::ssize(values); ++g) {
          const auto first = static_cast<std::size_t>(g * group);
          const std::size_t last = std::min(values.size(), first + static_cast<std::size_t>(group));
          ASSERT_EQ(amax[static_cast<std::size_t>(g)],
                    std::max(1.0F, plain_amax(values, first, last)))
              << to_string(dtype) << " group " << g << " of " << group;
        }
      }
    }
  });
}

TEST(ScaleMath, amax_finds_the_largest_wherever_it_is) {
  constexpr std::size_t kCount = 100;
  test::for_each_simd_target([&] {
    for (const DType dtype : kWideTypes) {
      for (std::size_t at = 0; at < kCount; ++at) {
        std::vector<float> values(kCount, 0.5F);
        values[at] = at % 2 == 0 ? -3.0F : 3.0F;
        values[(at + 1) % kCount] = std::numeric_limits<float>::quiet_NaN();
        values[(at + 2) % kCount] = -std::numeric_limits<float>::infinity();
        std::vector<float> codes(kCount);
        encode_array(dtype, values.data(), kCount, codes.data());
        ASSERT_EQ(amax_of_finite(dtype, codes.data(), kCount), 3.0F) << to_string(dtype) << at;
      }
    }
  });
}

TEST(ScaleMath, scale_is_floored_amax_over_the_largest_value) {
  EXPECT_EQ(scale_from_amax(448, 1e-4F, DType::kE4M3, DType::kF32), 1.0F);
  EXPECT_EQ(scale_from_amax(57344, 1e-4F, DType::kE5M2, DType::kF32), 1.0F);
  EXPECT_EQ(scale_from_amax(3, 1e-4F, DType::kE4M3, DType::kF32), 3.0F / 448.0F);
  EXPECT_EQ(scale_from_amax(0, 1e-4F, DType::kE4M3, DType::kF32), 1e-4F / 448.0F);
  EXPECT_EQ(scale_from_amax(1e-5F, 1e-4F, DType::kE5M2, DType::kF32), 1e-4F / 57344.0F);
  EXPECT_EQ(scale_from_amax(449, 1e-4F, DType::kE4M3, DType::kUE8M0), 2.0F);
  EXPECT_EQ(scale_from_amax(448, 1e-4F, DType::kE4M3, DType::kUE8M0), 1.0F);
  EXPECT_EQ(reciprocal(3.0F), 1.0F / 3.0F);
}

// Rounding up to a power of two by integer arithmetic, in a normal and in a flushing environment.
void expect_ue8m0_scales() {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (int k = -126; k <= 127; ++k) {
    const auto exact = static_cast<std::uint32_t>(k + 127);
    const float power = std::bit_cast<float>(exact << 23);
    ASSERT_EQ(ue8m0_scale_code(power), exact) << k;
    const float above = std::nextafter(power, kInfinity);
    ASSERT_EQ(ue8m0_scale_code(above), std::min(exact + 1, 254U)) << k;
    const float below = std::bit_cast<float>(std::bit_cast<std::uint32_t>(power) - 1);
    ASSERT_EQ(ue8m0_scale_code(below), exact) << k;
  }
  EXPECT_EQ(ue8m0_scale_code(0.75F), 127);
  EXPECT_EQ(ue8m0_scale_code(449.0F / 448.0F), 128);
  for (const std::uint32_t subnormal : {0U, 1U, 0x400000U, 0x7FFFFFU}) {
    EXPECT_EQ(ue8m0_scale_code(std::bit_cast<float>(subnormal)), 1) << subnormal;
  }
  EXPECT_EQ(ue8m0_scale_code(std::numeric_limits<float>::max()), 254);
}

TEST(ScaleMath, C12_ue8m0_rounds_up_exactly) {
  expect_ue8m0_scales();
  {
    const test::FlushDenormals flushing;
    expect_ue8m0_scales();
  }
  for (const float value : test::random_floats(100'000, 29)) {
    if (!std::isfinite(value)) continue;
    const std::uint32_t independent = test::ceil_power_of_two_code(value);
    ASSERT_EQ(ue8m0_scale_code(std::fabs(value)), std::clamp(independent, 1U, 254U)) << value;
  }
}

}  // namespace
}  // namespace octavo
