// SPDX-License-Identifier: Apache-2.0
// LlamaConfig from Hugging Face's config.json. See llama_config.hpp.
#include <fmt/format.h>

#include <string>

#include "llm/file_error.hpp"
#include "llm/json_file.hpp"
#include "llm/llama_config.hpp"
#include "llm/llama_config_checks.hpp"

namespace octavo::llm {
namespace {

using nlohmann::json;

// Defaults of Hugging Face's LlamaConfig (transformers, configuration_llama.py).
constexpr std::int64_t kDefaultPositions = 2048;
constexpr double kDefaultTheta = 10000.0;
constexpr double kDefaultEps = 1e-6;
constexpr std::size_t kMaxEosTokens = 64;

std::int64_t required(const JsonFields& fields, const char* key, std::int64_t max) {
  const std::optional<std::int64_t> value = fields.integer(key);
  if (!value) fields.throw_missing(key);
  return bounded(*value, max, fields.path_of(key), fields.file());
}

std::int64_t integer_or(const JsonFields& fields, const char* key, std::int64_t fallback,
                        std::int64_t max) {
  return bounded(fields.integer(key).value_or(fallback), max, fields.path_of(key), fields.file());
}

float required_factor(const JsonFields& fields, const char* key) {
  const std::optional<double> value = fields.number(key);
  if (!value) fields.throw_missing(key);
  return checked_scaling_factor(*value, fields.path_of(key), fields.file());
}

[[noreturn]] void refuse(const JsonFields& fields, const char* key, std::string_view found,
                         std::string_view rule) {
  throw bad_file(fields.file(), fmt::format("{} is {}", fields.path_of(key), found), rule,
                 "Use a model that Octavo serves");
}

void check_architecture(const JsonFields& fields) {
  constexpr const char* kRule =
      "LlamaForCausalLM is served, and MistralForCausalLM without a sliding window";
  std::string name;
  if (const json* list = fields.find("architectures"); list != nullptr) {
    if (!list->is_array() || list->size() != 1 || !list->front().is_string()) {
      fields.throw_type_error("architectures", *list, "an array of one string");
    }
    name = list->front().get<std::string>();
  } else {
    const std::optional<std::string> model_type = fields.string("model_type");
    if (!model_type) fields.throw_missing("architectures");
    if (*model_type != "llama") refuse(fields, "model_type", printable(*model_type), kRule);
    return;
  }
  if (name == "LlamaForCausalLM") return;
  if (name != "MistralForCausalLM") refuse(fields, "architectures", printable(name), kRule);
  if (const json* window = fields.find("sliding_window"); window != nullptr) {
    refuse(fields, "sliding_window", window->is_number() ? window->dump() : window->type_name(),
           kRule);
  }
}

// Settings of other models that would change the arithmetic.
void check_settings(const JsonFields& fields) {
  if (const auto activation = fields.string("hidden_act"); activation && *activation != "silu") {
    refuse(fields, "hidden_act", printable(*activation), "the feed-forward part uses \"silu\"");
  }
  if (fields.boolean("mlp_bias").value_or(false)) {
    refuse(fields, "mlp_bias", "true", "feed-forward layers without bias are served");
  }
  if (const auto part = fields.number("partial_rotary_factor"); part && *part != 1.0) {
    refuse(fields, "partial_rotary_factor", fmt::format("{}", *part), "RoPE turns whole heads");
  }
}

RopeScaling read_rope_scaling(const JsonFields& fields) {
  RopeScaling scaling;
  std::optional<std::string> type = fields.string("rope_type");
  if (!type) type = fields.string("type");  // the older name of the key
  if (!type) fields.throw_missing("rope_type");
  if (*type == "default") return scaling;
  if (*type != "linear" && *type != "llama3") {
    refuse(fields, "rope_type", printable(*type),
           "\"default\", \"linear\" and \"llama3\" are served");
  }
  scaling.factor = required_factor(fields, "factor");
  scaling.kind = RopeScalingKind::kLinear;
  if (*type == "linear") return scaling;
  scaling.kind = RopeScalingKind::kLlama3;
  scaling.low_freq_factor = required_factor(fields, "low_freq_factor");
  scaling.high_freq_factor = required_factor(fields, "high_freq_factor");
  scaling.original_max_positions =
      required(fields, "original_max_position_embeddings", kMaxPositions);
  return scaling;
}

// RoPE's settings stand at the top and in rope_scaling, or together in rope_parameters (from
// version 5 of transformers).
void read_rope(const JsonFields& fields, LlamaConfig& config) {
  double theta = fields.number("rope_theta").value_or(kDefaultTheta);
  const std::string parameters_path = fields.path_of("rope_parameters");
  const std::string scaling_path = fields.path_of("rope_scaling");
  if (const json* parameters = fields.find("rope_parameters"); parameters != nullptr) {
    const JsonFields inner(*parameters, fields.file(), parameters_path);
    theta = inner.number("rope_theta").value_or(theta);
    config.rope_scaling = read_rope_scaling(inner);
  } else if (const json* scaling = fields.find("rope_scaling"); scaling != nullptr) {
    config.rope_scaling = read_rope_scaling(JsonFields(*scaling, fields.file(), scaling_path));
  }
  config.rope_theta = checked_rope_theta(theta, fields.path_of("rope_theta"), fields.file());
}

void check_block_size(const JsonFields& fields, const char* key, const json& size) {
  const bool served =
      size.is_array() && size.size() == 2 && size[0] == kScaleBlock && size[1] == kScaleBlock;
  if (served) return;
  throw bad_file(fields.file(), fmt::format("{} is not [128, 128]", fields.path_of(key)),
                 "weight scales per block cover 128x128 elements",
                 "Use a checkpoint with such blocks, or one with scales per tensor or per row");
}

// Written as {"weight_block_size": [128, 128]} or as groups of {"weights": {"strategy": "block",
// "block_structure": [128, 128]}}.
std::optional<ScaleGranularity> declared_scales(const JsonFields& fields) {
  if (const json* size = fields.find("weight_block_size"); size != nullptr) {
    check_block_size(fields, "weight_block_size", *size);
    return ScaleGranularity::kBlock;
  }
  const json* groups = fields.find("config_groups");
  if (groups == nullptr || !groups->is_object()) return std::nullopt;
  std::optional<ScaleGranularity> declared;
  const std::string group_path = fields.path_of("config_groups.*");
  for (const json& group : *groups) {
    const JsonFields group_fields(group, fields.file(), group_path);
    const json* weights = group_fields.find("weights");
    if (weights == nullptr) continue;
    const std::string weights_path = group_fields.path_of("weights");
    const JsonFields weight_fields(*weights, fields.file(), weights_path);
    const std::string strategy = weight_fields.string("strategy").value_or("");
    std::optional<ScaleGranularity> of_group;
    if (strategy == "tensor") of_group = ScaleGranularity::kTensor;
    if (strategy == "channel") of_group = ScaleGranularity::kRow;
    if (strategy == "block") {
      of_group = ScaleGranularity::kBlock;
      if (const json* size = weight_fields.find("block_structure"); size != nullptr) {
        check_block_size(weight_fields, "block_structure", *size);
      }
    }
    // Groups that disagree declare nothing; shapes then decide, tensor by tensor.
    if (declared && declared != of_group) return std::nullopt;
    declared = of_group;
  }
  return declared;
}

void read_tokens(const JsonFields& fields, LlamaConfig& config) {
  config.bos_token_id = fields.integer("bos_token_id");
  const json* eos = fields.find("eos_token_id");
  if (eos == nullptr) return;
  if (!eos->is_array()) {
    config.eos_token_ids.push_back(*fields.integer("eos_token_id"));
    return;
  }
  if (eos->size() > kMaxEosTokens) {
    refuse(fields, "eos_token_id", fmt::format("an array of {}", eos->size()),
           fmt::format("there may be at most {} of them", kMaxEosTokens));
  }
  for (const json& id : *eos) {
    if (!id.is_number_integer())
      fields.throw_type_error("eos_token_id", id, "an array of integers");
    config.eos_token_ids.push_back(id.get<std::int64_t>());
  }
}

}  // namespace

LlamaConfig llama_config_from_json(std::string_view text, std::string_view file) {
  const json document = parse_json(text, file);
  const JsonFields fields(document, file, "");
  check_architecture(fields);
  check_settings(fields);

  LlamaConfig config;
  config.vocab_size = required(fields, "vocab_size", kMaxVocab);
  config.hidden_size = required(fields, "hidden_size", kMaxHidden);
  config.intermediate_size = required(fields, "intermediate_size", kMaxIntermediate);
  config.num_layers = required(fields, "num_hidden_layers", kMaxLayers);
  config.num_heads = required(fields, "num_attention_heads", kMaxHeads);
  config.num_kv_heads = integer_or(fields, "num_key_value_heads", config.num_heads, kMaxHeads);
  const std::optional<std::int64_t> head_dim = fields.integer("head_dim");
  config.head_dim =
      bounded(head_dim ? *head_dim : derived_head_dim(config, file), kMaxHeadDim, "head_dim", file);
  config.max_positions =
      integer_or(fields, "max_position_embeddings", kDefaultPositions, kMaxPositions);
  config.rms_norm_eps = checked_rms_norm_eps(fields.number("rms_norm_eps").value_or(kDefaultEps),
                                             "rms_norm_eps", file);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings").value_or(false);
  config.attention_bias = fields.boolean("attention_bias").value_or(false);
  read_rope(fields, config);
  read_tokens(fields, config);
  if (const json* quantization = fields.find("quantization_config"); quantization != nullptr) {
    config.declared_scales =
        declared_scales(JsonFields(*quantization, file, "quantization_config"));
  }
  check_consistent(config, file);
  return config;
}

}  // namespace octavo::llm
