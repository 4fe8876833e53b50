// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/explain_tuned.hpp"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "cuda/plan/describe_plan.hpp"
#include "cuda/plan/explain_gemm.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/tune/tuned_choice.hpp"

namespace octavo::cuda {

GemmExplanation explain_tuned(const GemmProblem& problem, const GpuDescription& gpu) {
  GemmExplanation explanation = explain_gemm(problem, gpu);
  if (explanation.candidates.empty()) return explanation;
  TunedPlan tuned = tuned_plan(problem, gpu);
  const std::optional<TunedChoice>& choice = tuned.choice;
  if (!choice) return explanation;
  explanation.chosen_by = choice->is_shipped ? ChosenBy::kShippedRecord : ChosenBy::kRecord;
  explanation.record = choice->record;
  // The choice comes first, the others stay in the model's order.
  const auto chosen = std::find_if(explanation.candidates.begin(), explanation.candidates.end(),
                                   [&](const GemmCandidateReport& candidate) {
                                     return candidate.kernel == choice->record.kernel;
                                   });
  std::rotate(explanation.candidates.begin(), chosen, chosen + 1);
  // The record's time is one matrix's.
  const std::int64_t batch = problem.a.rank == 3 ? problem.a.shape[0] : 1;
  tuned.plan.product_microseconds = choice->record.us * static_cast<double>(batch);
  explanation.steps = describe(tuned.plan, problem);
  return explanation;
}

}  // namespace octavo::cuda
