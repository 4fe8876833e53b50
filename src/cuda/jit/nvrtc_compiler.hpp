// SPDX-License-Identifier: Apache-2.0
// Compiles a kernel for sm_90a with NVRTC, which is loaded at run time and never linked. It keeps
// nothing: cubin_cache.hpp does.
#pragma once

#include <string>
#include <vector>

#include "cuda/jit/compiled_kernel.hpp"
#include "octavo/error.hpp"

namespace octavo {

// Version and path of the NVRTC that compiles here, or why there is none.
[[nodiscard]] Result<std::string> nvrtc_description();

// Thread-safe. An Error holds the whole log and how to repeat the compilation by hand.
[[nodiscard]] Result<CompiledKernel> compile_kernel(const KernelSource& source);

// The same source as PTX for sm_90a, as NVRTC hands it to ptxas. Thread-safe.
[[nodiscard]] Result<std::string> kernel_ptx(const KernelSource& source);

// compile_kernel as the cache takes it. An Error where NVRTC is missing.
[[nodiscard]] Result<KernelCompiler> nvrtc_compiler();

}  // namespace octavo
