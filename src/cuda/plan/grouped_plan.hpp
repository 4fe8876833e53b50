// SPDX-License-Identifier: Apache-2.0
// Which kernel serves many products in one launch, decided on the host as for one (gemm_plan.hpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cuda/plan/gemm_plan.hpp"
#include "octavo/grouped_gemm.hpp"

namespace octavo::cuda {

// Why no kernel of this version serves the problem; empty if one does. The problem is valid.
[[nodiscard]] std::vector<Reason> grouped_refusals(const GroupedGemmProblem& problem,
                                                   const Execution& execution);

// All candidates for a problem with groups, rows and columns, best first.
[[nodiscard]] std::vector<GemmCandidate> grouped_candidates(const GroupedGemmProblem& problem,
                                                            int num_multiprocessors);

// The plan of a problem without refusals.
[[nodiscard]] GemmPlan plan_grouped(const GroupedGemmProblem& problem, int num_multiprocessors);

// Products that share a launch, by their place in the call. One alone has gemm()'s plan by the
// model.
struct FusedLaunch {
  std::vector<std::size_t> problems;
  GemmPlan plan;
};

// All candidates for products that can share a launch, best first.
[[nodiscard]] std::vector<GemmCandidate> fused_candidates(std::span<const GemmProblem> problems,
                                                          int num_multiprocessors);

// The launches of a call, in which every problem occurs once.
[[nodiscard]] std::vector<FusedLaunch> plan_fused(std::span<const GemmProblem> problems,
                                                  int num_multiprocessors);

// A problem of fused_gemm() as gemm() gets it.
[[nodiscard]] GemmProblem with_splits(GemmProblem problem);

}  // namespace octavo::cuda
