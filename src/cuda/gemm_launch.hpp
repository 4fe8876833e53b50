// SPDX-License-Identifier: Apache-2.0
// A planned product, put on a stream: copies of operands and scales that the kernel cannot read in
// place, the product, and what writes a D that it cannot write.
#pragma once

#include "cuda/driver.hpp"
#include "cuda/prepared_gemm.hpp"
#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cuda {

// Puts the product on execution.stream and returns. Nothing is waited for and no host memory is
// read later, so a call may be part of a graph capture once its kernels are loaded.
[[nodiscard]] Status launch_gemm(const DeviceInfo& device, const GemmProblem& problem,
                                 const Execution& execution, const PreparedGemm& prepared);

}  // namespace octavo::cuda
