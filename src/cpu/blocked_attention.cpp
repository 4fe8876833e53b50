// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_attention.hpp"

namespace octavo::cpu {

Status blocked_attention(const AttentionProblem&, int) {
  return Error(ErrorCode::kUnsupported, "blocked_attention: not built yet");
}

}  // namespace octavo::cpu
