// SPDX-License-Identifier: Apache-2.0
// Picks the next token from a row of logits: greedy, or at random after temperature, top-k and
// top-p, in this order. The random numbers are the sampler's own (SplitMix64), so a seed gives the
// same ones on every platform.
// NOTE: the probabilities come from the C library's exp; another library may round one differently,
// and then a draw that falls exactly between two tokens can differ.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace octavo::llm {

struct SamplerParams {
  float temperature = 0.0F;  // 0 is greedy, where top_k, top_p and seed have no effect
  std::int32_t top_k = 0;    // keep the k most likely tokens; 0 keeps all
  float top_p = 1.0F;        // keep the most likely tokens whose probabilities reach p
  std::uint64_t seed = 0;
};

class Sampler {
 public:
  // Throws Error (kInvalidArgument) if a parameter is out of its range.
  explicit Sampler(const SamplerParams& params);

  // The id of the chosen token. Equal logits: the lower id is preferred. -inf bars a token.
  // Throws Error (kInvalidArgument) for no logits, NaN or +inf among them, or -inf throughout.
  [[nodiscard]] std::int32_t sample(std::span<const float> logits);

 private:
  struct Choice {
    float logit;
    std::int32_t id;
    double weight;  // proportional to the probability; 1 for the most likely token
  };

  void keep_top_k(std::span<const float> logits);
  void weigh(float largest);
  void keep_top_p();
  [[nodiscard]] double next_uniform();  // in [0, 1)

  SamplerParams params_;
  std::uint64_t state_;
  std::vector<Choice> choices_;  // kept between calls, only to spare allocations
};

}  // namespace octavo::llm
