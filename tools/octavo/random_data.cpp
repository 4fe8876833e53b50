// SPDX-License-Identifier: Apache-2.0
#include "random_data.hpp"

#include <cmath>
#include <numbers>
#include <utility>

namespace octavo::cli {

std::uint64_t RandomStream::next_bits() {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  return z ^ (z >> 31U);
}

double RandomStream::next_uniform() {
  constexpr int kMantissaBits = 53;
  constexpr int kDroppedBits = 64 - kMantissaBits;
  return std::ldexp(static_cast<double>(next_bits() >> kDroppedBits) + 1, -kMantissaBits);
}

double RandomStream::next_gaussian() {
  // Box and Muller's transform; the second value of the pair is not used.
  const double radius = std::sqrt(-2 * std::log(next_uniform()));
  return radius * std::cos(2 * std::numbers::pi * next_uniform());
}

std::int64_t RandomStream::next_below(std::int64_t bound) {
  return static_cast<std::int64_t>(next_bits() % static_cast<std::uint64_t>(bound));
}

HostTensor random_tensor(Distribution distribution, std::int64_t seed, int stream,
                         std::vector<std::int64_t> shape) {
  // Gaussian data with rare large elements: the test of FlashAttention-3 (arXiv 2407.08608).
  constexpr double kOutlierShare = 0.001;
  constexpr double kOutlierDeviation = 10;
  RandomStream mix(static_cast<std::uint64_t>(seed));
  for (int i = 0; i < stream; ++i) (void)mix.next_bits();
  RandomStream random(mix.next_bits());
  HostTensor tensor(DType::kF32, std::move(shape));
  for (float& value : tensor.f32()) {
    double x = 0;
    switch (distribution) {
      case Distribution::kPositive: x = random.next_uniform(); break;
      case Distribution::kGaussian: x = random.next_gaussian(); break;
      case Distribution::kOutliers:
        x = random.next_gaussian();
        if (random.next_uniform() <= kOutlierShare) x += kOutlierDeviation * random.next_gaussian();
        break;
    }
    value = static_cast<float>(x);
  }
  return tensor;
}

}  // namespace octavo::cli
