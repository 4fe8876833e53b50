// SPDX-License-Identifier: Apache-2.0
// The public explanation and warm-up: check the arguments, ask the "cuda" back end.
#include "octavo/explain.hpp"

#include "api/validate.hpp"
#include "backend/backend.hpp"
#include "octavo/warm_up.hpp"

namespace octavo {

GemmExplanation explain(const GemmProblem& problem, const GpuDescription& gpu) {
  (void)validate(problem).value();
  return cuda_explanation(problem, gpu);
}

WarmUpReports warm_up(std::span<const GemmProblem> problems, const GpuDescription* gpu,
                      int num_threads) {
  for (const GemmProblem& problem : problems) (void)validate(problem).value();
  Execution execution;
  execution.num_threads = num_threads;
  (void)validate(execution).value();
  return cuda_warm_up(problems, gpu, num_threads).value();
}

}  // namespace octavo
