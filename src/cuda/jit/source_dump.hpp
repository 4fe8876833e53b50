// SPDX-License-Identifier: Apache-2.0
// Keeps the source of a kernel that failed, so that its compilation can be repeated by hand.
#pragma once

#include <string>

#include "cuda/jit/compiled_kernel.hpp"

namespace octavo {

// Writes the source and the embedded headers to <folder>/<entry>/ and returns the nvcc command over
// them; with an empty folder writes nothing and says how to name one.
[[nodiscard]] std::string dump_source(const KernelSource& source, const std::string& folder);

}  // namespace octavo
