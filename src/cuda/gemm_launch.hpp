// SPDX-License-Identifier: Apache-2.0
// A planned product, put on a stream.
#pragma once

#include "cuda/driver.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cuda {

// Puts the product on execution.stream and returns. Nothing is waited for and no host memory is
// read later, so a call may be part of a graph capture once its kernels are loaded.
[[nodiscard]] Status launch_gemm(const DeviceInfo& device, const GemmProblem& problem,
                                 const Execution& execution, const GemmPlan& plan);

}  // namespace octavo::cuda
