// SPDX-License-Identifier: Apache-2.0
// One value between FP32 and a narrow format, bit for bit as Hopper's conversion instructions give
// it. Arrays: codec_array.hpp. Rules: docs/numerics.md, section "Formats".
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo {

inline constexpr std::uint32_t kF32SignBit = 0x80000000U;
inline constexpr std::uint32_t kF32Infinity = 0x7F800000U;
// The GPU's FP32 NaN: what every NaN code decodes to, sign dropped. (A BF16 code is the upper half
// of an FP32 number and keeps its bits.)
inline constexpr std::uint32_t kCanonicalNan = 0x7FFFFFFFU;

// An FP8 format with `kMantissaBits` stored mantissa bits, exponent bias `kBias` and largest finite
// code `kMaxCode`.
template <int kMantissaBits, int kBias, std::uint8_t kMaxCode>
struct Fp8Format {
  static constexpr int kDroppedBits = 23 - kMantissaBits;
  static constexpr std::uint8_t kNanCode = 0x7F;

  // Round to nearest even, saturating; NaN gives 0x7F (cvt.rn.satfinite, PTX ISA, "cvt").
  [[nodiscard]] static constexpr std::uint8_t encode(float value) noexcept {
    const auto bits = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t magnitude = bits & ~kF32SignBit;
    const auto sign = static_cast<std::uint8_t>((bits >> 24) & 0x80U);
    if (magnitude > kF32Infinity) return kNanCode;
    constexpr std::uint32_t kExponentOffset = static_cast<std::uint32_t>(127 - kBias)
                                              << kMantissaBits;
    constexpr std::uint32_t kMaxMagnitude = (kMaxCode + kExponentOffset) << kDroppedBits;
    if (magnitude >= kMaxMagnitude) return static_cast<std::uint8_t>(sign | kMaxCode);
    constexpr std::uint32_t kMinNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
    if (magnitude < kMinNormal) {
      // Adding a power of two whose last bit weighs the format's least subnormal rounds to it.
      constexpr std::uint32_t kMagic =
          static_cast<std::uint32_t>(127 + 23 + 1 - kBias - kMantissaBits) << 23;
      const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
      return static_cast<std::uint8_t>(sign | (std::bit_cast<std::uint32_t>(sum) - kMagic));
    }
    const std::uint32_t half_minus_one = (1U << (kDroppedBits - 1)) - 1;
    const std::uint32_t rounded = magnitude + half_minus_one + ((magnitude >> kDroppedBits) & 1U);
    return static_cast<std::uint8_t>(sign | ((rounded >> kDroppedBits) - kExponentOffset));
  }
};

struct E4M3 : Fp8Format<3, 7, 0x7E> {
  [[nodiscard]] static constexpr float decode(std::uint8_t code) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
    const std::uint32_t magnitude = code & 0x7FU;
    if (magnitude == 0x7FU) return std::bit_cast<float>(kCanonicalNan);
    if (magnitude < 8) {
      const float value = static_cast<float>(magnitude) * 0x1p-9F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
    }
    return std::bit_cast<float>(sign | ((magnitude << 20) + ((127U - 7U) << 23)));
  }
};

struct E5M2 : Fp8Format<2, 15, 0x7B> {
  [[nodiscard]] static constexpr float decode(std::uint8_t code) noexcept {
    const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
    const std::uint32_t magnitude = code & 0x7FU;
    if (magnitude > 0x7CU) return std::bit_cast<float>(kCanonicalNan);
    if (magnitude == 0x7CU) return std::bit_cast<float>(sign | kF32Infinity);
    if (magnitude < 4) {
      const float value = static_cast<float>(magnitude) * 0x1p-16F;
      return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
    }
    return std::bit_cast<float>(sign | ((magnitude << 21) + ((127U - 15U) << 23)));
  }
};

// CUDA's __nv_fp8_e8m0 from float: towards +Inf, saturating; the sign is ignored.
[[nodiscard]] constexpr std::uint8_t encode_ue8m0(float value) noexcept {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(value) & ~kF32SignBit;
  if (magnitude > kF32Infinity) return 0xFF;
  const std::uint32_t exponent = magnitude >> 23;
  const std::uint32_t mantissa = magnitude & 0x7FFFFFU;
  // An FP32 subnormal above 2^-127 rounds up to 2^-126; up to 2^-127 it is code 0.
  if (exponent == 0) return mantissa > 0x400000U ? 1 : 0;
  const std::uint32_t code = exponent + (mantissa != 0 ? 1 : 0);
  return static_cast<std::uint8_t>(code > 0xFE ? 0xFE : code);
}

[[nodiscard]] constexpr float decode_ue8m0(std::uint8_t code) noexcept {
  if (code == 0xFF) return std::bit_cast<float>(kCanonicalNan);
  if (code == 0) return 0x1p-127F;
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 23);
}

// cvt.rn.bf16.f32: nearest even, NaN gives 0x7FFF.
[[nodiscard]] constexpr std::uint16_t encode_bf16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~kF32SignBit) > kF32Infinity) return 0x7FFF;
  return static_cast<std::uint16_t>((bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16);
}

[[nodiscard]] constexpr float decode_bf16(std::uint16_t code) noexcept {
  return std::bit_cast<float>(static_cast<std::uint32_t>(code) << 16);
}

// cvt.rn.f16.f32: nearest even with subnormals, overflow to Inf, NaN gives 0x7FFF.
[[nodiscard]] constexpr std::uint16_t encode_f16(float value) noexcept {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t magnitude = bits & ~kF32SignBit;
  const auto sign = static_cast<std::uint16_t>((bits >> 16) & 0x8000U);
  if (magnitude > kF32Infinity) return 0x7FFF;
  constexpr std::uint32_t kOverflow = 0x477FF000U;  // 65520, the tie between 65504 and 2^16
  if (magnitude >= kOverflow) return static_cast<std::uint16_t>(sign | 0x7C00U);
  constexpr std::uint32_t kMinNormal = (127U - 14U) << 23;
  if (magnitude < kMinNormal) {
    constexpr std::uint32_t kMagic = (127U + 23U - 24U) << 23;  // last bit weighs 2^-24
    const float sum = std::bit_cast<float>(magnitude) + std::bit_cast<float>(kMagic);
    return static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - kMagic));
  }
  const std::uint32_t rounded = magnitude + 0xFFFU + ((magnitude >> 13) & 1U);
  return static_cast<std::uint16_t>(sign | ((rounded >> 13) - ((127U - 15U) << 10)));
}

[[nodiscard]] constexpr float decode_f16(std::uint16_t code) noexcept {
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x8000U) << 16;
  const std::uint32_t magnitude = code & 0x7FFFU;
  if (magnitude > 0x7C00U) return std::bit_cast<float>(kCanonicalNan);
  if (magnitude == 0x7C00U) return std::bit_cast<float>(sign | kF32Infinity);
  if (magnitude < 0x400U) {
    const float value = static_cast<float>(magnitude) * 0x1p-24F;
    return std::bit_cast<float>(sign | std::bit_cast<std::uint32_t>(value));
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + ((127U - 15U) << 23)));
}

// Every code's value, for loops that decode one element at a time.
template <typename Format>
inline constexpr std::array<float, 256> kFp8Values = [] {
  std::array<float, 256> values{};
  for (std::size_t code = 0; code < values.size(); ++code) {
    values[code] = Format::decode(static_cast<std::uint8_t>(code));
  }
  return values;
}();

// Element `offset` (in elements) of an array of any value or scale type, as FP32.
[[nodiscard]] inline float load_element(const void* data, DType dtype,
                                        std::int64_t offset) noexcept {
  switch (dtype) {
    case DType::kE4M3: return kFp8Values<E4M3>[static_cast<const std::uint8_t*>(data)[offset]];
    case DType::kE5M2: return kFp8Values<E5M2>[static_cast<const std::uint8_t*>(data)[offset]];
    case DType::kUE8M0: return decode_ue8m0(static_cast<const std::uint8_t*>(data)[offset]);
    case DType::kBF16: return decode_bf16(static_cast<const std::uint16_t*>(data)[offset]);
    case DType::kF16: return decode_f16(static_cast<const std::uint16_t*>(data)[offset]);
    case DType::kF32: return static_cast<const float*>(data)[offset];
    case DType::kI32: return static_cast<float>(static_cast<const std::int32_t*>(data)[offset]);
  }
  return 0;
}

// Rounds once to the array's type (FP8 saturating).
inline void store_element(void* data, DType dtype, std::int64_t offset, float value) noexcept {
  switch (dtype) {
    case DType::kE4M3: static_cast<std::uint8_t*>(data)[offset] = E4M3::encode(value); break;
    case DType::kE5M2: static_cast<std::uint8_t*>(data)[offset] = E5M2::encode(value); break;
    case DType::kUE8M0: static_cast<std::uint8_t*>(data)[offset] = encode_ue8m0(value); break;
    case DType::kBF16: static_cast<std::uint16_t*>(data)[offset] = encode_bf16(value); break;
    case DType::kF16: static_cast<std::uint16_t*>(data)[offset] = encode_f16(value); break;
    case DType::kF32: static_cast<float*>(data)[offset] = value; break;
    case DType::kI32:
      static_cast<std::int32_t*>(data)[offset] = static_cast<std::int32_t>(value);
      break;
  }
}

}  // namespace octavo
