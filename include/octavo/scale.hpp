// SPDX-License-Identifier: Apache-2.0
// Scales: which recipes exist, what shape each scale tensor has and which scale an element uses.
// A scale always multiplies: x is represented by q * scale (checkpoints call the same number
// "scale" or, misleadingly, "scale_inv"). Free of std headers: the device contract shares this
// file.
#pragma once

namespace octavo {

// Width of a scale block along K, and its height where blocks are square (DeepSeek-V3 technical
// report, arXiv 2412.19437, section 3.3.1).
inline constexpr int kScaleBlock = 128;

// How finely one operand [rows, K] is scaled, and the shape of its scale tensor:
enum class ScaleGranularity : unsigned char {
  kNone,          // no scale tensor: the scale is 1
  kTensor,        // [1]
  kRow,           // [rows], also accepted as [rows, 1]: a token, or an output channel
  kBlock1x128,    // [rows, ceil(K/128)], in any strides (row-major or M-major)
  kBlock128x128,  // [ceil(rows/128), ceil(K/128)]
};

// How a product's two operands are scaled.
enum class ScaleRecipe : unsigned char {
  kNone,     // no scales
  kTensor,   // A and B: one scale per tensor
  kRow,      // A: one per row (token); B: one per row (output channel)
  kBlock,    // A: 1x128; B: 128x128 (DeepSeek-V3, Qwen3 FP8 checkpoints)
  kBlock1d,  // A and B: 1x128 (weight gradients)
};

// Where quantize() takes its scales from.
enum class ScaleSource : unsigned char {
  kDynamic,  // computed from the data's largest finite magnitude, and written
  kGiven,    // read: static calibration or the caller's own
};

// The floor under a group's largest magnitude, so that an all-zero or tiny group has a finite,
// normal, positive scale. DeepSeek's quantizers use the same 1e-4.
inline constexpr float kDefaultAmaxFloor = 1e-4F;

[[nodiscard]] constexpr ScaleGranularity a_granularity(ScaleRecipe recipe) noexcept {
  switch (recipe) {
    case ScaleRecipe::kNone: return ScaleGranularity::kNone;
    case ScaleRecipe::kTensor: return ScaleGranularity::kTensor;
    case ScaleRecipe::kRow: return ScaleGranularity::kRow;
    case ScaleRecipe::kBlock:
    case ScaleRecipe::kBlock1d: return ScaleGranularity::kBlock1x128;
  }
  return ScaleGranularity::kNone;
}

[[nodiscard]] constexpr ScaleGranularity b_granularity(ScaleRecipe recipe) noexcept {
  return recipe == ScaleRecipe::kBlock ? ScaleGranularity::kBlock128x128 : a_granularity(recipe);
}

[[nodiscard]] constexpr bool is_block_scaled(ScaleRecipe recipe) noexcept {
  return recipe == ScaleRecipe::kBlock || recipe == ScaleRecipe::kBlock1d;
}

// ceil(extent / kScaleBlock); a ragged last block is smaller and has a scale of its own.
[[nodiscard]] constexpr long long num_scale_blocks(long long extent) noexcept {
  return extent / kScaleBlock + (extent % kScaleBlock != 0 ? 1 : 0);
}

struct ScaleShape {
  long long rows;
  long long cols;

  friend constexpr bool operator==(const ScaleShape&, const ScaleShape&) = default;
};

// Shape of the scale tensor of an operand [rows, k].
[[nodiscard]] constexpr ScaleShape scale_shape(ScaleGranularity granularity, long long rows,
                                               long long k) noexcept {
  switch (granularity) {
    case ScaleGranularity::kNone: return {0, 0};
    case ScaleGranularity::kTensor: return {1, 1};
    case ScaleGranularity::kRow: return {rows, 1};
    case ScaleGranularity::kBlock1x128: return {rows, num_scale_blocks(k)};
    case ScaleGranularity::kBlock128x128: return {num_scale_blocks(rows), num_scale_blocks(k)};
  }
  return {0, 0};
}

// Position in the scale tensor of the scale that element (row, k) uses.
[[nodiscard]] constexpr ScaleShape scale_index(ScaleGranularity granularity, long long row,
                                               long long k) noexcept {
  switch (granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kTensor: return {0, 0};
    case ScaleGranularity::kRow: return {row, 0};
    case ScaleGranularity::kBlock1x128: return {row, k / kScaleBlock};
    case ScaleGranularity::kBlock128x128: return {row / kScaleBlock, k / kScaleBlock};
  }
  return {0, 0};
}

[[nodiscard]] constexpr const char* to_string(ScaleGranularity granularity) noexcept {
  switch (granularity) {
    case ScaleGranularity::kNone: return "none";
    case ScaleGranularity::kTensor: return "tensor";
    case ScaleGranularity::kRow: return "row";
    case ScaleGranularity::kBlock1x128: return "1x128";
    case ScaleGranularity::kBlock128x128: return "128x128";
  }
  return "?";
}

[[nodiscard]] constexpr const char* to_string(ScaleRecipe recipe) noexcept {
  switch (recipe) {
    case ScaleRecipe::kNone: return "none";
    case ScaleRecipe::kTensor: return "tensor";
    case ScaleRecipe::kRow: return "row";
    case ScaleRecipe::kBlock: return "block";
    case ScaleRecipe::kBlock1d: return "block1d";
  }
  return "?";
}

}  // namespace octavo
