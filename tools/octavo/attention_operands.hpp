// SPDX-License-Identifier: Apache-2.0
// An attention problem as the command line describes it, and the memory behind it: random Q, K and
// V rounded to their type with random scales, dense or in shuffled pages.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "host_tensor.hpp"
#include "octavo/attention.hpp"
#include "random_data.hpp"
#include "session.hpp"

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
};

struct AttentionInput {
  HostTensor exact;  // F32, as drawn
  HostTensor values;
  HostTensor scale;
  AttentionScale kind = AttentionScale::kNone;
};

struct AttentionOperands {
  AttentionInput q;
  AttentionInput k;
  AttentionInput v;
  HostTensor kv_lengths;
  HostTensor page_table;
};

enum class InputForm : std::uint8_t { kQuantized, kExact };

[[nodiscard]] AttentionOperands make_operands(const AttentionRequest& request);
[[nodiscard]] HostTensor make_output(const AttentionRequest& request, DType dtype);
[[nodiscard]] HostTensor make_lse(const AttentionRequest& request);
[[nodiscard]] AttentionProblem make_problem(const AttentionRequest& request,
                                            const AttentionOperands& operands, InputForm form,
                                            HostTensor& o, HostTensor& lse);
[[nodiscard]] Json to_json(const AttentionRequest& request);

}  // namespace octavo::cli
