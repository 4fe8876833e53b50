// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/tuned_choice.hpp"

#include <map>
#include <string>
#include <utility>

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

std::optional<GemmConfig> config_of(const TuningRecord& record,
                                    const std::vector<GemmCandidate>& candidates) {
  const Result<GemmConfig> config = parse_kernel_name(record.kernel);
  if (!config.ok()) return std::nullopt;
  for (const GemmCandidate& candidate : candidates) {
    if (candidate.config == config.value()) return config.value();
  }
  return std::nullopt;
}

}  // namespace

std::optional<TunedChoice> tuned_choice(const GemmProblem& problem, const GpuDescription& gpu,
                                        const std::vector<GemmCandidate>& candidates) {
  if (candidates.empty()) return std::nullopt;
  const std::string key = problem_key(problem, gpu, candidates.front().config.num_splits);
  const Result<RecordFolder> folder = default_record_folder();
  if (folder.ok()) {
    if (std::optional<TuningRecord> record = folder.value().find(environment_key(gpu), key)) {
      if (const std::optional<GemmConfig> config = config_of(*record, candidates)) {
        return TunedChoice{*config, std::move(*record), false};
      }
    }
  }
  const auto shipped = shipped_records().find(key);
  if (shipped == shipped_records().end()) return std::nullopt;
  const std::optional<GemmConfig> config = config_of(shipped->second, candidates);
  if (!config) return std::nullopt;
  return TunedChoice{*config, shipped->second, true};
}

}  // namespace octavo::cuda
