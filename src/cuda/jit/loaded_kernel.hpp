// SPDX-License-Identifier: Apache-2.0
// Kernels on a device: compiled at first use (src/cuda/jit), loaded once for each device.
#pragma once

#include <functional>
#include <string>

#include "cuda/driver.hpp"
#include "cuda/jit/compiled_kernel.hpp"

namespace octavo::cuda {

// A CUfunction for the kernel `entry` on a device, allowed to use `shared_bytes` of dynamic shared
// memory. `make_source` gives its source, and is called at first use only: this stands in the way
// of every launch. A kernel that spills registers is an error: no configuration that Octavo plans
// does.
[[nodiscard]] Result<void*> loaded_kernel(const DeviceInfo& device, const std::string& entry,
                                          const std::function<KernelSource()>& make_source,
                                          int shared_bytes);

}  // namespace octavo::cuda
