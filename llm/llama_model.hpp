// SPDX-License-Identifier: Apache-2.0
// The Llama decoder on Octavo's products and attention: tokens in, logits out, keys and values into
// a cache. Text, sampling and timing are generate.hpp's business.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "llm/checkpoint.hpp"
#include "llm/kv_cache.hpp"
#include "llm/linear.hpp"
#include "llm/llama_weights.hpp"
#include "llm/precision.hpp"
#include "octavo/backend.hpp"

namespace octavo::llm {

enum class LogitRows {
  kLast,  // of the chunk's last token only
  kAll,
};

// Memory for one forward pass, reserved once. One per thread that runs the model.
class DecoderScratch {
 public:
  [[nodiscard]] std::int64_t max_tokens() const noexcept { return max_tokens_; }

 private:
  friend class LlamaModel;
  std::int64_t max_tokens_ = 0;
  std::int64_t max_logit_rows_ = 0;
  std::vector<float> residual_;   // [tokens, hidden]
  std::vector<float> norm_;       // [tokens, hidden]
  std::vector<float> qkv_;        // [tokens, (heads + 2 kv_heads) * head_dim]
  std::vector<std::uint16_t> q_;  // [tokens, heads * head_dim], BF16
  std::vector<float> attention_;  // [tokens, heads * head_dim]
  std::vector<float> gate_up_;    // [tokens, 2 * intermediate]
  std::vector<float> gated_;      // [tokens, intermediate]
  std::vector<float> cosine_;     // [tokens, head_dim / 2]
  std::vector<float> sine_;
  std::vector<float> logits_;  // [logit rows, vocab]
  ActivationScratch activations_;
};

class LlamaModel {
 public:
  // Throws Error (kBadFile) for a tensor that is missing or has a wrong shape.
  LlamaModel(const Checkpoint& checkpoint, const Precision& precision,
             const Execution& execution = {});

  [[nodiscard]] const LlamaConfig& config() const noexcept { return config_; }
  [[nodiscard]] const Precision& precision() const noexcept { return precision_; }
  [[nodiscard]] const LlamaWeights& weights() const noexcept { return weights_; }

  [[nodiscard]] KvCache make_cache() const;
  // For chunks of up to max_tokens tokens.
  [[nodiscard]] DecoderScratch make_scratch(std::int64_t max_tokens, LogitRows rows) const;

  // Runs the tokens at the positions that follow the cache's, and adds their keys and values to it.
  // Returns logits [1 or tokens, vocab], valid until the scratch is used again. Throws Error
  // (kInvalidArgument) for no tokens, more than the scratch or the context has room for, or an id
  // outside the vocabulary; the cache then stays as it was.
  std::span<const float> forward(std::span<const std::int32_t> tokens, KvCache& cache,
                                 DecoderScratch& scratch, LogitRows rows) const;

 private:
  void check(std::span<const std::int32_t> tokens, const KvCache& cache,
             const DecoderScratch& scratch, LogitRows rows) const;
  void run_layer(std::int64_t layer_idx, std::int64_t num_tokens, KvCache& cache,
                 DecoderScratch& scratch) const;
  void run_attention(std::int64_t layer_idx, std::int64_t num_tokens, const KvCache& cache,
                     DecoderScratch& scratch) const;

  LlamaConfig config_;
  Precision precision_;
  Execution execution_;
  LlamaWeights weights_;
  std::vector<double> rope_frequencies_;
};

}  // namespace octavo::llm
