// SPDX-License-Identifier: Apache-2.0
// Perplexity of a text under a model, to compare number formats by.
//
// Method: the text's tokens are cut into consecutive windows that do not overlap; each window is
// run from an empty cache, and every token of it but the first is scored given those before it in
// the window (after bos, and then the first one too, where the model was trained with bos). A last
// window of fewer than two tokens is left out. Perplexity is exp of the mean negative log
// likelihood, summed in FP64. Every format scores the same tokens, so differences are paired.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "llm/llama_model.hpp"

namespace octavo::llm {

struct PerplexityOptions {
  std::int64_t window = 512;        // tokens, bos included; at most the model's context
  std::optional<std::int32_t> bos;  // put before each window
};

struct PerplexityResult {
  std::vector<double> losses;  // negative log likelihood of each scored token, in order
  double mean_loss = 0;
  double perplexity = 0;
  double seconds = 0;
};

// `progress` gets the number of tokens done; it may be empty.
// Throws Error (kInvalidArgument) for a window below 2 or above the context, or fewer than two
// tokens of text.
[[nodiscard]] PerplexityResult measure_perplexity(
    const LlamaModel& model, std::span<const std::int32_t> tokens, const PerplexityOptions& options,
    const std::function<void(std::int64_t)>& progress);

// How `result` differs from `baseline` on the same tokens.
struct PerplexityChange {
  double relative = 0;        // perplexity over the baseline's, minus 1
  double standard_error = 0;  // of `relative`, from the spread of the paired losses
};
[[nodiscard]] PerplexityChange compare_perplexity(const PerplexityResult& result,
                                                  const PerplexityResult& baseline);

}  // namespace octavo::llm
