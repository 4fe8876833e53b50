// SPDX-License-Identifier: Apache-2.0
#include "llm/weight_scales.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "octavo/scale.hpp"

namespace octavo::llm {
namespace {

// The E4M3 values from the largest down to just above half of it; at half, the same codes come
// back one exponent lower.
constexpr std::array kLargestCodes{448.0F, 416.0F, 384.0F, 352.0F, 320.0F, 288.0F, 256.0F, 240.0F};

// Nearest value with three fraction bits, ties to even. E4M3 below its smallest normal value is
// coarser, but 2^-6 of at most 448 adds nothing to a sum of squares that decides anything.
float with_three_fraction_bits(float x) noexcept {
  constexpr int kDropped = 20;  // of an F32's 23
  constexpr std::uint32_t kHalf = (1U << (kDropped - 1)) - 1;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = bits + kHalf + ((bits >> kDropped) & 1U);
  return std::bit_cast<float>(rounded & ~((1U << kDropped) - 1));
}

double squared_error(std::span<const float> row, float scale) noexcept {
  // Independent partial sums, so that the loop vectorises.
  constexpr std::size_t kLanes = 16;
  const float inverse = 1.0F / scale;
  std::array<float, kLanes> lanes{};
  std::size_t i = 0;
  for (; i + kLanes <= row.size(); i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) {
      const float x = row[i + lane] * inverse;
      const float error = with_three_fraction_bits(x) - x;
      lanes[lane] += error * error;
    }
  }
  double total = 0;
  for (; i < row.size(); ++i) {
    const float x = row[i] * inverse;
    total += std::pow(static_cast<double>(with_three_fraction_bits(x) - x), 2);
  }
  for (const float lane : lanes) total += lane;
  return total * static_cast<double>(scale) * scale;
}

}  // namespace

void fit_row_scales(std::span<const float> weight, std::int64_t cols, std::span<float> scales) {
  for (std::size_t i = 0; i < scales.size(); ++i) {
    const auto width = static_cast<std::size_t>(cols);
    const std::span<const float> row = weight.subspan(i * width, width);
    float amax = 0;
    bool finite = true;
    for (const float x : row) {
      finite = finite && std::isfinite(x);
      if (std::isfinite(x)) amax = std::max(amax, std::abs(x));
    }
    scales[i] = std::max(amax, kDefaultAmaxFloor) / kLargestCodes[0];
    if (!finite || amax < kDefaultAmaxFloor) continue;
    double least = std::numeric_limits<double>::infinity();
    for (const float code : kLargestCodes) {
      const float scale = amax / code;
      const double error = squared_error(row, scale);
      if (error < least) {
        least = error;
        scales[i] = scale;
      }
    }
  }
}

}  // namespace octavo::llm
