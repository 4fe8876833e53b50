// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "octavo/error.hpp"
#include "octavo/warm_up.hpp"

namespace octavo::cuda {

// As octavo/warm_up.hpp says; the problems are valid.
[[nodiscard]] Result<WarmUpReports> warm_up_gemms(std::span<const GemmProblem> problems,
                                                  const GpuDescription* gpu, int num_threads);

}  // namespace octavo::cuda
