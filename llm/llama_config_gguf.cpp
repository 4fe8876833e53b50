// SPDX-License-Identifier: Apache-2.0
// LlamaConfig from the metadata of a GGUF file ("llama.*" keys). See llama_config.hpp.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <string>

#include "llm/file_error.hpp"
#include "llm/llama_config.hpp"
#include "llm/llama_config_checks.hpp"

namespace octavo::llm {
namespace {

// What GGUF readers take where a file leaves the key out.
constexpr double kDefaultTheta = 10000.0;

std::optional<std::int64_t> optional_integer(const GgufFile& file, const char* key) {
  const std::optional<std::uint64_t> value = file.uint(key);
  if (!value) return std::nullopt;
  // Saturated rather than wrapped: the bounds that follow refuse it and show a number.
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return static_cast<std::int64_t>(std::min(*value, kMax));
}

[[noreturn]] void throw_missing(const GgufFile& file, const char* key) {
  throw bad_file(file.name(), fmt::format("metadata key {} is missing", key),
                 "a Llama model must have it", "Convert the model again with a current tool");
}

std::int64_t required(const GgufFile& file, const char* key, std::int64_t max) {
  const std::optional<std::int64_t> value = optional_integer(file, key);
  if (!value) throw_missing(file, key);
  return bounded(*value, max, key, file.name());
}

std::int64_t vocab_size(const GgufFile& file) {
  constexpr const char* kKey = "llama.vocab_size";
  if (file.has(kKey)) return required(file, kKey, kMaxVocab);
  const GgufTensor* embedding = file.find("token_embd.weight");
  if (embedding == nullptr) throw_missing(file, kKey);
  return bounded(embedding->shape.front(), kMaxVocab, "the height of token_embd.weight",
                 file.name());
}

RopeScaling rope_scaling(const GgufFile& file) {
  RopeScaling scaling;
  const std::string type = file.string("llama.rope.scaling.type").value_or("none");
  if (type == "none") return scaling;
  if (type != "linear") {
    throw bad_file(file.name(), fmt::format("llama.rope.scaling.type is {}", printable(type)),
                   "\"none\" and \"linear\" are served, and Llama 3's factors as a tensor",
                   "Use a model without this scaling");
  }
  constexpr const char* kFactor = "llama.rope.scaling.factor";
  const std::optional<double> factor = file.number(kFactor);
  if (!factor) throw_missing(file, kFactor);
  scaling.kind = RopeScalingKind::kLinear;
  scaling.factor = checked_scaling_factor(*factor, kFactor, file.name());
  return scaling;
}

// Keys that must agree with a dimension already known where they are present.
void check_equal(const GgufFile& file, const char* key, std::int64_t expected, const char* rule) {
  const std::optional<std::int64_t> value = optional_integer(file, key);
  if (!value || *value == expected) return;
  throw bad_file(file.name(), fmt::format("{} is {}", key, *value),
                 fmt::format("it must be {}: {}", expected, rule), "Use another model");
}

}  // namespace

LlamaConfig llama_config_from_gguf(const GgufFile& file) {
  constexpr const char* kArchitecture = "general.architecture";
  const std::optional<std::string> architecture = file.string(kArchitecture);
  if (!architecture) throw_missing(file, kArchitecture);
  if (*architecture != "llama") {
    throw bad_file(file.name(), fmt::format("{} is {}", kArchitecture, printable(*architecture)),
                   "\"llama\" is the one architecture that is served", "Use a Llama model");
  }
  check_equal(file, "llama.expert_count", 0, "mixtures of experts are not served");

  LlamaConfig config;
  config.vocab_size = vocab_size(file);
  config.hidden_size = required(file, "llama.embedding_length", kMaxHidden);
  config.intermediate_size = required(file, "llama.feed_forward_length", kMaxIntermediate);
  config.num_layers = required(file, "llama.block_count", kMaxLayers);
  config.num_heads = required(file, "llama.attention.head_count", kMaxHeads);
  constexpr const char* kKvHeads = "llama.attention.head_count_kv";
  config.num_kv_heads = file.has(kKvHeads) ? required(file, kKvHeads, kMaxHeads) : config.num_heads;
  constexpr const char* kKeyLength = "llama.attention.key_length";
  config.head_dim = file.has(kKeyLength) ? required(file, kKeyLength, kMaxHeadDim)
                                         : derived_head_dim(config, file.name());
  config.head_dim = bounded(config.head_dim, kMaxHeadDim, "the head dimension", file.name());
  check_equal(file, "llama.attention.value_length", config.head_dim,
              "keys and values have heads of one size");
  check_equal(file, "llama.rope.dimension_count", config.head_dim, "RoPE turns whole heads");
  config.max_positions = required(file, "llama.context_length", kMaxPositions);
  config.rope_theta =
      checked_rope_theta(file.number("llama.rope.freq_base").value_or(kDefaultTheta),
                         "llama.rope.freq_base", file.name());
  constexpr const char* kEps = "llama.attention.layer_norm_rms_epsilon";
  const std::optional<double> eps = file.number(kEps);
  if (!eps) throw_missing(file, kEps);
  config.rms_norm_eps = checked_rms_norm_eps(*eps, kEps, file.name());
  config.rope_scaling = rope_scaling(file);
  config.tie_word_embeddings = file.find("output.weight") == nullptr;
  config.attention_bias = file.find("blk.0.attn_q.bias") != nullptr;
  config.bos_token_id = optional_integer(file, "tokenizer.ggml.bos_token_id");
  for (const char* key : {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"}) {
    const std::optional<std::int64_t> id = optional_integer(file, key);
    if (id && std::find(config.eos_token_ids.begin(), config.eos_token_ids.end(), *id) ==
                  config.eos_token_ids.end()) {
      config.eos_token_ids.push_back(*id);
    }
  }
  check_consistent(config, file.name());
  return config;
}

}  // namespace octavo::llm
