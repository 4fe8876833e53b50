// SPDX-License-Identifier: Apache-2.0
// The CPU's three ways to compute attention. Problems are validated.
#pragma once

#include "octavo/attention.hpp"
#include "octavo/error.hpp"

namespace octavo::cpu {

Status reference_attention(const AttentionProblem& problem, int num_threads);
Status emulated_attention(const AttentionProblem& problem, int num_threads);
Status blocked_attention(const AttentionProblem& problem, int num_threads);

}  // namespace octavo::cpu
