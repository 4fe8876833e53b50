// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_gemm.hpp"

namespace octavo::cpu {

Status reference_gemm(const GemmProblem&, int) {
  return Error(ErrorCode::kUnsupported, "reference_gemm: not built yet");
}

}  // namespace octavo::cpu
