// SPDX-License-Identifier: Apache-2.0
// Decoding of single elements. See element_decode.hpp.
#include "llm/element_decode.hpp"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

// Fields of a small floating-point format with an implicit leading one and gradual underflow.
struct SmallFloat {
  int exponent_bits;
  int mantissa_bits;
  int bias;
};
constexpr SmallFloat kF16{5, 10, 15};
constexpr SmallFloat kE4M3{4, 3, 7};
constexpr SmallFloat kE5M2{5, 2, 15};
constexpr int kUe8m0Bias = 127;
constexpr std::uint8_t kUe8m0Nan = 0xFF;
constexpr std::uint8_t kE4m3Nan = 0x7F;
constexpr std::size_t kNumCodes = 256;

// The finite reading of the bits; the caller deals with the format's Inf and NaN.
float finite_value(unsigned bits, SmallFloat format) noexcept {
  const unsigned mantissa = bits & ((1U << format.mantissa_bits) - 1U);
  const unsigned exponent = (bits >> format.mantissa_bits) & ((1U << format.exponent_bits) - 1U);
  const unsigned sign = bits >> (format.mantissa_bits + format.exponent_bits);
  const bool subnormal = exponent == 0;
  const unsigned significand = subnormal ? mantissa : mantissa | (1U << format.mantissa_bits);
  const int power =
      (subnormal ? 1 : static_cast<int>(exponent)) - format.bias - format.mantissa_bits;
  const float magnitude = std::ldexp(static_cast<float>(significand), power);
  return sign != 0 ? -magnitude : magnitude;
}

// Formats with IEEE's top exponent: Inf with an empty mantissa, NaN otherwise.
float ieee_value(unsigned bits, SmallFloat format) noexcept {
  const unsigned top = (1U << format.exponent_bits) - 1U;
  if (((bits >> format.mantissa_bits) & top) != top) return finite_value(bits, format);
  if ((bits & ((1U << format.mantissa_bits) - 1U)) != 0) {
    return std::numeric_limits<float>::quiet_NaN();
  }
  const bool negative = (bits >> (format.mantissa_bits + format.exponent_bits)) != 0;
  return negative ? -std::numeric_limits<float>::infinity()
                  : std::numeric_limits<float>::infinity();
}

std::array<float, kNumCodes> make_e4m3_values() noexcept {
  std::array<float, kNumCodes> values{};
  for (std::size_t code = 0; code < kNumCodes; ++code) {
    const bool nan = (code & kE4m3Nan) == kE4m3Nan;
    values[code] = nan ? std::numeric_limits<float>::quiet_NaN()
                       : finite_value(static_cast<unsigned>(code), kE4M3);
  }
  return values;
}

std::array<float, kNumCodes> make_e5m2_values() noexcept {
  std::array<float, kNumCodes> values{};
  for (std::size_t code = 0; code < kNumCodes; ++code) {
    values[code] = ieee_value(static_cast<unsigned>(code), kE5M2);
  }
  return values;
}

template <typename Stored, typename Decode>
void decode_each(std::span<const std::byte> bytes, std::span<float> out, Decode decode) {
  for (std::size_t i = 0; i < out.size(); ++i) {
    Stored stored;
    std::memcpy(&stored, bytes.data() + i * sizeof(Stored), sizeof(Stored));
    out[i] = decode(stored);
  }
}

}  // namespace

float f16_to_f32(std::uint16_t bits) noexcept {
  // Normal numbers, which are nearly all, only need their exponent rebiased.
  constexpr unsigned kSignMask = 0x8000;
  constexpr int kSignShift = 16;
  constexpr int kF32MantissaBits = 23;
  constexpr int kF32Bias = 127;
  const unsigned top = (1U << kF16.exponent_bits) - 1U;
  const unsigned exponent = (bits >> kF16.mantissa_bits) & top;
  if (exponent == 0 || exponent == top) return ieee_value(bits, kF16);
  const unsigned magnitude = bits & (kSignMask - 1U);
  const std::uint32_t rebiased =
      (magnitude << (kF32MantissaBits - kF16.mantissa_bits)) +
      (static_cast<std::uint32_t>(kF32Bias - kF16.bias) << kF32MantissaBits);
  return std::bit_cast<float>(rebiased | ((bits & kSignMask) << kSignShift));
}

std::span<const float> fp8_values(DType dtype) noexcept {
  static const std::array<float, kNumCodes> e4m3 = make_e4m3_values();
  static const std::array<float, kNumCodes> e5m2 = make_e5m2_values();
  return dtype == DType::kE5M2 ? e5m2 : e4m3;
}

float e4m3_to_f32(std::uint8_t code) noexcept { return fp8_values(DType::kE4M3)[code]; }
float e5m2_to_f32(std::uint8_t code) noexcept { return fp8_values(DType::kE5M2)[code]; }

float ue8m0_to_f32(std::uint8_t code) noexcept {
  if (code == kUe8m0Nan) return std::numeric_limits<float>::quiet_NaN();
  return std::ldexp(1.0F, static_cast<int>(code) - kUe8m0Bias);
}

void decode_elements(DType dtype, std::span<const std::byte> bytes, std::span<float> out) {
  const auto element_bytes = static_cast<std::size_t>(size_bytes(dtype));
  if (dtype == DType::kI32 || bytes.size() % element_bytes != 0 ||
      bytes.size() / element_bytes != out.size()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("decode_elements: {} bytes of {} for {} elements; the caller must give "
                            "exactly the bytes of a floating-point array. This is a defect of the "
                            "reader; report it.",
                            bytes.size(), to_string(dtype), out.size()));
  }
  switch (dtype) {
    case DType::kF32:
      if (!out.empty()) std::memcpy(out.data(), bytes.data(), bytes.size());
      break;
    case DType::kF16: decode_each<std::uint16_t>(bytes, out, f16_to_f32); break;
    case DType::kBF16: decode_each<std::uint16_t>(bytes, out, bf16_to_f32); break;
    case DType::kE4M3:
    case DType::kE5M2: {
      const std::span<const float> values = fp8_values(dtype);
      decode_each<std::uint8_t>(bytes, out, [values](std::uint8_t code) { return values[code]; });
      break;
    }
    case DType::kUE8M0: decode_each<std::uint8_t>(bytes, out, ue8m0_to_f32); break;
    case DType::kI32: break;
  }
}

}  // namespace octavo::llm
