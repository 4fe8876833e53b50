// SPDX-License-Identifier: Apache-2.0
// The decoder's element-by-element steps in F32: RMSNorm, RoPE, SiLU gate, Hadamard rotation,
// conversion to BF16, and the exponential they share. Plain loops over independent lanes, which
// compilers vectorise. All run on the calling thread: together they are a few percent of a token's
// time.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>
#include <vector>

#include "llm/llama_config.hpp"

namespace octavo::llm {

// e^x within 2 ulp for x in [-87, 88]; smaller and larger x behave as these ends; NaN stays NaN.
// Branch-free, so that loops over it vectorise, which std::exp does not.
[[nodiscard]] inline float exp_approx(float x) noexcept {
  constexpr float kLowest = -87.0F;  // e^-87 is just above the smallest normal F32
  constexpr float kHighest = 88.0F;  // e^88 is just below the largest F32
  constexpr float kLog2E = 1.44269504F;
  constexpr float kRound = 12582912.0F;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr int kRoundBits = 0x4B400000;
  constexpr float kLn2High = 0.693359375F;  // ln 2 in two parts; n * high is exact
  constexpr float kLn2Low = -2.12194440e-4F;
  constexpr int kMantissaBits = 23;
  const float clamped = std::min(std::max(x, kLowest), kHighest);
  const float shifted = clamped * kLog2E + kRound;
  const float n = shifted - kRound;
  const float r = (clamped - n * kLn2High) - n * kLn2Low;
  // Taylor coefficients 1/k! up to 7: the remainder is below 2^-27 for |r| <= ln(2)/2.
  float p = 1.9841270e-4F;
  p = p * r + 1.3888889e-3F;
  p = p * r + 8.3333333e-3F;
  p = p * r + 4.1666667e-2F;
  p = p * r + 1.6666667e-1F;
  p = p * r + 0.5F;
  p = p * r + 1.0F;
  p = p * r + 1.0F;
  const auto exponent = std::bit_cast<std::uint32_t>(shifted) - std::uint32_t{kRoundBits};
  // n is within [-126, 127], so 2^n is a normal float.
  constexpr std::uint32_t kBias = 127;
  return p * std::bit_cast<float>((exponent + kBias) << kMantissaBits);
}

// Round to nearest even; NaN stays NaN.
[[nodiscard]] inline std::uint16_t to_bf16(float x) noexcept {
  constexpr int kShift = 16;  // BF16 is the upper half of an F32
  constexpr std::uint32_t kHalf = 0x7FFF;
  constexpr std::uint32_t kQuiet = 0x7FC0;
  const auto bits = std::bit_cast<std::uint32_t>(x);
  const std::uint32_t rounded = (bits + kHalf + ((bits >> kShift) & 1U)) >> kShift;
  return static_cast<std::uint16_t>(x != x ? kQuiet : rounded);
}
void to_bf16(std::span<const float> x, std::uint16_t* out) noexcept;

// out[r, i] = x[r, i] * weight[i] / sqrt(mean over i of x[r, i]^2 + epsilon). out may be x.
void rms_norm(const float* x, std::int64_t rows, std::span<const float> weight, float epsilon,
              float* out) noexcept;

// x += y.
void add(float* x, const float* y, std::int64_t count) noexcept;

// out[r, i] = silu(gate) * up, where row r of gate_up is the gate's `width` values and then up's.
void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t width, float* out) noexcept;

// Largest finite magnitude; 0 if there is none.
[[nodiscard]] float max_finite_magnitude(std::span<const float> x) noexcept;

// log of the sum of e^x[i]; -inf for no values. Sums in FP64.
[[nodiscard]] double log_sum_exp(std::span<const float> x) noexcept;

// RoPE turns the pair (i, i + head_dim/2) of every head by position * frequency[i] radians.
// The frequencies of a config; `factors` (GGUF's rope_freqs, head_dim/2 of them or none) divide.
[[nodiscard]] std::vector<double> rope_frequencies(const LlamaConfig& config,
                                                   std::span<const float> factors);

// cosine and sine of the angles of `count` positions from `first`, [count, frequencies.size()].
void rope_angles(std::span<const double> frequencies, std::int64_t first, std::int64_t count,
                 float* cosine, float* sine) noexcept;

// `heads` adjacent heads of every row. Row r starts at x + r * row_stride.
struct HeadRows {
  float* x;
  std::int64_t rows;
  std::int64_t row_stride;
  std::int64_t heads;
  std::int64_t head_dim;
};
// In place.
void apply_rope(const HeadRows& rows, const float* cosine, const float* sine) noexcept;

// Multiplies every head by the orthonormal Hadamard matrix, in place; done twice, it changes
// nothing. A head whose size is no power of two is turned in runs of the largest that divides it.
void rotate_heads(const HeadRows& rows) noexcept;

}  // namespace octavo::llm
