// SPDX-License-Identifier: Apache-2.0
// A model's weights as the decoder multiplies them: Q, K and V as one product, gate and up as one.
// Loading only; what is done with them is in llama_model.hpp.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "llm/checkpoint.hpp"
#include "llm/linear.hpp"
#include "llm/precision.hpp"

namespace octavo::llm {

struct LlamaLayer {
  std::vector<float> attention_norm;
  Linear qkv;  // rows: query heads, key heads, value heads
  Linear attention_output;
  std::vector<float> mlp_norm;
  Linear gate_up;  // rows: gate, then up
  Linear down;
};

struct LlamaWeights {
  std::vector<LlamaLayer> layers;
  std::vector<float> final_norm;
  Linear head;
  // The head's rows, unless it is another matrix or an FP8 one: embeddings are looked up in 16 bits
  // at least, since nothing is gained by reading one row in fewer.
  std::optional<Linear> separate_embedding;

  [[nodiscard]] const Linear& embedding() const noexcept {
    return separate_embedding ? *separate_embedding : head;
  }
  // Bytes that one decoded token reads: every layer's products and the head.
  [[nodiscard]] std::int64_t bytes_per_token() const noexcept;
};

// A checkpoint's own FP8 weights keep their codes and scales where one product can use them: E4M3,
// and merged parts that are scaled per tensor or row throughout, or in blocks that end where a part
// ends. Others are multiplied out and quantized again as `precision` says.
// Throws Error (kBadFile) for a tensor that is missing or has another shape than the config says.
[[nodiscard]] LlamaWeights load_llama_weights(const Checkpoint& checkpoint,
                                              const Precision& precision,
                                              const Execution& execution);

}  // namespace octavo::llm
