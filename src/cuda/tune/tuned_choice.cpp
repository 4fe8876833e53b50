// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/tuned_choice.hpp"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include "cuda/tune/record_folder.hpp"
#include "cuda/tune/tuning_record.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

// By problem: they hold for any driver and compiler.
const std::map<std::string, TuningRecord>& shipped_records() {
  static const std::map<std::string, TuningRecord> records = [] {
    std::map<std::string, TuningRecord> found;
    const Result<std::vector<TuningRecord>> parsed = parse_records(shipped_records_text());
    if (!parsed.ok()) return found;
    for (const TuningRecord& record : parsed.value()) found.emplace(record.problem, record);
    return found;
  }();
  return records;
}

std::optional<GemmCandidate> candidate_of(const TuningRecord& record,
                                          const std::vector<GemmCandidate>& candidates) {
  const Result<GemmConfig> config = parse_kernel_name(record.kernel);
  if (!config.ok()) return std::nullopt;
  for (const GemmCandidate& candidate : candidates) {
    if (candidate.config == config.value()) return candidate;
  }
  return std::nullopt;
}

}  // namespace

TunedPlan tuned_plan(const GemmProblem& problem, const GpuDescription& gpu) {
  TunedPlan tuned{plan_gemm(problem, gpu.num_multiprocessors), std::nullopt};
  if (tuned.plan.work != GemmWork::kProduct) return tuned;
  const std::string key = problem_key(problem, gpu, tuned.plan.config);
  const auto take = [&](TuningRecord record, bool is_shipped) {
    const std::optional<GemmCandidate> candidate =
        candidate_of(record, gemm_candidates(problem, gpu.num_multiprocessors));
    if (!candidate) return false;
    set_product(problem, *candidate, tuned.plan);
    tuned.choice = TunedChoice{std::move(record), is_shipped};
    return true;
  };
  const Result<RecordFolder> folder = default_record_folder();
  if (folder.ok()) {
    std::optional<TuningRecord> record = folder.value().find(environment_key(gpu), key);
    if (record && take(std::move(*record), false)) return tuned;
  }
  const auto shipped = shipped_records().find(key);
  if (shipped != shipped_records().end()) (void)take(shipped->second, true);
  return tuned;
}

}  // namespace octavo::cuda
