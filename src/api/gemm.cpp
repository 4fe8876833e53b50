// SPDX-License-Identifier: Apache-2.0
// The public product: check the arguments, pick a back end, call it.
#include "octavo/gemm.hpp"

#include "api/select_backend.hpp"
#include "api/validate.hpp"

namespace octavo {

GemmReport gemm(const GemmProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  const Backend* backend = select_backend("gemm", problem, execution).value();
  return backend->gemm(problem, execution).value();
}

std::size_t workspace_bytes(const GemmProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  return select_backend("gemm", problem, execution).value()->workspace_bytes(problem, execution);
}

std::vector<SupportReport> supports(const GemmProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  return support_reports("gemm", problem, execution).value();
}

}  // namespace octavo
