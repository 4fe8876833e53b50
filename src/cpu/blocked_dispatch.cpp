// SPDX-License-Identifier: Apache-2.0
// Which kernels the blocked product runs on: found once, then chosen by the operands' types and by
// whether A is a single row.
#include "cpu/blocked_kernels.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cpu/gemm_operand.hpp"

namespace octavo::cpu {
namespace {

// E4M3 and E5M2 values are BF16 values; F16 ones have more fraction bits.
bool exact_in_bf16(DType dtype) { return is_fp8(dtype) || dtype == DType::kBF16; }

}  // namespace

const std::vector<const BlockedKernels*>& blocked_kernel_sets() {
  static const std::vector<const BlockedKernels*> sets = [] {
    std::vector<const BlockedKernels*> found;
    for (const BlockedKernels* kernels :
         {avx512_bf16_row_kernels(), amx_bf16_kernels(), avx512_bf16_kernels()}) {
      if (kernels != nullptr) found.push_back(kernels);
    }
    for (const BlockedKernels* kernels : lane_kernels()) found.push_back(kernels);
    return found;
  }();
  return sets;
}

bool serves(const BlockedKernels& kernels, DType a, DType b) {
  return !kernels.bf16 || (exact_in_bf16(a) && exact_in_bf16(b));
}

const BlockedKernels& best_kernels(DType a, DType b, std::int64_t m) {
  const std::vector<const BlockedKernels*>& sets = blocked_kernel_sets();
  for (const BlockedKernels* kernels : sets) {
    if (serves(*kernels, a, b) && (m == 1 || !kernels->single_row)) return *kernels;
  }
  return *sets.back();
}

std::string blocked_gemm_kernel(const GemmProblem& problem) {
  return "cpu_blocked_" +
         std::string(
             best_kernels(problem.a.dtype, problem.b.dtype, extents(problem).m).instruction_set);
}

std::string blocked_instruction_set() {
  constexpr std::int64_t kManyRows = 64;
  return std::string(best_kernels(DType::kE4M3, DType::kE4M3, kManyRows).instruction_set);
}

}  // namespace octavo::cpu
