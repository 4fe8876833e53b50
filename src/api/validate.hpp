// SPDX-License-Identifier: Apache-2.0
// Every argument rule and its message: validate_gemm.cpp, validate_grouped_gemm.cpp,
// validate_fused_gemm.cpp, validate_attention.cpp, validate_quantize.cpp. Messages name the
// argument, what was given, the rule and the fix.
#pragma once

#include <span>
#include <string_view>

#include "octavo/attention.hpp"
#include "octavo/backend.hpp"
#include "octavo/error.hpp"
#include "octavo/gemm.hpp"
#include "octavo/grouped_gemm.hpp"
#include "octavo/quantize.hpp"

namespace octavo {

Status validate(const Execution& execution);
Status validate(const GemmProblem& problem);
Status validate(const GroupedGemmProblem& problem);
// Of fused_gemm(): each problem, and all of them together.
Status validate(std::span<const GemmProblem> problems);
Status validate(const AttentionProblem& problem);
Status validate(const QuantizeProblem& problem);
Status validate(const DequantizeProblem& problem);
Status validate(const RequantizeProblem& problem);

// What is wrong with a product, in the words of another call: "gemm: " becomes `prefix`.
[[nodiscard]] Error in_words_of(std::string_view prefix, const Error& error);

}  // namespace octavo
