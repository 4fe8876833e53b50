// SPDX-License-Identifier: Apache-2.0
// Element types. Free of std headers: the device contract shares this file.
#pragma once

namespace octavo {

// Formats: E4M3 is the OCP "fn" flavour (bias 7, no Inf, NaN 0x7F/0xFF, max 448), E5M2 the OCP one
// (bias 15, Inf, max 57344), UE8M0 an unsigned power of two (bias 127, no zero, NaN 0xFF).
// AMD's FNUZ flavours are other formats with the same name and are not accepted anywhere.
enum class DType : unsigned char { kE4M3, kE5M2, kUE8M0, kBF16, kF16, kF32, kI32 };

[[nodiscard]] constexpr int size_bytes(DType dtype) noexcept {
  switch (dtype) {
    case DType::kE4M3:
    case DType::kE5M2:
    case DType::kUE8M0: return 1;
    case DType::kBF16:
    case DType::kF16: return 2;
    case DType::kF32:
    case DType::kI32: return 4;
  }
  return 0;
}

[[nodiscard]] constexpr bool is_fp8(DType dtype) noexcept {
  return dtype == DType::kE4M3 || dtype == DType::kE5M2;
}

[[nodiscard]] constexpr bool is_16bit(DType dtype) noexcept {
  return dtype == DType::kBF16 || dtype == DType::kF16;
}

// Values a product or attention can read or write (not scales, not indices).
[[nodiscard]] constexpr bool is_value_type(DType dtype) noexcept {
  return is_fp8(dtype) || is_16bit(dtype) || dtype == DType::kF32;
}

[[nodiscard]] constexpr const char* to_string(DType dtype) noexcept {
  switch (dtype) {
    case DType::kE4M3: return "e4m3";
    case DType::kE5M2: return "e5m2";
    case DType::kUE8M0: return "ue8m0";
    case DType::kBF16: return "bf16";
    case DType::kF16: return "f16";
    case DType::kF32: return "f32";
    case DType::kI32: return "i32";
  }
  return "?";
}

// Largest finite magnitude of an FP8 format: 1.75 * 2^8 and 1.75 * 2^15 (OCP 8-bit floating point
// specification 1.0, table 1).
[[nodiscard]] constexpr float max_finite_fp8(DType dtype) noexcept {
  return dtype == DType::kE5M2 ? 57344.0F : 448.0F;
}

}  // namespace octavo
