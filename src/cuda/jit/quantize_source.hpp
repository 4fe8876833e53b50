// SPDX-License-Identifier: Apache-2.0
// Kernels of kernels/quantize: their names, and the translation units that NVRTC compiles for them.
#pragma once

#include <string>

#include "cuda/jit/compiled_kernel.hpp"
#include "kernels/contract/quantize_params.hpp"

namespace octavo {

// octavo_sm90_amax_<x>_<access>, octavo_sm90_quantize_<step>_<x>_<q>_<access> or
// octavo_sm90_dequantize_<q>_<x>_<access>. Every knob that matters to a step is in its name.
[[nodiscard]] std::string quantize_kernel_name(const QuantizeConfig& config);

[[nodiscard]] KernelSource quantize_source(const QuantizeConfig& config);

}  // namespace octavo
