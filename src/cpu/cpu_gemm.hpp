// SPDX-License-Identifier: Apache-2.0
// The CPU's three ways to compute a product. Problems are validated, K may be 0, M and N may not.
#pragma once

#include <string>

#include "octavo/error.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cpu {

Status reference_gemm(const GemmProblem& problem, int num_threads);
Status emulated_gemm(const GemmProblem& problem, int num_threads);
Status blocked_gemm(const GemmProblem& problem, int num_threads);

// The kernel blocked_gemm() runs for a problem, e.g. "cpu_blocked_amx_bf16".
[[nodiscard]] std::string blocked_gemm_kernel(const GemmProblem& problem);

// The best instruction set of this machine that blocked products use: "scalar", "avx2", "avx512",
// "avx512_bf16" or "amx_bf16".
[[nodiscard]] std::string blocked_instruction_set();

}  // namespace octavo::cpu
