// SPDX-License-Identifier: Apache-2.0
// A plan in sentences, for `octavo explain` and for error messages.
#pragma once

#include <string>
#include <vector>

#include "cuda/plan/gemm_plan.hpp"

namespace octavo::cuda {

// One sentence for each thing that happens before, in and after the product, in that order, e.g.
// "a: repacked to K-major rows of 16-byte multiples (M-major given): 12.6 MB, about 7 us".
[[nodiscard]] std::vector<std::string> describe(const GemmPlan& plan, const GemmProblem& problem);

}  // namespace octavo::cuda
