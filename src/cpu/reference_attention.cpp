// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_attention.hpp"

namespace octavo::cpu {

Status reference_attention(const AttentionProblem&, int) {
  return Error(ErrorCode::kUnsupported, "reference_attention: not built yet");
}

}  // namespace octavo::cpu
