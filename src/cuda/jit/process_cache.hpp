// SPDX-License-Identifier: Apache-2.0
// The one cache of the process, in the folder that the environment names, with NVRTC behind it.
// Needs no GPU: loading what it gives is loaded_kernel.hpp's.
#pragma once

#include "cuda/jit/compiled_kernel.hpp"
#include "octavo/error.hpp"

namespace octavo {

// Compiled now or earlier. Thread-safe. A kernel that spills registers is an error: no
// configuration that Octavo plans does.
[[nodiscard]] Result<CompiledKernel> planned_kernel(const KernelSource& source);

}  // namespace octavo
