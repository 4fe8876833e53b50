// SPDX-License-Identifier: Apache-2.0
// The translation units that NVRTC compiles for kernels of kernels/quantize; their names:
// naming/quantize_name.hpp.
#pragma once

#include "cuda/jit/compiled_kernel.hpp"
#include "kernels/contract/quantize_params.hpp"

namespace octavo {

[[nodiscard]] KernelSource quantize_source(const QuantizeConfig& config);

}  // namespace octavo
