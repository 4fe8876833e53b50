// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_gemm.hpp"

namespace octavo::cpu {

Status emulated_gemm(const GemmProblem&, int) {
  return Error(ErrorCode::kUnsupported, "emulated_gemm: not built yet");
}

}  // namespace octavo::cpu
