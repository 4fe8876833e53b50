// SPDX-License-Identifier: Apache-2.0
// Every config that a plan may choose.
#pragma once

#include <vector>

#include "kernels/contract/gemm_config.hpp"
#include "octavo/dtype.hpp"

namespace octavo::cuda {

// Of products of these operand types on an H200, whatever their extents, recipe, sum, output, and
// what is added to it, of one product, groups and fused products; each once.
[[nodiscard]] std::vector<GemmConfig> planned_configs(DType a, DType b);

}  // namespace octavo::cuda
