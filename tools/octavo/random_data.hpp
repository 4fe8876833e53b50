// SPDX-License-Identifier: Apache-2.0
// Seeded random data with the distributions that FP8 errors are stated for. The same seed gives the
// same data on every machine with the same C library.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "host_tensor.hpp"

namespace octavo::cli {

enum class Distribution : std::uint8_t {
  kGaussian,  // N(0,1)
  kPositive,  // U(0,1): every product positive, the worst case for truncation
  kOutliers,  // N(0,1), and one element in a thousand N(0,1) + N(0,100): variance 100
};

inline constexpr std::array kDistributions{Distribution::kGaussian, Distribution::kPositive,
                                           Distribution::kOutliers};

[[nodiscard]] constexpr const char* to_string(Distribution distribution) noexcept {
  switch (distribution) {
    case Distribution::kGaussian: return "gaussian";
    case Distribution::kPositive: return "positive";
    case Distribution::kOutliers: return "outliers";
  }
  return "?";
}

// SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): small, and each seed is a stream of its own.
class RandomStream {
 public:
  explicit RandomStream(std::uint64_t seed) : state_(seed) {}

  [[nodiscard]] std::uint64_t next_bits();
  [[nodiscard]] double next_uniform();  // in (0, 1]
  [[nodiscard]] double next_gaussian();
  [[nodiscard]] std::int64_t next_below(std::int64_t bound);  // 0 .. bound - 1

 private:
  std::uint64_t state_;
};

// An F32 tensor of fresh data. Different `stream` numbers give independent data for one seed.
[[nodiscard]] HostTensor random_tensor(Distribution distribution, std::int64_t seed, int stream,
                                       std::vector<std::int64_t> shape);

}  // namespace octavo::cli
