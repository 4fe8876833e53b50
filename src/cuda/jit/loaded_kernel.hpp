// SPDX-License-Identifier: Apache-2.0
// Kernels on a device: compiled at first use (src/cuda/jit), loaded once for each device.
#pragma once

#include <string>

#include "cuda/driver.hpp"
#include "cuda/jit/compiled_kernel.hpp"

namespace octavo::cuda {

// A CUfunction for `source` on a device, allowed to use `shared_bytes` of dynamic shared memory. A
// kernel that spills registers is an error: no configuration that Octavo plans does.
[[nodiscard]] Result<void*> loaded_kernel(const DeviceInfo& device, const KernelSource& source,
                                          int shared_bytes);

}  // namespace octavo::cuda
