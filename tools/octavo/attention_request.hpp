// SPDX-License-Identifier: Apache-2.0
// An attention problem as the command line describes it: sizes, types, mask and data, no memory.
// Operands are made from it in attention_operands.hpp.
#pragma once

#include <cstdint>

#include "octavo/attention.hpp"
#include "random_data.hpp"
#include "session.hpp"

namespace CLI {
class App;
}

namespace octavo::cli {

enum class Lengths : std::uint8_t { kEqual, kRandom };

[[nodiscard]] constexpr const char* to_string(Lengths lengths) noexcept {
  return lengths == Lengths::kEqual ? "equal" : "random";
}

[[nodiscard]] constexpr const char* to_string(AttentionMask mask) noexcept {
  return mask == AttentionMask::kCausal ? "causal" : "none";
}

struct AttentionRequest {
  std::int64_t batch = 1;
  std::int64_t q_len = 64;
  std::int64_t kv_len = 256;
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 64;
  std::int64_t v_dim = 0;      // 0: as head_dim
  std::int64_t page_size = 0;  // 0: K and V are dense
  Lengths lengths = Lengths::kEqual;
  DType dtype = DType::kE4M3;
  DType o_dtype = DType::kF32;
  AttentionScale scales = AttentionScale::kHead;  // page_head: Q's are per head
  AttentionMask mask = AttentionMask::kCausal;
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  double softcap = 0;
  Distribution data = Distribution::kGaussian;
  std::int64_t seed = 1;

  [[nodiscard]] std::int64_t value_dim() const { return v_dim > 0 ? v_dim : head_dim; }
  [[nodiscard]] std::int64_t pages_per_sequence() const {
    return page_size == 0 ? 0 : (kv_len + page_size - 1) / page_size;
  }
};

void add_attention_options(CLI::App& verb, AttentionRequest& request);

// Throws UsageError for options that no problem can have together.
void check_options(const AttentionRequest& request);

[[nodiscard]] Json to_json(const AttentionRequest& request);

}  // namespace octavo::cli
