// SPDX-License-Identifier: Apache-2.0
// FP32 bit patterns worth encoding: every exponent with mantissas at and next to every tie of a
// format of up to five mantissa bits, and random ones.
#pragma once

#include <bit>
#include <cstdint>
#include <random>
#include <vector>

namespace octavo::test {

[[nodiscard]] inline std::vector<float> structured_floats() {
  constexpr std::uint32_t kMantissaMask = 0x7FFFFF;
  std::vector<std::uint32_t> mantissas;
  for (std::uint32_t top = 0; top < 64; ++top) {
    for (int step = -2; step <= 2; ++step) {
      mantissas.push_back(((top << 17) + static_cast<std::uint32_t>(step)) & kMantissaMask);
    }
  }
  for (int bit = 0; bit < 23; ++bit) mantissas.push_back(1U << bit);
  std::vector<float> values;
  for (std::uint32_t sign_and_exponent = 0; sign_and_exponent < 512; ++sign_and_exponent) {
    for (const std::uint32_t mantissa : mantissas) {
      values.push_back(std::bit_cast<float>((sign_and_exponent << 23) | mantissa));
    }
  }
  return values;
}

[[nodiscard]] inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    value = std::bit_cast<float>(static_cast<std::uint32_t>(generator()));
  }
  return values;
}

}  // namespace octavo::test
