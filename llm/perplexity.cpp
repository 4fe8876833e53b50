// SPDX-License-Identifier: Apache-2.0
#include "llm/perplexity.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "llm/elementwise.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

// PERF: logits of a chunk are the largest buffer: 256 rows of 49,152 take 50 MB.
constexpr std::int64_t kChunk = 256;

void check_options(const LlamaModel& model, std::span<const std::int32_t> tokens,
                   const PerplexityOptions& options) {
  if (options.window < 2 || options.window > model.config().max_positions) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("perplexity: window is {}; it must be 2 to {}, the model's context. "
                            "Choose one within it.",
                            options.window, model.config().max_positions));
  }
  if (tokens.size() < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("perplexity: the text has {} tokens; at least 2 are needed to predict "
                            "one from another. Give a longer text.",
                            tokens.size()));
  }
}

// Appends the losses of window[1..], each predicted from the tokens before it.
void score_window(const LlamaModel& model, std::span<const std::int32_t> window, KvCache& cache,
                  DecoderScratch& scratch, std::vector<double>& losses) {
  const auto vocab = static_cast<std::size_t>(model.config().vocab_size);
  cache.clear();
  // The last token is only predicted.
  const std::span<const std::int32_t> inputs = window.first(window.size() - 1);
  for (std::size_t at = 0; at < inputs.size();) {
    const std::size_t count =
        std::min(static_cast<std::size_t>(scratch.max_tokens()), inputs.size() - at);
    const std::span<const float> logits =
        model.forward(inputs.subspan(at, count), cache, scratch, LogitRows::kAll);
    for (std::size_t row = 0; row < count; ++row) {
      const std::span<const float> row_logits = logits.subspan(row * vocab, vocab);
      const auto target = static_cast<std::size_t>(window[at + row + 1]);
      losses.push_back(log_sum_exp(row_logits) - static_cast<double>(row_logits[target]));
    }
    at += count;
  }
}

}  // namespace

PerplexityResult measure_perplexity(const LlamaModel& model, std::span<const std::int32_t> tokens,
                                    const PerplexityOptions& options,
                                    const std::function<void(std::int64_t)>& progress) {
  check_options(model, tokens, options);
  const auto start = std::chrono::steady_clock::now();
  PerplexityResult result;
  result.losses.reserve(tokens.size());
  KvCache cache = model.make_cache();
  cache.reserve(options.window);
  DecoderScratch scratch = model.make_scratch(std::min(kChunk, options.window), LogitRows::kAll);

  std::vector<std::int32_t> window;
  for (std::size_t at = 0; at < tokens.size();) {
    window.clear();
    if (options.bos) window.push_back(*options.bos);
    const std::size_t count =
        std::min(static_cast<std::size_t>(options.window) - window.size(), tokens.size() - at);
    window.insert(window.end(), tokens.begin() + static_cast<std::ptrdiff_t>(at),
                  tokens.begin() + static_cast<std::ptrdiff_t>(at + count));
    at += count;
    if (window.size() < 2) break;
    // Checked here because a target is used as an index before the model sees it as an input.
    for (const std::int32_t token : window) {
      if (token < 0 || token >= model.config().vocab_size) {
        throw Error(
            ErrorCode::kInvalidArgument,
            fmt::format("perplexity: a token is {}; the vocabulary has ids 0 to {}. Use the "
                        "tokenizer that belongs to the model.",
                        token, model.config().vocab_size - 1));
      }
    }
    score_window(model, window, cache, scratch, result.losses);
    if (progress) progress(static_cast<std::int64_t>(at));
  }

  double total = 0;
  for (const double loss : result.losses) total += loss;
  result.mean_loss = total / static_cast<double>(result.losses.size());
  result.perplexity = std::exp(result.mean_loss);
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

PerplexityChange compare_perplexity(const PerplexityResult& result,
                                    const PerplexityResult& baseline) {
  const std::size_t count = result.losses.size();
  if (count != baseline.losses.size() || count < 2) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("perplexity: results over {} and {} tokens were given; a comparison "
                            "needs the same 2 or more tokens. Measure both on the same text.",
                            count, baseline.losses.size()));
  }
  const double mean = result.mean_loss - baseline.mean_loss;
  double squares = 0;
  for (std::size_t i = 0; i < count; ++i) {
    const double deviation = result.losses[i] - baseline.losses[i] - mean;
    squares += deviation * deviation;
  }
  const auto n = static_cast<double>(count);
  const double error_of_mean = std::sqrt(squares / (n - 1) / n);
  // d exp(m) = exp(m) dm.
  return {.relative = std::expm1(mean), .standard_error = std::exp(mean) * error_of_mean};
}

}  // namespace octavo::llm
