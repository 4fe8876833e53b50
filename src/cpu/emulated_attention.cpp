// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_attention.hpp"

namespace octavo::cpu {

Status emulated_attention(const AttentionProblem&, int) {
  return Error(ErrorCode::kUnsupported, "emulated_attention: not built yet");
}

}  // namespace octavo::cpu
