// SPDX-License-Identifier: Apache-2.0
#include "llm/llama_model.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "llm/elementwise.hpp"
#include "octavo/attention.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {

LlamaModel::LlamaModel(const Checkpoint& checkpoint, const Precision& precision,
                       const Execution& execution)
    : config_(checkpoint.config()),
      precision_(precision),
      execution_(execution),
      weights_(load_llama_weights(checkpoint, precision, execution)) {
  const std::vector<float> factors =
      checkpoint.rope_frequency_factors().value_or(std::vector<float>{});
  rope_frequencies_ = rope_frequencies(config_, factors);
}

KvCache LlamaModel::make_cache() const {
  return {{.num_layers = config_.num_layers,
           .num_kv_heads = config_.num_kv_heads,
           .head_dim = config_.head_dim,
           .max_positions = config_.max_positions},
          precision_.kv_cache};
}

DecoderScratch LlamaModel::make_scratch(std::int64_t max_tokens, LogitRows rows) const {
  if (max_tokens < 1 || max_tokens > config_.max_positions) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("llama: max_tokens of a chunk is {}; it must be 1 to {}, the model's "
                            "context. Choose a chunk within it.",
                            max_tokens, config_.max_positions));
  }
  const auto size = [max_tokens](std::int64_t width) {
    return static_cast<std::size_t>(max_tokens * width);
  };
  const std::int64_t q_width = config_.num_heads * config_.head_dim;
  const std::int64_t kv_width = config_.num_kv_heads * config_.head_dim;
  DecoderScratch scratch;
  scratch.max_tokens_ = max_tokens;
  scratch.max_logit_rows_ = rows == LogitRows::kAll ? max_tokens : 1;
  scratch.residual_.resize(size(config_.hidden_size));
  scratch.norm_.resize(size(config_.hidden_size));
  scratch.qkv_.resize(size(q_width + 2 * kv_width));
  scratch.q_.resize(size(q_width));
  scratch.attention_.resize(size(q_width));
  scratch.gate_up_.resize(size(2 * config_.intermediate_size));
  scratch.gated_.resize(size(config_.intermediate_size));
  scratch.cosine_.resize(size(config_.head_dim / 2));
  scratch.sine_.resize(size(config_.head_dim / 2));
  scratch.logits_.resize(static_cast<std::size_t>(scratch.max_logit_rows_ * config_.vocab_size));
  scratch.activations_.reserve(max_tokens,
                               std::max({config_.hidden_size, q_width, config_.intermediate_size}));
  return scratch;
}

void LlamaModel::check(std::span<const std::int32_t> tokens, const KvCache& cache,
                       const DecoderScratch& scratch, LogitRows rows) const {
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  const std::int64_t limit =
      rows == LogitRows::kAll ? scratch.max_logit_rows_ : scratch.max_tokens_;
  if (num_tokens < 1 || num_tokens > limit) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("llama: a chunk of {} tokens was given; this scratch serves 1 to {}. "
                            "Split the chunk, or make a larger scratch.",
                            num_tokens, limit));
  }
  if (num_tokens > config_.max_positions - cache.length()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("llama: {} tokens after {} in the cache were given; the model's context "
                    "is {} tokens. Shorten the prompt or generate fewer tokens.",
                    num_tokens, cache.length(), config_.max_positions));
  }
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= config_.vocab_size) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("llama: token {} of the chunk is {}; the vocabulary has ids 0 to {}. "
                              "Use the tokenizer that belongs to the model.",
                              i, tokens[i], config_.vocab_size - 1));
    }
  }
}

std::span<const float> LlamaModel::forward(std::span<const std::int32_t> tokens, KvCache& cache,
                                           DecoderScratch& scratch, LogitRows rows) const {
  check(tokens, cache, scratch, rows);
  const auto num_tokens = static_cast<std::int64_t>(tokens.size());
  const auto hidden = static_cast<std::size_t>(config_.hidden_size);
  cache.begin(num_tokens);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    weights_.embedding().read_row(tokens[i],
                                  std::span(scratch.residual_).subspan(i * hidden, hidden));
  }
  rope_angles(rope_frequencies_, cache.length(), num_tokens, scratch.cosine_.data(),
              scratch.sine_.data());
  for (std::int64_t layer = 0; layer < config_.num_layers; ++layer) {
    run_layer(layer, num_tokens, cache, scratch);
  }
  cache.commit();

  const std::int64_t logit_rows = rows == LogitRows::kAll ? num_tokens : 1;
  const float* last = scratch.residual_.data() + (num_tokens - logit_rows) * config_.hidden_size;
  rms_norm(last, logit_rows, weights_.final_norm, config_.rms_norm_eps, scratch.norm_.data());
  weights_.head.apply(scratch.norm_.data(), logit_rows, scratch.logits_.data(),
                      scratch.activations_, execution_);
  return {scratch.logits_.data(), static_cast<std::size_t>(logit_rows * config_.vocab_size)};
}

void LlamaModel::run_layer(std::int64_t layer_idx, std::int64_t num_tokens, KvCache& cache,
                           DecoderScratch& scratch) const {
  const LlamaLayer& layer = weights_.layers[static_cast<std::size_t>(layer_idx)];
  const std::int64_t q_width = config_.num_heads * config_.head_dim;
  const std::int64_t kv_width = config_.num_kv_heads * config_.head_dim;
  const std::int64_t qkv_width = q_width + 2 * kv_width;
  float* residual = scratch.residual_.data();
  float* norm = scratch.norm_.data();

  rms_norm(residual, num_tokens, layer.attention_norm, config_.rms_norm_eps, norm);
  layer.qkv.apply(norm, num_tokens, scratch.qkv_.data(), scratch.activations_, execution_);
  // Query and key heads are adjacent, so one pass turns both.
  apply_rope({.x = scratch.qkv_.data(),
              .rows = num_tokens,
              .row_stride = qkv_width,
              .heads = config_.num_heads + config_.num_kv_heads,
              .head_dim = config_.head_dim},
             scratch.cosine_.data(), scratch.sine_.data());
  const float* k = scratch.qkv_.data() + q_width;
  cache.write(layer_idx, k, k + kv_width, qkv_width, execution_);
  run_attention(layer_idx, num_tokens, cache, scratch);
  // The normalised input is no longer needed: what each half of the layer adds goes in its place.
  layer.attention_output.apply(scratch.attention_.data(), num_tokens, norm, scratch.activations_,
                               execution_);
  add(residual, norm, num_tokens * config_.hidden_size);

  rms_norm(residual, num_tokens, layer.mlp_norm, config_.rms_norm_eps, norm);
  layer.gate_up.apply(norm, num_tokens, scratch.gate_up_.data(), scratch.activations_, execution_);
  silu_mul(scratch.gate_up_.data(), num_tokens, config_.intermediate_size, scratch.gated_.data());
  layer.down.apply(scratch.gated_.data(), num_tokens, norm, scratch.activations_, execution_);
  add(residual, norm, num_tokens * config_.hidden_size);
}

void LlamaModel::run_attention(std::int64_t layer_idx, std::int64_t num_tokens,
                               const KvCache& cache, DecoderScratch& scratch) const {
  const std::int64_t q_width = config_.num_heads * config_.head_dim;
  const std::int64_t qkv_width = q_width + 2 * config_.num_kv_heads * config_.head_dim;
  AttentionProblem problem;
  if (cache.format() == NumberFormat::kF32) {
    problem.q = make_view(static_cast<const float*>(scratch.qkv_.data()), DType::kF32,
                          {1, num_tokens, config_.num_heads, config_.head_dim});
    problem.q.strides[0] = num_tokens * qkv_width;
    problem.q.strides[1] = qkv_width;
  } else {
    cache.rotate_queries({.x = scratch.qkv_.data(),
                          .rows = num_tokens,
                          .row_stride = qkv_width,
                          .heads = config_.num_heads,
                          .head_dim = config_.head_dim});
    // Queries meet 8- and 16-bit keys in BF16: they are read once, so fewer bits would save
    // nothing.
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      to_bf16({scratch.qkv_.data() + token * qkv_width, static_cast<std::size_t>(q_width)},
              scratch.q_.data() + token * q_width);
    }
    problem.q = make_view(static_cast<const std::uint16_t*>(scratch.q_.data()), DType::kBF16,
                          {1, num_tokens, config_.num_heads, config_.head_dim});
  }
  cache.set_keys_and_values(layer_idx, problem);
  problem.o = make_view(scratch.attention_.data(), DType::kF32,
                        {1, num_tokens, config_.num_heads, config_.head_dim});
  problem.mask = AttentionMask::kCausal;
  (void)attention(problem, execution_);
}

}  // namespace octavo::llm
