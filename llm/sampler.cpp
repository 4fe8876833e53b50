// SPDX-License-Identifier: Apache-2.0
#include "llm/sampler.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

constexpr float kHighestTemperature = 100.0F;  // above it every distribution is flat

void validate(const SamplerParams& params) {
  // Written so that NaN is refused as well.
  if (!(params.temperature >= 0.0F && params.temperature <= kHighestTemperature)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("sampler: temperature is {}; it lies in [0, {}], 0 being greedy. Use a "
                            "value such as 0.7.",
                            params.temperature, kHighestTemperature));
  }
  if (params.top_k < 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("sampler: top_k is {}; it is at least 1, or 0 to keep every token. Use "
                            "a value such as 40.",
                            params.top_k));
  }
  if (!(params.top_p > 0.0F && params.top_p <= 1.0F)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("sampler: top_p is {}; it lies above 0 and at most at 1, 1 keeping "
                            "every token. Use a value such as 0.9.",
                            params.top_p));
  }
}

// The position of the largest logit, the first one of equals.
std::size_t most_likely(std::span<const float> logits) {
  if (logits.empty() ||
      logits.size() > static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max())) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("sample: there are {} logits; there must be one per token, at least 1 "
                            "and fewer than 2^31. Pass the model's last row.",
                            logits.size()));
  }
  std::size_t best = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (std::isnan(logits[i]) || logits[i] == std::numeric_limits<float>::infinity()) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("sample: logit {} of {} is {}; logits must be finite or -inf. The "
                              "model's weights or scales are damaged, or a product overflowed.",
                              i, logits.size(), logits[i]));
    }
    if (logits[i] > logits[best]) best = i;
  }
  if (std::isinf(logits[best])) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("sample: all {} logits are -inf; one token at least must be allowed. "
                            "Bar fewer tokens.",
                            logits.size()));
  }
  return best;
}

}  // namespace

Sampler::Sampler(const SamplerParams& params) : params_(params), state_(params.seed) {
  validate(params);
}

std::int32_t Sampler::sample(std::span<const float> logits) {
  const std::size_t best = most_likely(logits);
  if (params_.temperature == 0.0F) return static_cast<std::int32_t>(best);
  keep_top_k(logits);
  weigh(logits[best]);
  if (params_.top_p < 1.0F) keep_top_p();

  double total = 0.0;
  for (const Choice& choice : choices_) total += choice.weight;
  double left = next_uniform() * total;
  for (const Choice& choice : choices_) {
    left -= choice.weight;
    if (left < 0.0) return choice.id;
  }
  return static_cast<std::int32_t>(best);  // rounding used up the whole sum
}

void Sampler::keep_top_k(std::span<const float> logits) {
  choices_.clear();
  for (std::size_t i = 0; i < logits.size(); ++i) {
    choices_.push_back({logits[i], static_cast<std::int32_t>(i), 0.0});
  }
  const auto count = static_cast<std::size_t>(params_.top_k);
  if (count == 0 || count >= choices_.size()) return;
  const auto likelier = [](const Choice& a, const Choice& b) {
    return a.logit != b.logit ? a.logit > b.logit : a.id < b.id;
  };
  std::nth_element(choices_.begin(), choices_.begin() + static_cast<std::ptrdiff_t>(count),
                   choices_.end(), likelier);
  choices_.resize(count);
  // nth_element leaves an order that depends on the standard library; a draw must not.
  std::sort(choices_.begin(), choices_.end(), likelier);
}

void Sampler::weigh(float largest) {
  for (Choice& choice : choices_) {
    choice.weight = std::exp((static_cast<double>(choice.logit) - largest) / params_.temperature);
  }
}

void Sampler::keep_top_p() {
  double total = 0.0;
  for (const Choice& choice : choices_) total += choice.weight;
  const double wanted = static_cast<double>(params_.top_p) * total;
  const auto less_likely = [](const Choice& a, const Choice& b) {
    return a.logit != b.logit ? a.logit < b.logit : a.id > b.id;
  };
  // Taking from a heap sorts only as many tokens as are kept, of a vocabulary of many thousands.
  std::make_heap(choices_.begin(), choices_.end(), less_likely);
  auto heap_end = choices_.end();
  double kept = 0.0;
  while (heap_end != choices_.begin() && (kept < wanted || heap_end == choices_.end())) {
    std::pop_heap(choices_.begin(), heap_end, less_likely);
    --heap_end;
    kept += heap_end->weight;
  }
  choices_.erase(choices_.begin(), heap_end);
  std::reverse(choices_.begin(), choices_.end());
}

// SplitMix64, by Steele, Lea and Flood (OOPSLA 2014); its constants are the paper's.
double Sampler::next_uniform() {
  state_ += 0x9E3779B97F4A7C15U;
  std::uint64_t z = state_;
  z = (z ^ (z >> 30U)) * 0xBF58476D1CE4E5B9U;
  z = (z ^ (z >> 27U)) * 0x94D049BB133111EBU;
  z ^= z >> 31U;
  constexpr unsigned kBitsToDrop = 11;  // a double holds 53 of the 64
  constexpr double kUnit = 0x1.0p-53;
  return static_cast<double>(z >> kBitsToDrop) * kUnit;
}

}  // namespace octavo::llm
