// SPDX-License-Identifier: Apache-2.0
#include "llm/llama_weights.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

// One of the checkpoint's matrices that a product merges: [rows, cols of the product].
struct Part {
  std::string name;
  std::int64_t rows;
};

class Loader {
 public:
  Loader(const Checkpoint& checkpoint, const Precision& precision, const Execution& execution)
      : checkpoint_(checkpoint), precision_(precision), execution_(execution) {}

  [[nodiscard]] Linear layer_product(const std::vector<Part>& parts, std::int64_t cols) {
    const Linear::Formats formats{.weights = precision_.weights,
                                  .activations = precision_.activations,
                                  .fp8_recipe = precision_.fp8_recipe};
    return product(parts, cols, formats);
  }

  [[nodiscard]] Linear product(const std::vector<Part>& parts, std::int64_t cols,
                               const Linear::Formats& formats) {
    if (formats.weights == NumberFormat::kFp8) {
      std::optional<Linear> stored = from_stored_fp8(parts, cols, formats);
      if (stored) return std::move(*stored);
    }
    std::vector<float> weight;
    std::int64_t rows = 0;
    for (const Part& part : parts) {
      const std::vector<float> values = checkpoint_.load_f32(part.name, part.rows, cols);
      weight.insert(weight.end(), values.begin(), values.end());
      rows += part.rows;
    }
    return Linear::from_f32(weight, {rows, cols}, formats, arena_, execution_);
  }

  [[nodiscard]] std::vector<float> vector(const std::string& name, std::int64_t size) const {
    return checkpoint_.load_f32(name, 1, size);
  }

  [[nodiscard]] const Checkpoint& checkpoint() const noexcept { return checkpoint_; }

 private:
  [[nodiscard]] std::optional<Linear> from_stored_fp8(const std::vector<Part>& parts,
                                                      std::int64_t cols, Linear::Formats formats) {
    std::vector<StoredFp8> stored;
    for (const Part& part : parts) {
      std::optional<StoredFp8> weight = checkpoint_.fp8(part.name);
      if (!weight || weight->dtype != DType::kE4M3) return std::nullopt;
      if (weight->rows != part.rows || weight->cols != cols) {
        throw Error(ErrorCode::kBadFile,
                    fmt::format("llama: {} has shape [{}, {}]; config.json's dimensions need "
                                "[{}, {}]. Use the config that belongs to these weights.",
                                part.name, weight->rows, weight->cols, part.rows, cols));
      }
      stored.push_back(std::move(*weight));
    }
    const auto is_block = [](const StoredFp8& weight) {
      return weight.granularity == ScaleGranularity::kBlock;
    };
    const bool all_blocks = std::all_of(stored.begin(), stored.end(), is_block);
    if (!all_blocks && std::any_of(stored.begin(), stored.end(), is_block)) return std::nullopt;
    // A block may not reach from one part into the next: their scales differ.
    const bool blocks_end_with_parts =
        std::all_of(stored.begin(), stored.end() - 1,
                    [](const StoredFp8& weight) { return weight.rows % kScaleBlock == 0; });
    if (all_blocks && !blocks_end_with_parts) return std::nullopt;
    return merge(stored, cols, all_blocks ? ScaleRecipe::kBlock : ScaleRecipe::kRow, formats);
  }

  [[nodiscard]] Linear merge(const std::vector<StoredFp8>& parts, std::int64_t cols,
                             ScaleRecipe recipe, Linear::Formats formats) {
    std::vector<std::uint8_t> codes;
    std::vector<float> scales;
    std::int64_t rows = 0;
    for (const StoredFp8& part : parts) {
      codes.insert(codes.end(), part.codes, part.codes + part.rows * cols);
      if (part.granularity == ScaleGranularity::kTensor) {
        scales.insert(scales.end(), static_cast<std::size_t>(part.rows), part.scales.front());
      } else {
        scales.insert(scales.end(), part.scales.begin(), part.scales.end());
      }
      rows += part.rows;
    }
    formats.fp8_recipe = recipe;
    return Linear::from_fp8(codes, scales, {rows, cols}, formats, arena_);
  }

  const Checkpoint& checkpoint_;
  const Precision& precision_;
  const Execution& execution_;
  WeightArena arena_;
};

LlamaLayer load_layer(Loader& loader, std::int64_t layer_idx) {
  const LlamaConfig& config = loader.checkpoint().config();
  const std::int64_t hidden = config.hidden_size;
  const std::int64_t inner = config.intermediate_size;
  const std::int64_t q_rows = config.num_heads * config.head_dim;
  const std::int64_t kv_rows = config.num_kv_heads * config.head_dim;
  const std::string prefix = fmt::format("model.layers.{}.", layer_idx);
  const std::vector<Part> qkv{{prefix + "self_attn.q_proj", q_rows},
                              {prefix + "self_attn.k_proj", kv_rows},
                              {prefix + "self_attn.v_proj", kv_rows}};
  const auto weights_of = [](std::vector<Part> parts) {
    for (Part& part : parts) part.name += ".weight";
    return parts;
  };

  LlamaLayer layer;
  layer.attention_norm = loader.vector(prefix + "input_layernorm.weight", hidden);
  layer.qkv = loader.layer_product(weights_of(qkv), hidden);
  layer.attention_output =
      loader.layer_product({{prefix + "self_attn.o_proj.weight", hidden}}, q_rows);
  if (config.attention_bias) {
    std::vector<float> bias;
    for (const Part& part : qkv) {
      const std::vector<float> values = loader.vector(part.name + ".bias", part.rows);
      bias.insert(bias.end(), values.begin(), values.end());
    }
    layer.qkv.set_bias(std::move(bias));
    const std::string output_bias = prefix + "self_attn.o_proj.bias";
    if (loader.checkpoint().contains(output_bias)) {
      layer.attention_output.set_bias(loader.vector(output_bias, hidden));
    }
  }
  layer.mlp_norm = loader.vector(prefix + "post_attention_layernorm.weight", hidden);
  layer.gate_up = loader.layer_product(
      {{prefix + "mlp.gate_proj.weight", inner}, {prefix + "mlp.up_proj.weight", inner}}, hidden);
  layer.down = loader.layer_product({{prefix + "mlp.down_proj.weight", hidden}}, inner);
  return layer;
}

}  // namespace

std::int64_t LlamaWeights::bytes_per_token() const noexcept {
  std::int64_t total = head.size_bytes();
  for (const LlamaLayer& layer : layers) {
    total += layer.qkv.size_bytes() + layer.attention_output.size_bytes() +
             layer.gate_up.size_bytes() + layer.down.size_bytes();
  }
  return total;
}

LlamaWeights load_llama_weights(const Checkpoint& checkpoint, const Precision& precision,
                                const Execution& execution) {
  const LlamaConfig& config = checkpoint.config();
  Loader loader(checkpoint, precision, execution);
  LlamaWeights weights;
  for (std::int64_t i = 0; i < config.num_layers; ++i) {
    weights.layers.push_back(load_layer(loader, i));
  }
  weights.final_norm = loader.vector("model.norm.weight", config.hidden_size);

  // The head's input is in the head's own format: a 16-bit head is wanted for its accuracy.
  const Linear::Formats head_formats{
      .weights = precision.head, .activations = precision.head, .fp8_recipe = precision.fp8_recipe};
  const std::string embedding_name = "model.embed_tokens.weight";
  const std::string head_name = config.tie_word_embeddings ? embedding_name : "lm_head.weight";
  weights.head = loader.product({{head_name, config.vocab_size}}, config.hidden_size, head_formats);
  if (!config.tie_word_embeddings || precision.head == NumberFormat::kFp8) {
    const NumberFormat embedding_format =
        precision.head == NumberFormat::kF32 ? NumberFormat::kF32 : NumberFormat::kBf16;
    weights.separate_embedding = loader.product(
        {{embedding_name, config.vocab_size}}, config.hidden_size,
        {.weights = embedding_format, .activations = embedding_format, .fp8_recipe = {}});
  }
  return weights;
}

}  // namespace octavo::llm
