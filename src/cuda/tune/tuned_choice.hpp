// SPDX-License-Identifier: Apache-2.0
// A plan's kernel by a tuning record, where there is one that holds.
#pragma once

#include <optional>
#include <string_view>

#include "cuda/plan/gemm_plan.hpp"
#include "octavo/runtime.hpp"
#include "octavo/tuning.hpp"

namespace octavo::cuda {

// A record whose kernel the plan offers; another does not hold.
struct TunedChoice {
  TuningRecord record;
  bool is_shipped = false;  // it came with Octavo; else it was measured here
};

// The plan of a problem without refusals, with the kernel that a record names where one holds.
struct TunedPlan {
  GemmPlan plan;
  std::optional<TunedChoice> choice;
};
[[nodiscard]] TunedPlan tuned_plan(const GemmProblem& problem, const GpuDescription& gpu);

// Records that come with Octavo (data/tuned): their text, as the build embedded it.
[[nodiscard]] std::string_view shipped_records_text();

}  // namespace octavo::cuda
