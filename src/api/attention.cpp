// SPDX-License-Identifier: Apache-2.0
// Public attention: check the arguments, pick a back end, call it.
#include "octavo/attention.hpp"

#include "api/select_backend.hpp"
#include "api/validate.hpp"

namespace octavo {

AttentionReport attention(const AttentionProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  const Backend* backend = select_backend("attention", problem, execution).value();
  return backend->attention(problem, execution).value();
}

std::size_t workspace_bytes(const AttentionProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  return select_backend("attention", problem, execution)
      .value()
      ->workspace_bytes(problem, execution);
}

std::vector<SupportReport> supports(const AttentionProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  return support_reports("attention", problem, execution).value();
}

}  // namespace octavo
