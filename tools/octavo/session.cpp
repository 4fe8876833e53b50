// SPDX-License-Identifier: Apache-2.0
#include "session.hpp"

#include <unistd.h>

#include <utility>

namespace octavo::cli {
namespace {

constexpr std::string_view kClearLine = "\r\033[K";  // ECMA-48 "erase in line"

void write(std::FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
}

}  // namespace

ExitCode exit_code_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kIo:
    case ErrorCode::kBadFile: return ExitCode::kBadUsage;
    case ErrorCode::kUnsupported:
    case ErrorCode::kEnvironment: return ExitCode::kEnvironment;
    case ErrorCode::kInternal: return ExitCode::kCheckFailed;
  }
  return ExitCode::kCheckFailed;
}

void Session::text(std::string_view text) const {
  if (!json()) write(stdout, text);
}

void Session::document(Json document) {
  if (has_document_) {
    throw Error(ErrorCode::kInternal,
                "octavo: a verb made two JSON documents in one run; --json prints exactly one. "
                "Please report this.");
  }
  document_ = std::move(document);
  has_document_ = true;
}

void Session::progress(std::string_view text) {
  if (isatty(STDERR_FILENO) == 0) return;
  write(stderr, kClearLine);
  write(stderr, text);
  std::fflush(stderr);
  progress_shown_ = true;
}

void Session::clear_progress() const {
  if (progress_shown_) write(stderr, kClearLine);
}

bool Session::flush() {
  clear_progress();
  progress_shown_ = false;
  if (json() && has_document_) {
    // Invalid UTF-8 (a file name, a model's text) becomes U+FFFD rather than an exception.
    constexpr int kIndent = 2;
    write(stdout,
          document_.dump(kIndent, ' ', false, nlohmann::ordered_json::error_handler_t::replace));
    write(stdout, "\n");
  }
  return std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
}

}  // namespace octavo::cli
