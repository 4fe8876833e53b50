// SPDX-License-Identifier: Apache-2.0
// The translation units that NVRTC compiles for a product: an entry with the kernel's name around
// the template in kernels/gemm.
#pragma once

#include "cuda/jit/compiled_kernel.hpp"
#include "kernels/contract/gemm_config.hpp"

namespace octavo {

[[nodiscard]] KernelSource gemm_source(const GemmConfig& config);

inline constexpr const char* kStageScalesEntry = "octavo_stage_scales";
inline constexpr unsigned kStageScalesThreads = 256;
[[nodiscard]] KernelSource stage_scales_source();

}  // namespace octavo
