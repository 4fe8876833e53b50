// SPDX-License-Identifier: Apache-2.0
// octavo/explain.hpp's explain(), with what tuning records change.
#pragma once

#include "octavo/explain.hpp"
#include "octavo/runtime.hpp"

namespace octavo::cuda {

[[nodiscard]] GemmExplanation explain_tuned(const GemmProblem& problem, const GpuDescription& gpu);

}  // namespace octavo::cuda
