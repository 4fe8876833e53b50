// SPDX-License-Identifier: Apache-2.0
// A plan's kernel by a tuning record, where there is one that holds.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "cuda/plan/gemm_plan.hpp"
#include "octavo/runtime.hpp"
#include "octavo/tuning.hpp"

namespace octavo::cuda {

struct TunedChoice {
  GemmConfig config;
  TuningRecord record;
  bool is_shipped = false;  // it came with Octavo; else it was measured here
};

// `candidates`: what the plan offers. A record whose kernel is none of them does not hold.
[[nodiscard]] std::optional<TunedChoice> tuned_choice(const GemmProblem& problem,
                                                      const GpuDescription& gpu,
                                                      const std::vector<GemmCandidate>& candidates);

// Records that come with Octavo (data/tuned): their text, as the build embedded it.
[[nodiscard]] std::string_view shipped_records_text();

}  // namespace octavo::cuda
