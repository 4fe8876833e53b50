// SPDX-License-Identifier: Apache-2.0
#include "llm/generate.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "llm/tokenizer_source.hpp"
#include "llm/utf8_stream.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using Clock = std::chrono::steady_clock;

// PERF: products of 256 rows run at nearly the speed of longer ones, and their buffers stay small.
constexpr std::int64_t kPrefillChunk = 256;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

double per_second(std::int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0;
}

// Some chat formats begin with bos themselves: one is enough.
std::vector<std::int32_t> with_bos(const BpeTokenizer& tokenizer, std::vector<std::int32_t> ids) {
  if (tokenizer.add_bos() && tokenizer.bos() && (ids.empty() || ids.front() != *tokenizer.bos())) {
    ids.insert(ids.begin(), *tokenizer.bos());
  }
  return ids;
}

void check_prompt(const LlamaConfig& config, std::span<const std::int32_t> prompt) {
  if (prompt.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "generate: the prompt has no tokens; at least one is needed. Give some text.");
  }
  const auto length = static_cast<std::int64_t>(prompt.size());
  if (length >= config.max_positions) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("generate: the prompt has {} tokens; the model's context is {} tokens "
                            "and an answer needs at least one of them. Shorten the prompt.",
                            length, config.max_positions));
  }
}

}  // namespace

BpeTokenizer load_tokenizer(const Checkpoint& checkpoint) {
  if (checkpoint.gguf() != nullptr) {
    return BpeTokenizer::from_parts(tokenizer_parts_from_gguf(*checkpoint.gguf()));
  }
  return BpeTokenizer::from_parts(
      tokenizer_parts_from_json_file(checkpoint.folder() / "tokenizer.json"));
}

std::vector<std::int32_t> encode_chat_prompt(const BpeTokenizer& tokenizer,
                                             std::string_view message, std::string_view system) {
  const std::vector<ChatMessage> messages{{ChatRole::kUser, std::string(message)}};
  return with_bos(tokenizer, encode_chat(tokenizer, format_chat(detect_chat_format(tokenizer),
                                                                messages, system)));
}

std::vector<std::int32_t> encode_raw_prompt(const BpeTokenizer& tokenizer, std::string_view text) {
  return with_bos(tokenizer, tokenizer.encode(text, SpecialTokens::kAsText));
}

std::vector<std::int32_t> stop_tokens(const LlamaConfig& config, const BpeTokenizer& tokenizer) {
  std::vector<std::int32_t> ids;
  for (const std::int64_t id : config.eos_token_ids) ids.push_back(static_cast<std::int32_t>(id));
  if (tokenizer.eos()) ids.push_back(*tokenizer.eos());
  const std::string_view turn = end_of_turn(detect_chat_format(tokenizer));
  if (!turn.empty()) {
    const std::optional<std::int32_t> id = tokenizer.find(turn);
    if (id) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end());
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

double GenerateReport::prefill_tokens_per_second() const noexcept {
  return per_second(num_prompt_tokens, prefill_seconds);
}

double GenerateReport::decode_tokens_per_second() const noexcept {
  return per_second(num_decode_steps, decode_seconds);
}

double GenerateReport::fraction_of_bandwidth(double bytes_per_second) const noexcept {
  const double used = decode_tokens_per_second() * static_cast<double>(weight_bytes_per_token);
  return bytes_per_second > 0 ? used / bytes_per_second : 0;
}

GenerateReport generate(const LlamaModel& model, const BpeTokenizer& tokenizer,
                        std::span<const std::int32_t> prompt, const GenerateOptions& options,
                        const std::function<void(std::string_view)>& on_text) {
  const LlamaConfig& config = model.config();
  check_prompt(config, prompt);
  Sampler sampler(options.sampler);
  GenerateReport report;
  report.num_prompt_tokens = static_cast<std::int64_t>(prompt.size());
  report.weight_bytes_per_token = model.weights().bytes_per_token();

  // All memory is taken before the clock starts, so that no step allocates.
  const std::int64_t chunk = std::min(kPrefillChunk, report.num_prompt_tokens);
  const std::int64_t room = config.max_positions - report.num_prompt_tokens;
  const std::int64_t max_tokens = std::min(options.max_tokens, room);
  KvCache cache = model.make_cache();
  cache.reserve(report.num_prompt_tokens + max_tokens);
  DecoderScratch scratch = model.make_scratch(chunk, LogitRows::kLast);
  report.tokens.reserve(static_cast<std::size_t>(std::max<std::int64_t>(max_tokens, 0)));
  // A vocabulary may be padded with ids that no token has: those are never chosen.
  const auto num_choices =
      static_cast<std::size_t>(std::min<std::int64_t>(config.vocab_size, tokenizer.vocab_size()));

  Utf8Stream stream;
  const auto emit = [&](const std::string& text) {
    report.text += text;
    if (on_text && !text.empty()) on_text(text);
  };

  const Clock::time_point prefill_start = Clock::now();
  std::span<const float> logits;
  for (std::size_t at = 0; at < prompt.size(); at += static_cast<std::size_t>(chunk)) {
    const std::size_t count = std::min(static_cast<std::size_t>(chunk), prompt.size() - at);
    logits = model.forward(prompt.subspan(at, count), cache, scratch, LogitRows::kLast);
  }
  std::int32_t token = sampler.sample(logits.first(num_choices));
  report.prefill_seconds = seconds_since(prefill_start);

  report.stop_reason =
      options.max_tokens > room ? StopReason::kContextFull : StopReason::kMaxTokens;
  const Clock::time_point decode_start = Clock::now();
  for (std::int64_t count = 0; count < max_tokens; ++count) {
    if (count > 0) {
      logits = model.forward({&token, 1}, cache, scratch, LogitRows::kLast);
      token = sampler.sample(logits.first(num_choices));
      ++report.num_decode_steps;
    }
    if (std::find(options.stop_tokens.begin(), options.stop_tokens.end(), token) !=
        options.stop_tokens.end()) {
      report.stop_reason = StopReason::kStopToken;
      break;
    }
    report.tokens.push_back(token);
    emit(stream.push(tokenizer.token_bytes(token)));
  }
  report.decode_seconds = seconds_since(decode_start);
  emit(stream.finish());
  return report;
}

}  // namespace octavo::llm
