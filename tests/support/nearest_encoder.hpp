// SPDX-License-Identifier: Apache-2.0
// Encoders that share nothing with the library's: a list of a format's values in FP64, from the
// definition of its fields, and a search for the nearest, ties to the even code.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace octavo::test {

class NearestEncoder {
 public:
  [[nodiscard]] static NearestEncoder e4m3() { return {3, 7, 0x7E, Overflow::kSaturate, 0x80}; }
  [[nodiscard]] static NearestEncoder e5m2() { return {2, 15, 0x7B, Overflow::kSaturate, 0x80}; }
  [[nodiscard]] static NearestEncoder f16() { return {10, 15, 0x7BFF, Overflow::kInf, 0x8000}; }
  [[nodiscard]] static NearestEncoder bf16() { return {7, 127, 0x7F7F, Overflow::kInf, 0x8000}; }

  // NaN gives all ones below the sign bit.
  [[nodiscard]] std::uint32_t encode(float value) const {
    std::size_t upper = 0;
    return encode(value, &upper);
  }

  // The same; *upper is where the last search ended, tried first: neighbouring floats mostly lie
  // between the same two values.
  [[nodiscard]] std::uint32_t encode(float value, std::size_t* upper_hint) const {
    if (std::isnan(value)) return sign_bit_ - 1;
    const std::uint32_t sign = std::signbit(value) ? sign_bit_ : 0;
    const double magnitude = std::fabs(static_cast<double>(value));
    const std::size_t upper = first_not_below(magnitude, *upper_hint);
    *upper_hint = upper;
    if (upper == values_.size()) return sign | static_cast<std::uint32_t>(upper - 1);
    if (upper == 0) return sign;
    const std::size_t lower = upper - 1;
    const double middle = (values_[lower] + values_[upper]) / 2;  // exact: few bits each
    const bool up = magnitude > middle || (magnitude == middle && upper % 2 == 0);
    return sign | static_cast<std::uint32_t>(up ? upper : lower);
  }

  // The value of a code with a clear sign bit, not above the largest finite one.
  [[nodiscard]] double value(std::uint32_t magnitude_code) const { return values_[magnitude_code]; }
  [[nodiscard]] std::uint32_t max_code() const { return max_code_; }
  [[nodiscard]] std::uint32_t sign_bit() const { return sign_bit_; }

 private:
  [[nodiscard]] std::size_t first_not_below(double magnitude, std::size_t hint) const {
    const bool hint_is_right = hint > 0 && hint < values_.size() && values_[hint - 1] < magnitude &&
                               magnitude <= values_[hint];
    if (hint_is_right) return hint;
    const auto at = std::lower_bound(values_.begin(), values_.end(), magnitude);
    return static_cast<std::size_t>(at - values_.begin());
  }

  enum class Overflow { kSaturate, kInf };

  NearestEncoder(int mantissa_bits, int bias, std::uint32_t max_code, Overflow overflow,
                 std::uint32_t sign_bit)
      : max_code_(max_code), sign_bit_(sign_bit) {
    // Where overflow gives infinity, its code stands for the next value the fields would reach, so
    // that rounding up to that is rounding up to infinity.
    const std::uint32_t last = overflow == Overflow::kInf ? max_code + 1 : max_code;
    const std::uint32_t fields = 1U << mantissa_bits;
    for (std::uint32_t code = 0; code <= last; ++code) {
      const std::uint32_t exponent = code / fields;
      const std::uint32_t mantissa = code % fields;
      const double significand =
          (exponent == 0 ? 0.0 : 1.0) + static_cast<double>(mantissa) / fields;
      const int scale = (exponent == 0 ? 1 : static_cast<int>(exponent)) - bias;
      values_.push_back(std::ldexp(significand, scale));
    }
  }

  std::vector<double> values_;
  std::uint32_t max_code_;
  std::uint32_t sign_bit_;
};

// UE8M0 rounds towards infinity and has neither sign nor zero.
[[nodiscard]] inline std::uint32_t ceil_power_of_two_code(float value) {
  if (std::isnan(value)) return 0xFF;
  if (std::isinf(value)) return 0xFE;
  if (value == 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(std::fabs(static_cast<double>(value)), &exponent);
  const int log2_ceil = fraction == 0.5 ? exponent - 1 : exponent;
  return static_cast<std::uint32_t>(std::clamp(log2_ceil + 127, 0, 254));
}

}  // namespace octavo::test
