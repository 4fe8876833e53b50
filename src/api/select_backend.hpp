// SPDX-License-Identifier: Apache-2.0
// Picks the back end for a validated problem, or explains why none serves it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "backend/backend.hpp"
#include "base/environment.hpp"
#include "octavo/error.hpp"

namespace octavo {

// The name a call asks for: its own, else OCTAVO_BACKEND's, else empty.
[[nodiscard]] inline Result<std::string_view> requested_backend(const Execution& execution) {
  if (!execution.backend.empty()) return execution.backend;
  const Result<Environment>& settings = environment();
  if (!settings.ok()) return settings.error();
  return std::string_view(settings.value().backend);
}

[[nodiscard]] Error unknown_backend(std::string_view operation, std::string_view name);
[[nodiscard]] Error unserved(std::string_view operation, const std::vector<SupportReport>& reports);

// The reports of every back end asked for.
template <typename Problem>
[[nodiscard]] Result<std::vector<SupportReport>> support_reports(std::string_view operation,
                                                                 const Problem& problem,
                                                                 const Execution& execution) {
  const Result<std::string_view> requested = requested_backend(execution);
  if (!requested.ok()) return requested.error();
  const std::string_view name = requested.value();
  std::vector<SupportReport> reports;
  for (const auto& backend : registry()) {
    if (!name.empty() && backend->name() != name) continue;
    reports.push_back(backend->supports(problem, execution));
  }
  if (reports.empty()) return unknown_backend(operation, name);
  return reports;
}

// The first back end asked for that serves the problem.
template <typename Problem>
[[nodiscard]] Result<const Backend*> select_backend(std::string_view operation,
                                                    const Problem& problem,
                                                    const Execution& execution) {
  const Result<std::string_view> requested = requested_backend(execution);
  if (!requested.ok()) return requested.error();
  for (const auto& backend : registry()) {
    if (!requested.value().empty() && backend->name() != requested.value()) continue;
    if (backend->serves(problem, execution)) return backend.get();
  }
  Result<std::vector<SupportReport>> reports = support_reports(operation, problem, execution);
  if (!reports.ok()) return reports.error();
  return unserved(operation, reports.value());
}

}  // namespace octavo
