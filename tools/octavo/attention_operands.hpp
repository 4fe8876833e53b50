// SPDX-License-Identifier: Apache-2.0
// The memory behind an attention problem: random Q, K and V rounded to their type with random
// scales, dense or in shuffled pages.
#pragma once

#include <cstdint>

#include "attention_request.hpp"
#include "host_tensor.hpp"
#include "octavo/attention.hpp"

namespace octavo::cli {

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

}  // namespace octavo::cli
