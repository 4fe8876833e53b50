// SPDX-License-Identifier: Apache-2.0
// Rules about how a call is carried out, whatever it computes.
#include <fmt/format.h>

#include "api/validate.hpp"

namespace octavo {

Status validate(const Execution& execution) {
  if (execution.num_threads < 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("execution: num_threads is {}; it must be 0 (every usable core) or "
                             "above. Pass 0 if in doubt.",
                             execution.num_threads));
  }
  if (execution.workspace == nullptr && execution.workspace_bytes != 0) {
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("execution: workspace is null and workspace_bytes is {}; without "
                             "memory the size must be 0. Pass the memory, or leave both out.",
                             execution.workspace_bytes));
  }
  return Ok{};
}

}  // namespace octavo
