// SPDX-License-Identifier: Apache-2.0
// Bounds and consistency of a LlamaConfig. See llama_config_checks.hpp.
#include "llm/llama_config_checks.hpp"

#include <fmt/format.h>

#include "llm/file_error.hpp"

namespace octavo::llm {
namespace {

constexpr std::string_view kCorrect = "Fetch the file again, or correct the value";
constexpr double kMinTheta = 1.0;
constexpr double kMaxTheta = 1e12;
constexpr double kMinEps = 1e-12;
constexpr double kMaxEps = 1.0;
constexpr double kMinFactor = 1e-3;
constexpr double kMaxFactor = 1e6;

void check_token(std::int64_t id, std::string_view key, const LlamaConfig& config,
                 std::string_view file) {
  if (id >= 0 && id < config.vocab_size) return;
  throw bad_file(file, fmt::format("{} is {}", key, id),
                 fmt::format("a token id is 0 to {} (vocab_size - 1)", config.vocab_size - 1),
                 kCorrect);
}

}  // namespace

std::int64_t bounded(std::int64_t value, std::int64_t max, std::string_view key,
                     std::string_view file) {
  if (value >= 1 && value <= max) return value;
  throw bad_file(file, fmt::format("{} is {}", key, value), fmt::format("it must be 1 to {}", max),
                 kCorrect);
}

float bounded_float(double value, double low, double high, std::string_view key,
                    std::string_view file) {
  if (value >= low && value <= high) return static_cast<float>(value);
  throw bad_file(file, fmt::format("{} is {}", key, value),
                 fmt::format("it must be {} to {}", low, high), kCorrect);
}

float checked_rope_theta(double value, std::string_view key, std::string_view file) {
  return bounded_float(value, kMinTheta, kMaxTheta, key, file);
}
float checked_rms_norm_eps(double value, std::string_view key, std::string_view file) {
  return bounded_float(value, kMinEps, kMaxEps, key, file);
}
float checked_scaling_factor(double value, std::string_view key, std::string_view file) {
  return bounded_float(value, kMinFactor, kMaxFactor, key, file);
}

std::int64_t derived_head_dim(const LlamaConfig& config, std::string_view file) {
  if (config.hidden_size % config.num_heads != 0) {
    throw bad_file(
        file,
        fmt::format("hidden size {} is divided among {} heads", config.hidden_size,
                    config.num_heads),
        "without a head dimension of its own, the file's heads must divide the hidden size",
        "Correct one of them, or add the head dimension");
  }
  return config.hidden_size / config.num_heads;
}

void check_consistent(const LlamaConfig& config, std::string_view file) {
  if (config.num_heads % config.num_kv_heads != 0) {
    throw bad_file(file,
                   fmt::format("there are {} query heads and {} key/value heads", config.num_heads,
                               config.num_kv_heads),
                   "the number of query heads must be a multiple of the number of key/value heads",
                   kCorrect);
  }
  if (config.head_dim % 2 != 0) {
    throw bad_file(file, fmt::format("the head dimension is {}", config.head_dim),
                   "it must be even, since RoPE rotates pairs", kCorrect);
  }
  if (config.bos_token_id) check_token(*config.bos_token_id, "the BOS token id", config, file);
  for (const std::int64_t id : config.eos_token_ids) {
    check_token(id, "an EOS token id", config, file);
  }
  const RopeScaling& scaling = config.rope_scaling;
  if (scaling.kind == RopeScalingKind::kLlama3 &&
      scaling.high_freq_factor <= scaling.low_freq_factor) {
    throw bad_file(file,
                   fmt::format("high_freq_factor is {} and low_freq_factor is {}",
                               scaling.high_freq_factor, scaling.low_freq_factor),
                   "llama3 scaling needs high_freq_factor above low_freq_factor", kCorrect);
  }
}

}  // namespace octavo::llm
