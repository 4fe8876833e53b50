// SPDX-License-Identifier: Apache-2.0
// The bounds of a LlamaConfig, shared by its two readers (llama_config_gguf.cpp and
// llama_config_json.cpp). Internal to them.
#pragma once

#include <cstdint>
#include <string_view>

#include "llm/llama_config.hpp"

namespace octavo::llm {

// Far above any Llama known, low enough that products of any three stay below 2^63.
inline constexpr std::int64_t kMaxVocab = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxHidden = std::int64_t{1} << 17;
inline constexpr std::int64_t kMaxIntermediate = std::int64_t{1} << 20;
inline constexpr std::int64_t kMaxLayers = std::int64_t{1} << 10;
inline constexpr std::int64_t kMaxHeads = std::int64_t{1} << 12;
inline constexpr std::int64_t kMaxHeadDim = std::int64_t{1} << 10;
inline constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;

// Returns value if it is 1..max; throws Error (kBadFile) naming the key otherwise.
[[nodiscard]] std::int64_t bounded(std::int64_t value, std::int64_t max, std::string_view key,
                                   std::string_view file);

// Returns value as float if low <= value <= high (so not NaN); throws Error (kBadFile) otherwise.
[[nodiscard]] float bounded_float(double value, double low, double high, std::string_view key,
                                  std::string_view file);

// The rules between fields, and the ranges of fields that both formats share. Token ids must be
// below vocab_size.
void check_consistent(const LlamaConfig& config, std::string_view file);

// head_dim from the other two where a file leaves it out; throws if the heads do not divide.
[[nodiscard]] std::int64_t derived_head_dim(const LlamaConfig& config, std::string_view file);

// RoPE's base, RMSNorm's epsilon and a scaling factor, with the bounds of the two formats' fields.
[[nodiscard]] float checked_rope_theta(double value, std::string_view key, std::string_view file);
[[nodiscard]] float checked_rms_norm_eps(double value, std::string_view key, std::string_view file);
[[nodiscard]] float checked_scaling_factor(double value, std::string_view key,
                                           std::string_view file);

}  // namespace octavo::llm
