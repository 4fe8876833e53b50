// SPDX-License-Identifier: Apache-2.0
#include "error_bounds.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace octavo::cli {
namespace {

const double kFp32HalfUlp = std::ldexp(1.0, -24);

// The Hopper tensor core keeps 13 fraction bits. Measured and simulated, a sum promoted every 128
// of K is off by 1.3e-4 (signs mixed) or 5.5e-4 (one sign, where truncation is a bias), whatever K.
constexpr double kPromotedMixedSigns = 3e-4;
constexpr double kPromotedOneSign = 8e-4;
// One accumulator through all of K: about 7.1e-6 * K^0.625, or a bias of about K/60,000.
constexpr double kFastMixedSignsPerRootK = 5e-5;
constexpr double kFastOneSignPerK = 1.0 / 40000;

ErrorBound tensor_core_bound(const GemmRequest& request) {
  const bool one_sign = request.data == Distribution::kPositive;
  const double promoted = one_sign ? kPromotedOneSign : kPromotedMixedSigns;
  if (request.accumulation == Accumulation::kPromoted) {
    return {promoted, fmt::format("promoted, {} data: {:g}", to_string(request.data), promoted)};
  }
  // Up to K = 128 there is nothing to promote, so the promoted bound holds too.
  const auto k = static_cast<double>(request.k);
  if (one_sign) {
    return {std::max(promoted, k * kFastOneSignPerK),
            fmt::format("fast, positive data: max({:g}, K / 40000)", promoted)};
  }
  return {
      std::max(promoted, std::sqrt(k) * kFastMixedSignsPerRootK),
      fmt::format("fast, {} data: max({:g}, 5e-5 * sqrt(K))", to_string(request.data), promoted)};
}

}  // namespace

RoundingCost rounding_cost(DType dtype) {
  // Half a unit in the last place of a normal number, and half the least subnormal.
  switch (dtype) {
    case DType::kBF16: return {std::ldexp(1.0, -8), std::ldexp(1.0, -134)};
    case DType::kF16: return {std::ldexp(1.0, -11), std::ldexp(1.0, -25)};
    case DType::kE4M3: return {std::ldexp(1.0, -4), std::ldexp(1.0, -10)};
    case DType::kE5M2: return {std::ldexp(1.0, -3), std::ldexp(1.0, -17)};
    default: return {kFp32HalfUlp, 0};
  }
}

ErrorBound accumulation_bound(const GemmRequest& request, Numerics numerics) {
  switch (numerics) {
    case Numerics::kReference: return {kFp32HalfUlp, "reference: one rounding to FP32, 2^-24"};
    case Numerics::kEmulated: return tensor_core_bound(request);
    default: break;
  }
  // FP32 sums of exact products round K times with random signs, so that the errors add up like
  // sqrt(K) at most; 8 covers the roundings of scales and epilogue.
  constexpr double kScaleAndEpilogueRoundings = 8;
  const double bound =
      kFp32HalfUlp * (std::sqrt(static_cast<double>(request.k)) + kScaleAndEpilogueRoundings);
  return {bound, "FP32 sums: 2^-24 * (sqrt(K) + 8)"};
}

}  // namespace octavo::cli
