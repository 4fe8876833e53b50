// SPDX-License-Identifier: Apache-2.0
// The public tuner: check the arguments, ask the "cuda" back end.
#include "octavo/tuning.hpp"

#include <fmt/format.h>

#include "api/validate.hpp"
#include "backend/backend.hpp"

namespace octavo {

std::vector<TuningReport> tune(std::span<const GemmProblem> problems,
                               const TuningOptions& options) {
  for (const GemmProblem& problem : problems) (void)validate(problem).value();
  if (!(options.budget_s >= 0) || !(options.window_ms > 0)) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("tune: budget_s is {} and window_ms {}; the first must be 0 or more, the "
                    "second above 0.",
                    options.budget_s, options.window_ms));
  }
  return cuda_tune(problems, options).value();
}

TuningStore tuning_store() { return cuda_tuning_store().value(); }

std::string export_tuning() { return cuda_export_tuning(tuning_store()); }

int import_tuning(std::string_view text) { return cuda_import_tuning(text).value(); }

TuningStatistics tuning_statistics() { return cuda_tuning_statistics(); }

}  // namespace octavo
