// SPDX-License-Identifier: Apache-2.0
// The translation units that NVRTC compiles for a product: an entry with the kernel's name around
// the template in kernels/gemm.
#pragma once

#include "cuda/jit/compiled_kernel.hpp"
#include "kernels/contract/gemm_config.hpp"

namespace octavo {

[[nodiscard]] KernelSource gemm_source(const GemmConfig& config);

// Small kernels around a product: entry, source.
inline constexpr const char* kRepackOperandEntry = "octavo_repack_operand";
[[nodiscard]] KernelSource repack_operand_source();

inline constexpr const char* kStageScalesEntry = "octavo_stage_scales";
[[nodiscard]] KernelSource stage_scales_source();

inline constexpr const char* kFinishOutputEntry = "octavo_finish_output";
[[nodiscard]] KernelSource finish_output_source();

}  // namespace octavo
