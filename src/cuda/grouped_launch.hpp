// SPDX-License-Identifier: Apache-2.0
// Planned products that share a launch, put on a stream. As of launch_gemm().
#pragma once

#include <list>
#include <span>

#include "cuda/driver.hpp"
#include "cuda/prepared_gemm.hpp"
#include "octavo/backend.hpp"
#include "octavo/grouped_gemm.hpp"

namespace octavo::cuda {

[[nodiscard]] Status launch_grouped(const DeviceInfo& device, const GroupedGemmProblem& problem,
                                    const Execution& execution, const PreparedGemm& prepared);

[[nodiscard]] Status launch_fused(const DeviceInfo& device, std::span<const GemmProblem> problems,
                                  const Execution& execution,
                                  const std::list<PreparedFusedLaunch>& launches);

}  // namespace octavo::cuda
