// SPDX-License-Identifier: Apache-2.0
// A prompt to a stream of text: prefill, then one token at a time until a stop token, a limit or
// the end of the context; with the times that tell how fast.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/chat_template.hpp"
#include "llm/checkpoint.hpp"
#include "llm/llama_model.hpp"
#include "llm/sampler.hpp"
#include "llm/tokenizer_bpe.hpp"

namespace octavo::llm {

// The tokenizer that came with the checkpoint: in the GGUF, or tokenizer.json beside it.
[[nodiscard]] BpeTokenizer load_tokenizer(const Checkpoint& checkpoint);

// One user message as a chat prompt. `system` may be empty.
[[nodiscard]] std::vector<std::int32_t> encode_chat_prompt(const BpeTokenizer& tokenizer,
                                                           std::string_view message,
                                                           std::string_view system);
// The text itself, after bos where the model was trained with it.
[[nodiscard]] std::vector<std::int32_t> encode_raw_prompt(const BpeTokenizer& tokenizer,
                                                          std::string_view text);

// Ids that end an answer: the config's, the tokenizer's and the chat format's.
[[nodiscard]] std::vector<std::int32_t> stop_tokens(const LlamaConfig& config,
                                                    const BpeTokenizer& tokenizer);

enum class StopReason { kStopToken, kMaxTokens, kContextFull };

[[nodiscard]] constexpr std::string_view to_string(StopReason reason) noexcept {
  switch (reason) {
    case StopReason::kStopToken: return "stop_token";
    case StopReason::kMaxTokens: return "max_tokens";
    case StopReason::kContextFull: return "context_full";
  }
  return "?";
}

struct GenerateOptions {
  std::int64_t max_tokens = 256;
  SamplerParams sampler;
  std::vector<std::int32_t> stop_tokens;
};

struct GenerateReport {
  std::vector<std::int32_t> tokens;  // generated ones, without the stop token
  std::string text;
  StopReason stop_reason = StopReason::kMaxTokens;
  std::int64_t num_prompt_tokens = 0;
  double prefill_seconds = 0;  // until the first token is chosen
  // The steps after the first token, the one that gave the stop token included.
  std::int64_t num_decode_steps = 0;
  double decode_seconds = 0;
  std::int64_t weight_bytes_per_token = 0;

  [[nodiscard]] double prefill_tokens_per_second() const noexcept;
  [[nodiscard]] double decode_tokens_per_second() const noexcept;
  // The share of `bytes_per_second` that reading the weights once per decoded token amounts to.
  [[nodiscard]] double fraction_of_bandwidth(double bytes_per_second) const noexcept;
};

// `on_text` gets whole UTF-8 characters as they are complete; it may be empty.
// Throws Error (kInvalidArgument) for an empty prompt or one that fills the context.
[[nodiscard]] GenerateReport generate(const LlamaModel& model, const BpeTokenizer& tokenizer,
                                      std::span<const std::int32_t> prompt,
                                      const GenerateOptions& options,
                                      const std::function<void(std::string_view)>& on_text);

}  // namespace octavo::llm
