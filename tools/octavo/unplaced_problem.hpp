// SPDX-License-Identifier: Apache-2.0
// A product on GPU 0 without memory behind it, to plan and to compile for: its addresses are
// aligned as an allocator's and must never be followed.
#pragma once

#include "gemm_request.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cli {

// Dense row-major tensors, as `octavo run gemm` makes them.
[[nodiscard]] GemmProblem unplaced_problem(const GemmRequest& request);

// Shape of the scale tensor of an operand [rows, k], without a batch.
[[nodiscard]] std::vector<std::int64_t> scale_extents(ScaleGranularity granularity,
                                                      std::int64_t rows, std::int64_t k);

}  // namespace octavo::cli
