// SPDX-License-Identifier: Apache-2.0
// Plans as the public interface shows them (octavo/explain.hpp).
#pragma once

#include "octavo/explain.hpp"

namespace octavo::cuda {

// The problem is valid and on a CUDA device.
[[nodiscard]] GemmExplanation explain_gemm(const GemmProblem& problem, const GpuDescription& gpu);

}  // namespace octavo::cuda
