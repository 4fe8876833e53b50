// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/explain_tuned.hpp"

#include <algorithm>
#include <optional>

#include "cuda/plan/describe_plan.hpp"
#include "cuda/plan/explain_gemm.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/tune/tuned_choice.hpp"

namespace octavo::cuda {

GemmExplanation explain_tuned(const GemmProblem& problem, const GpuDescription& gpu) {
  GemmExplanation explanation = explain_gemm(problem, gpu);
  if (explanation.candidates.empty()) return explanation;
  const std::optional<TunedChoice> choice =
      tuned_choice(problem, gpu, gemm_candidates(problem, gpu.num_multiprocessors));
  if (!choice) return explanation;
  explanation.chosen_by = choice->is_shipped ? ChosenBy::kShippedRecord : ChosenBy::kRecord;
  explanation.record = choice->record;
  // The choice comes first, the others stay in the model's order.
  const auto chosen = std::find_if(explanation.candidates.begin(), explanation.candidates.end(),
                                   [&](const GemmCandidateReport& candidate) {
                                     return candidate.kernel == choice->record.kernel;
                                   });
  std::rotate(explanation.candidates.begin(), chosen, chosen + 1);
  GemmPlan plan = plan_gemm(problem, gpu.num_multiprocessors);
  plan.config = choice->config;
  plan.product_microseconds = choice->record.us;
  explanation.steps = describe(plan, problem);
  return explanation;
}

}  // namespace octavo::cuda
