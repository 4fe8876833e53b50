// SPDX-License-Identifier: Apache-2.0
// In which number format each part of a model is kept and multiplied. What the formats cost is
// what `octavo perplexity` measures (perplexity.hpp).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "octavo/dtype.hpp"
#include "octavo/scale.hpp"

namespace octavo::llm {

enum class NumberFormat : std::uint8_t { kFp8, kBf16, kF32 };

[[nodiscard]] constexpr std::string_view to_string(NumberFormat format) noexcept {
  switch (format) {
    case NumberFormat::kFp8: return "fp8";
    case NumberFormat::kBf16: return "bf16";
    case NumberFormat::kF32: return "f32";
  }
  return "?";
}

[[nodiscard]] constexpr std::optional<NumberFormat> parse_number_format(
    std::string_view name) noexcept {
  for (const NumberFormat format : {NumberFormat::kFp8, NumberFormat::kBf16, NumberFormat::kF32}) {
    if (name == to_string(format)) return format;
  }
  return std::nullopt;
}

// FP8 means E4M3 in every place: E5M2's two fraction bits are too few for inference.
[[nodiscard]] constexpr DType dtype_of(NumberFormat format) noexcept {
  switch (format) {
    case NumberFormat::kFp8: return DType::kE4M3;
    case NumberFormat::kBf16: return DType::kBF16;
    case NumberFormat::kF32: return DType::kF32;
  }
  return DType::kF32;
}

struct Precision {
  NumberFormat weights = NumberFormat::kF32;      // of the decoder layers
  NumberFormat activations = NumberFormat::kF32;  // inputs of the layers' products
  NumberFormat kv_cache = NumberFormat::kF32;
  NumberFormat head = NumberFormat::kF32;  // the output projection and its input
  // Scales of FP8 weights and activations that this program makes: kRow (a weight scale per output
  // channel, an activation scale per token) or kBlock (128x128 and 1x128). A checkpoint's own FP8
  // weights keep the scales they have.
  ScaleRecipe fp8_recipe = ScaleRecipe::kRow;

  friend bool operator==(const Precision&, const Precision&) = default;
};

// Everything in one format, except that the head of an FP8 model stays BF16: every logit passes
// through it.
[[nodiscard]] constexpr Precision uniform_precision(NumberFormat format) noexcept {
  return {.weights = format,
          .activations = format,
          .kv_cache = format,
          .head = format == NumberFormat::kFp8 ? NumberFormat::kBf16 : format};
}

// "weights=fp8 activations=fp8 kv=fp8 head=bf16 recipe=row"; the recipe only where something is
// FP8.
[[nodiscard]] inline std::string to_string(const Precision& precision) {
  std::string text = "weights=" + std::string(to_string(precision.weights)) +
                     " activations=" + std::string(to_string(precision.activations)) +
                     " kv=" + std::string(to_string(precision.kv_cache)) +
                     " head=" + std::string(to_string(precision.head));
  const bool has_fp8_product = precision.weights == NumberFormat::kFp8 ||
                               precision.activations == NumberFormat::kFp8 ||
                               precision.head == NumberFormat::kFp8;
  if (has_fp8_product) text += std::string(" recipe=") + octavo::to_string(precision.fp8_recipe);
  return text;
}

}  // namespace octavo::llm
