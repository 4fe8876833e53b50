// SPDX-License-Identifier: Apache-2.0
// The public calls of several products at once: check the arguments, pick a back end, call it.
#include "octavo/grouped_gemm.hpp"

#include "api/select_backend.hpp"
#include "api/validate.hpp"

namespace octavo {

GemmReport grouped_gemm(const GroupedGemmProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  const Backend* backend = select_backend("grouped_gemm", problem, execution).value();
  return backend->grouped_gemm(problem, execution).value();
}

std::size_t workspace_bytes(const GroupedGemmProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  const Backend* backend = select_backend("grouped_gemm", problem, execution).value();
  return backend->workspace_bytes(problem, execution);
}

std::vector<SupportReport> supports(const GroupedGemmProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  return support_reports("grouped_gemm", problem, execution).value();
}

namespace {

// All are on one device: what serves the first serves the others, or says why not.
const Backend* backend_of_all(std::span<const GemmProblem> problems, const Execution& execution) {
  const Backend* backend = select_backend("fused_gemm", problems[0], execution).value();
  for (const GemmProblem& problem : problems) {
    if (backend->serves(problem, execution)) continue;
    throw unserved("fused_gemm", {backend->supports(problem, execution)});
  }
  return backend;
}

}  // namespace

FusedGemmReport fused_gemm(std::span<const GemmProblem> problems, const Execution& execution) {
  (void)validate(problems).value();
  (void)validate(execution).value();
  if (problems.empty()) return {};
  return backend_of_all(problems, execution)->fused_gemm(problems, execution).value();
}

std::size_t workspace_bytes(std::span<const GemmProblem> problems, const Execution& execution) {
  (void)validate(problems).value();
  (void)validate(execution).value();
  if (problems.empty()) return 0;
  return backend_of_all(problems, execution)->workspace_bytes(problems, execution);
}

}  // namespace octavo
