// SPDX-License-Identifier: Apache-2.0
#include "api/select_backend.hpp"

#include <fmt/format.h>

namespace octavo {

std::vector<BackendInfo> list_backends() {
  std::vector<BackendInfo> infos;
  for (const auto& backend : registry()) infos.push_back(backend->info());
  return infos;
}

std::string to_string(const Reason& reason) {
  return fmt::format("{}: {} is {}; needs {}", reason.kind, reason.field, reason.have, reason.need);
}

Error unknown_backend(std::string_view operation, std::string_view name) {
  std::string known;
  for (const auto& backend : registry()) {
    known += fmt::format("{}\"{}\"", known.empty() ? "" : ", ", backend->name());
  }
  return {
      ErrorCode::kInvalidArgument,
      fmt::format("{}: backend is \"{}\"; this build has {}. Name one of these, or leave it empty "
                  "for the first that serves the problem.",
                  operation, name, known)};
}

Error unserved(std::string_view operation, const std::vector<SupportReport>& reports) {
  std::string message = fmt::format("{}: no back end serves this problem.", operation);
  bool only_environment = true;
  for (const SupportReport& report : reports) {
    for (const Reason& reason : report.reasons) {
      message += fmt::format(" {}: {}.", report.backend, to_string(reason));
      only_environment = only_environment && reason.kind == "environment";
    }
  }
  message += " Change the argument named, or choose another back end (octavo list backends).";
  return {only_environment ? ErrorCode::kEnvironment : ErrorCode::kUnsupported, message};
}

}  // namespace octavo
