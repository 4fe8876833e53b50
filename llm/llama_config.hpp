// SPDX-License-Identifier: Apache-2.0
// The dimensions and constants of a Llama-architecture model, read from GGUF metadata or from
// Hugging Face's config.json and checked: what is here can be used for sizes without further tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "llm/gguf_reader.hpp"

namespace octavo::llm {

enum class RopeScalingKind : std::uint8_t { kNone, kLinear, kLlama3 };

// kLinear uses factor; kLlama3 uses all four.
struct RopeScaling {
  RopeScalingKind kind = RopeScalingKind::kNone;
  float factor = 1.0F;
  float low_freq_factor = 1.0F;
  float high_freq_factor = 1.0F;
  std::int64_t original_max_positions = 0;
};

// How the scales of an FP8 weight W[N,K] are laid out: [1], [N] or [ceil(N/128), ceil(K/128)].
enum class ScaleGranularity : std::uint8_t { kTensor, kRow, kBlock };

inline constexpr std::int64_t kScaleBlock = 128;  // rows and columns that share a scale of kBlock

struct LlamaConfig {
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_positions = 0;
  float rope_theta = 0.0F;
  float rms_norm_eps = 0.0F;
  bool tie_word_embeddings = false;
  bool attention_bias = false;
  RopeScaling rope_scaling;
  std::optional<std::int64_t> bos_token_id;
  std::vector<std::int64_t> eos_token_ids;
  // What quantization_config declares about weight scales; decides only where a shape has two
  // readings.
  std::optional<ScaleGranularity> declared_scales;
};

// Both throw Error (kBadFile) for a missing key, a wrong type, a number out of bounds, or an
// architecture that is not Llama's; the message names the key.
[[nodiscard]] LlamaConfig llama_config_from_gguf(const GgufFile& file);
[[nodiscard]] LlamaConfig llama_config_from_json(std::string_view text, std::string_view file);

}  // namespace octavo::llm
