// SPDX-License-Identifier: Apache-2.0
// octavo/tuning.hpp's tune(), of valid problems.
#pragma once

#include <span>
#include <vector>

#include "octavo/error.hpp"
#include "octavo/tuning.hpp"

namespace octavo::cuda {

[[nodiscard]] Result<std::vector<TuningReport>> tune_gemms(std::span<const GemmProblem> problems,
                                                           const TuningOptions& options);

}  // namespace octavo::cuda
