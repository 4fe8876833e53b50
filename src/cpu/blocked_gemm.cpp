// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_gemm.hpp"

namespace octavo::cpu {

Status blocked_gemm(const GemmProblem&, int) {
  return Error(ErrorCode::kUnsupported, "blocked_gemm: not built yet");
}

}  // namespace octavo::cpu
namespace octavo::cpu {
std::string blocked_gemm_kernel(const GemmProblem&) { return "cpu_blocked_scalar"; }
std::string blocked_instruction_set() { return "scalar"; }
}  // namespace octavo::cpu
