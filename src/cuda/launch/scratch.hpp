// SPDX-License-Identifier: Apache-2.0
// Scratch memory of one call.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

#include "cuda/driver.hpp"
#include "cuda/launch/pool_memory.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "octavo/backend.hpp"
#include "octavo/error.hpp"

namespace octavo::cuda {

// The workspace: the caller's, or memory of the device's pool for the time of the call.
class Scratch {
 public:
  // `operation`: the call's name, for messages.
  Scratch(const char* operation, const DeviceInfo& device, const Execution& execution)
      : operation_(operation), execution_(execution), own_(device, execution.stream) {}

  Status reserve(std::size_t bytes) {
    if (bytes == 0) return Ok{};
    if (execution_.workspace != nullptr) {
      if (execution_.workspace_bytes < bytes) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("{}: the workspace has {} bytes; this problem needs {}. Ask "
                                 "workspace_bytes(), or pass null to let the back end allocate.",
                                 operation_, execution_.workspace_bytes, bytes));
      }
      const auto address = reinterpret_cast<std::uintptr_t>(execution_.workspace);
      if (address % kWorkspaceAlignment != 0) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("{}: the workspace begins {} bytes past a multiple of {}; "
                                 "kernels read it in vectors. Align it.",
                                 operation_, address % kWorkspaceAlignment, kWorkspaceAlignment));
      }
      next_ = static_cast<std::byte*>(execution_.workspace);
      return Ok{};
    }
    const Result<std::byte*> memory = own_.allocate(bytes);
    if (!memory.ok()) return memory.error();
    next_ = memory.value();
    return Ok{};
  }

  // The next part of what was reserved.
  std::byte* take(std::size_t bytes) {
    std::byte* part = next_;
    if (next_ != nullptr) next_ += bytes;
    return part;
  }

 private:
  const char* operation_;
  const Execution& execution_;
  PoolMemory own_;
  std::byte* next_ = nullptr;
};

}  // namespace octavo::cuda
