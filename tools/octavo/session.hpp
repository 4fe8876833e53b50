// SPDX-License-Identifier: Apache-2.0
// One run of the command: where its output goes and how it ends. With --json a run prints exactly
// one JSON document on stdout and nothing else. Not argument parsing: options.hpp.
#pragma once

#include <cstdio>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include "octavo/error.hpp"

namespace octavo::cli {

// Keeps keys in the order in which they are written, so that output reads the same every time.
using Json = nlohmann::ordered_json;

enum class ExitCode : int {
  kSuccess = 0,
  kCheckFailed = 1,  // a verdict was "no", or a defect in Octavo
  kBadUsage = 2,     // an option, a value or a file given is wrong
  kEnvironment = 3,  // the machine or the build lacks something
};

[[nodiscard]] ExitCode exit_code_of(ErrorCode code);

enum class OutputForm { kText, kJson };

class Session {
 public:
  explicit Session(OutputForm form) : form_(form) {}

  [[nodiscard]] bool json() const { return form_ == OutputForm::kJson; }

  // Text for people, on stdout at once; nothing with --json.
  void text(std::string_view text) const;
  // The run's one document; kept until the run ends, then printed with --json. A second call in
  // one run is a defect and throws Error kInternal.
  void document(Json document);

  // What is being done just now, on stderr, overwritten by the next; only if stderr is a terminal.
  void progress(std::string_view text);
  // Removes what progress() left on the terminal, so that a message has its line to itself.
  void clear_progress() const;

  // How the run ends if nothing is thrown.
  void finish_with(ExitCode code) { exit_code_ = code; }
  [[nodiscard]] ExitCode exit_code() const { return exit_code_; }

  // Clears progress, prints the document and flushes. False if stdout could not take it all.
  [[nodiscard]] bool flush();

 private:
  OutputForm form_;
  ExitCode exit_code_ = ExitCode::kSuccess;
  Json document_;
  bool has_document_ = false;
  bool progress_shown_ = false;
};

}  // namespace octavo::cli
