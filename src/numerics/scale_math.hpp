// SPDX-License-Identifier: Apache-2.0
// Scale arithmetic: a group's largest magnitude, the scale it leads to, and that scale's
// reciprocal. All in FP32, each step rounded to nearest even, so that every back end gets the same
// bits. Rules: docs/scale_recipes.md.
#pragma once

#include <bit>
#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo {

// amax[g] becomes the larger of itself and the largest magnitude among the finite elements of group
// g, which is elements [g * group_elems, (g + 1) * group_elems) of the n contiguous ones.
// Infinities and NaN are passed over. BF16, F16 or F32.
void accumulate_amax(DType dtype, const void* data, std::int64_t n, std::int64_t group_elems,
                     float* amax);

// The same for one group; 0 if it holds nothing finite.
[[nodiscard]] inline float amax_of_finite(DType dtype, const void* data, std::int64_t n) {
  float amax = 0;
  accumulate_amax(dtype, data, n, n, &amax);
  return amax;
}

// A positive FP32 scale rounded up to a power of two, as a UE8M0 code in [1, 254]: 2^-126 to 2^127.
// NOTE: integer arithmetic; ceil(log2(x)) in FP32 gives k, not k + 1, just above 2^k.
[[nodiscard]] constexpr std::uint8_t ue8m0_scale_code(float scale) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(scale);
  const std::uint32_t exponent = (bits >> 23) & 0xFFU;
  const std::uint32_t code = exponent + ((bits & 0x7FFFFFU) != 0 ? 1 : 0);
  return static_cast<std::uint8_t>(code < 1 ? 1 : code > 254 ? 254 : code);
}

// max(amax, floor) / max_finite(q), rounded up to a power of two if scale_dtype is UE8M0.
[[nodiscard]] constexpr float scale_from_amax(float amax, float floor, DType q_dtype,
                                              DType scale_dtype) noexcept {
  const float scale = (amax > floor ? amax : floor) / max_finite_fp8(q_dtype);
  if (scale_dtype != DType::kUE8M0) return scale;
  return std::bit_cast<float>(static_cast<std::uint32_t>(ue8m0_scale_code(scale)) << 23);
}

[[nodiscard]] constexpr float reciprocal(float scale) noexcept { return 1.0F / scale; }

}  // namespace octavo
