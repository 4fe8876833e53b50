// SPDX-License-Identifier: Apache-2.0
// LlamaConfig from config.json and from GGUF metadata: values, defaults, bounds, refusals.
#include "llm/llama_config.hpp"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "checkpoint/file_builders.hpp"

namespace octavo::llm {
namespace {

using nlohmann::json;
using test::Bytes;
using test::bytes_of;
using test::expect_error;
using test::GgufBuilder;

json llama_json() {
  return json::parse(R"({
    "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
    "vocab_size": 128256, "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "max_position_embeddings": 131072, "rms_norm_eps": 1e-05, "rope_theta": 500000.0,
    "rope_scaling": {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
                     "original_max_position_embeddings": 8192, "rope_type": "llama3"},
    "tie_word_embeddings": false, "attention_bias": false, "mlp_bias": false,
    "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009]})");
}

LlamaConfig read(const json& document) {
  return llama_config_from_json(document.dump(), "config.json");
}

void refuse(const json& document, std::initializer_list<std::string_view> parts) {
  expect_error(ErrorCode::kBadFile, {"config.json: "}, [&] { (void)read(document); });
  expect_error(ErrorCode::kBadFile, parts, [&] { (void)read(document); });
}

// The document with one member changed; JSON null stands for itself.
json with(const std::string& key, json value) {
  json document = llama_json();
  document[key] = std::move(value);
  return document;
}

json without(const std::string& key) {
  json document = llama_json();
  document.erase(key);
  return document;
}

TEST(LlamaConfigJson, a_llama_3_configuration) {
  const LlamaConfig config = read(llama_json());
  EXPECT_EQ(config.vocab_size, 128256);
  EXPECT_EQ(config.hidden_size, 4096);
  EXPECT_EQ(config.intermediate_size, 14336);
  EXPECT_EQ(config.num_layers, 32);
  EXPECT_EQ(config.num_heads, 32);
  EXPECT_EQ(config.num_kv_heads, 8);
  EXPECT_EQ(config.head_dim, 128);
  EXPECT_EQ(config.max_positions, 131072);
  EXPECT_EQ(config.rope_theta, 500000.0F);
  EXPECT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_FALSE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::kLlama3);
  EXPECT_EQ(config.rope_scaling.factor, 8.0F);
  EXPECT_EQ(config.rope_scaling.low_freq_factor, 1.0F);
  EXPECT_EQ(config.rope_scaling.high_freq_factor, 4.0F);
  EXPECT_EQ(config.rope_scaling.original_max_positions, 8192);
  EXPECT_EQ(config.bos_token_id, 128000);
  EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{128001, 128008, 128009}));
  EXPECT_EQ(config.declared_scales, std::nullopt);
}

TEST(LlamaConfigJson, defaults_of_absent_and_null_keys) {
  for (const bool null : {false, true}) {
    json document = llama_json();
    for (const char* key :
         {"num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "rope_theta",
          "rope_scaling", "tie_word_embeddings", "attention_bias", "mlp_bias", "bos_token_id",
          "eos_token_id", "hidden_act", "head_dim", "quantization_config"}) {
      if (null) {
        document[key] = nullptr;
      } else {
        document.erase(key);
      }
    }
    const LlamaConfig config = read(document);
    EXPECT_EQ(config.num_kv_heads, 32);
    EXPECT_EQ(config.max_positions, 2048);
    EXPECT_EQ(config.rms_norm_eps, 1e-6F);
    EXPECT_EQ(config.rope_theta, 10000.0F);
    EXPECT_EQ(config.rope_scaling.kind, RopeScalingKind::kNone);
    EXPECT_EQ(config.bos_token_id, std::nullopt);
    EXPECT_TRUE(config.eos_token_ids.empty());
  }
}

TEST(LlamaConfigJson, missing_null_and_wrong_values_name_the_key) {
  for (const char* key : {"vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers",
                          "num_attention_heads"}) {
    refuse(without(key), {key, "missing or null"});
    refuse(with(key, nullptr), {key, "missing or null"});
    for (const json& value : {json(0), json(-1), json(INT64_MAX), json(INT64_MIN)}) {
      refuse(with(key, value), {key, "must be 1 to"});
    }
    for (const json& value : {json(1.5), json("64"), json(UINT64_MAX), json(true), json::array()}) {
      refuse(with(key, value), {key, "an integer"});
    }
  }
  refuse(with("num_key_value_heads", 0), {"num_key_value_heads", "1 to"});
  refuse(with("head_dim", 1 << 20), {"head_dim", "1 to 1024"});
  refuse(with("max_position_embeddings", std::int64_t{1} << 40), {"max_position_embeddings"});
  refuse(with("rope_theta", 0.0), {"rope_theta is 0"});
  refuse(with("rope_theta", -5), {"rope_theta is -5"});
  refuse(with("rope_theta", "big"), {"rope_theta", "a number"});
  refuse(with("rms_norm_eps", 0), {"rms_norm_eps"});
  refuse(with("rms_norm_eps", 1e30), {"rms_norm_eps"});
  refuse(with("tie_word_embeddings", 1), {"tie_word_embeddings", "true or false"});
  refuse(with("bos_token_id", 128256), {"BOS", "128255"});
  refuse(with("bos_token_id", -1), {"BOS"});
  refuse(with("eos_token_id", {1, "x"}), {"eos_token_id"});
  refuse(with("eos_token_id", {1, 1 << 30}), {"EOS"});
  refuse(with("eos_token_id", {UINT64_MAX}), {"EOS"});
  refuse(with("eos_token_id", std::vector<int>(1000, 1)), {"eos_token_id", "1000", "at most 64"});
  refuse(json::array(), {"array", "object"});
  expect_error(ErrorCode::kBadFile, {"config.json", "line 1"},
               [] { (void)llama_config_from_json("{", "config.json"); });
}

TEST(LlamaConfigJson, rules_between_fields) {
  refuse(with("num_key_value_heads", 5), {"32 query heads and 5 key/value heads", "multiple"});
  refuse(with("hidden_size", 4095), {"4095", "32 heads"});
  refuse(with("head_dim", 63), {"63", "even"});
  json explicit_head = with("hidden_size", 4095);
  explicit_head["head_dim"] = 64;
  EXPECT_EQ(read(explicit_head).head_dim, 64);
}

TEST(LlamaConfigJson, architectures_are_refused_by_name) {
  refuse(with("architectures", {"Qwen2ForCausalLM"}), {"Qwen2ForCausalLM", "LlamaForCausalLM"});
  refuse(with("architectures", {"LlamaForCausalLM", "Other"}), {"architectures"});
  refuse(with("architectures", json::array()), {"architectures"});
  refuse(with("architectures", "LlamaForCausalLM"), {"architectures"});
  json only_type = without("architectures");
  EXPECT_EQ(read(only_type).num_layers, 32);
  only_type["model_type"] = "gemma";
  refuse(only_type, {"gemma"});
  only_type.erase("model_type");
  refuse(only_type, {"architectures is missing"});

  json mistral = with("architectures", {"MistralForCausalLM"});
  EXPECT_EQ(read(mistral).num_layers, 32);
  mistral["sliding_window"] = nullptr;
  EXPECT_EQ(read(mistral).num_layers, 32);
  mistral["sliding_window"] = 4096;
  refuse(mistral, {"sliding_window is 4096"});
}

TEST(LlamaConfigJson, settings_that_change_the_arithmetic_are_refused) {
  refuse(with("hidden_act", "gelu"), {"hidden_act", "gelu"});
  refuse(with("mlp_bias", true), {"mlp_bias"});
  refuse(with("partial_rotary_factor", 0.5), {"partial_rotary_factor is 0.5"});
  EXPECT_TRUE(read(with("attention_bias", true)).attention_bias);
}

TEST(LlamaConfigJson, rope_scaling_forms) {
  const LlamaConfig linear = read(with("rope_scaling", {{"type", "linear"}, {"factor", 4}}));
  EXPECT_EQ(linear.rope_scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(linear.rope_scaling.factor, 4.0F);
  EXPECT_EQ(read(with("rope_scaling", {{"rope_type", "default"}})).rope_scaling.kind,
            RopeScalingKind::kNone);
  json parameters = without("rope_scaling");
  parameters.erase("rope_theta");
  parameters["rope_parameters"] = {
      {"rope_type", "linear"}, {"factor", 2.0}, {"rope_theta", 7000.0}};
  EXPECT_EQ(read(parameters).rope_theta, 7000.0F);
  EXPECT_EQ(read(parameters).rope_scaling.factor, 2.0F);

  refuse(with("rope_scaling", {{"type", "yarn"}, {"factor", 4}}),
         {"rope_scaling.rope_type", "yarn"});
  refuse(with("rope_scaling", json::object()), {"rope_scaling.rope_type is missing"});
  refuse(with("rope_scaling", {{"type", "linear"}}), {"rope_scaling.factor is missing"});
  refuse(with("rope_scaling", {{"type", "linear"}, {"factor", 0}}), {"rope_scaling.factor is 0"});
  refuse(with("rope_scaling", 8.0), {"rope_scaling", "object"});
  json llama3 = llama_json();
  llama3["rope_scaling"]["high_freq_factor"] = 1.0;
  refuse(llama3, {"high_freq_factor is 1", "low_freq_factor"});
  llama3["rope_scaling"].erase("high_freq_factor");
  refuse(llama3, {"rope_scaling.high_freq_factor is missing"});
}

TEST(LlamaConfigJson, quantization_declares_granularity) {
  const auto declared = [](const char* text) {
    return read(with("quantization_config", json::parse(text))).declared_scales;
  };
  EXPECT_EQ(declared(R"({"quant_method":"fp8","weight_block_size":[128,128]})"),
            ScaleGranularity::kBlock);
  EXPECT_EQ(declared(R"({"quant_method":"fp8"})"), std::nullopt);
  EXPECT_EQ(declared(R"({"config_groups":{"group_0":{"weights":{"strategy":"channel"}}}})"),
            ScaleGranularity::kRow);
  EXPECT_EQ(declared(R"({"config_groups":{"a":{"weights":{"strategy":"tensor"}}},
                         "ignore":["lm_head"]})"),
            ScaleGranularity::kTensor);
  EXPECT_EQ(declared(R"({"config_groups":{"a":{"weights":{"strategy":"channel"}},
                                          "b":{"weights":{"strategy":"tensor"}}}})"),
            std::nullopt);
  refuse(with("quantization_config", {{"weight_block_size", {64, 128}}}),
         {"quantization_config.weight_block_size", "[128, 128]"});
  refuse(with("quantization_config", {{"weight_block_size", 128}}), {"weight_block_size"});
  refuse(with("quantization_config",
              json::parse(R"({"config_groups":{"a":{"weights":{"strategy":"block",
                              "block_structure":[128,64]}}}})")),
         {"block_structure", "128x128"});
  refuse(with("quantization_config", "fp8"), {"quantization_config", "object"});
}

LlamaConfig read(const GgufBuilder& builder) {
  const Bytes bytes = builder.bytes();
  return llama_config_from_gguf(GgufFile::parse(bytes, "model.gguf"));
}

void refuse(const GgufBuilder& builder, std::initializer_list<std::string_view> parts) {
  expect_error(ErrorCode::kBadFile, {"model.gguf: "}, [&] { (void)read(builder); });
  expect_error(ErrorCode::kBadFile, parts, [&] { (void)read(builder); });
}

TEST(LlamaConfigGguf, values_and_defaults) {
  const LlamaConfig config = read(test::llama_metadata());
  EXPECT_EQ(config.vocab_size, 8);
  EXPECT_EQ(config.hidden_size, 32);
  EXPECT_EQ(config.intermediate_size, 64);
  EXPECT_EQ(config.num_layers, 1);
  EXPECT_EQ(config.num_heads, 4);
  EXPECT_EQ(config.num_kv_heads, 2);
  EXPECT_EQ(config.head_dim, 8);
  EXPECT_EQ(config.max_positions, 128);
  EXPECT_EQ(config.rope_theta, 10000.0F);
  EXPECT_EQ(config.rms_norm_eps, 1e-5F);
  EXPECT_TRUE(config.tie_word_embeddings);
  EXPECT_FALSE(config.attention_bias);
  EXPECT_EQ(config.bos_token_id, 1);
  EXPECT_EQ(config.eos_token_ids, (std::vector<std::int64_t>{2}));

  GgufBuilder more = test::llama_metadata();
  more.u32("tokenizer.ggml.eot_token_id", 3)
      .u32("llama.attention.key_length", 16)
      .u32("llama.attention.value_length", 16)
      .u32("llama.rope.dimension_count", 16)
      .string("llama.rope.scaling.type", "linear")
      .f32("llama.rope.scaling.factor", 4.0F)
      .tensor("output.weight", GgmlType::kF32, {1}, Bytes(4))
      .tensor("blk.0.attn_q.bias", GgmlType::kF32, {1}, Bytes(4));
  const LlamaConfig other = read(more);
  EXPECT_EQ(other.head_dim, 16);
  EXPECT_EQ(other.eos_token_ids, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(other.rope_scaling.kind, RopeScalingKind::kLinear);
  EXPECT_EQ(other.rope_scaling.factor, 4.0F);
  EXPECT_FALSE(other.tie_word_embeddings);
  EXPECT_TRUE(other.attention_bias);
}

TEST(LlamaConfigGguf, vocabulary_from_the_embedding) {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.context_length", 128)
      .u32("llama.embedding_length", 32)
      .u32("llama.feed_forward_length", 64)
      .u32("llama.attention.head_count", 4)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  refuse(builder, {"llama.vocab_size is missing"});
  builder.tensor("token_embd.weight", GgmlType::kF32, {5, 32}, Bytes(640));
  const LlamaConfig config = read(builder);
  EXPECT_EQ(config.vocab_size, 5);
  EXPECT_EQ(config.num_kv_heads, 4);
  EXPECT_EQ(config.rope_theta, 10000.0F);
}

TEST(LlamaConfigGguf, refusals) {
  refuse(GgufBuilder(), {"general.architecture is missing"});
  refuse(GgufBuilder().string("general.architecture", "gemma2"), {"gemma2", "llama"});
  refuse(GgufBuilder().u32("general.architecture", 1), {"general.architecture", "a string"});
  refuse(GgufBuilder().string("general.architecture", "llama").u32("llama.vocab_size", 8),
         {"llama.embedding_length is missing"});
  refuse(test::llama_metadata().u32("llama.expert_count", 8),
         {"llama.expert_count is 8", "experts"});
  refuse(test::llama_metadata().u32("llama.rope.dimension_count", 4), {"dimension_count is 4"});
  refuse(test::llama_metadata().u32("llama.attention.value_length", 4), {"value_length is 4"});
  refuse(test::llama_metadata().u32("llama.attention.key_length", 0), {"key_length is 0"});
  refuse(test::llama_metadata().u32("llama.attention.key_length", 7), {"7", "even"});
  refuse(test::llama_metadata().string("llama.rope.scaling.type", "yarn"), {"yarn"});
  refuse(test::llama_metadata().string("llama.rope.scaling.type", "linear"), {"factor is missing"});
  refuse(test::llama_metadata().u32("tokenizer.ggml.eot_token_id", 8), {"EOS", "0 to 7"});
  GgufBuilder builder;
  builder.string("general.architecture", "llama").u32("llama.vocab_size", 8);
  builder.raw("llama.embedding_length", GgufType::kUint64, bytes_of<std::uint64_t>({UINT64_MAX}));
  refuse(builder, {"llama.embedding_length is 9223372036854775807"});
}

}  // namespace
}  // namespace octavo::llm
