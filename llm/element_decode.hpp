// SPDX-License-Identifier: Apache-2.0
// Little-endian elements of checkpoint files (F32, F16, BF16, FP8, UE8M0) decoded to float.
// Every value of these formats is a float exactly. For GGUF's quantized blocks see ggml_blocks.hpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#include "octavo/dtype.hpp"

namespace octavo::llm {

static_assert(std::endian::native == std::endian::little,
              "checkpoint files are little-endian and are read in place");

[[nodiscard]] float f16_to_f32(std::uint16_t bits) noexcept;
[[nodiscard]] inline float bf16_to_f32(std::uint16_t bits) noexcept {
  constexpr int kBf16Shift = 16;  // bf16 is the upper half of an f32
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << kBf16Shift);
}
[[nodiscard]] float e4m3_to_f32(std::uint8_t code) noexcept;
[[nodiscard]] float e5m2_to_f32(std::uint8_t code) noexcept;
[[nodiscard]] float ue8m0_to_f32(std::uint8_t code) noexcept;

// The 256 values of an FP8 format, indexed by code.
[[nodiscard]] std::span<const float> fp8_values(DType dtype) noexcept;

// Decodes out.size() elements. The bytes need no alignment. Throws Error (kInternal) if
// bytes.size() is not out.size() elements or dtype is kI32.
void decode_elements(DType dtype, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace octavo::llm
