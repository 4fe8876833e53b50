// SPDX-License-Identifier: Apache-2.0
// Errors: one code, one exception type for callers, and Result<T> for code inside the library.
// Every message has four parts: where, what was given, the rule, the fix.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>
#include <variant>

namespace octavo {

enum class ErrorCode {
  kInvalidArgument,  // a caller's argument breaks a documented rule
  kUnsupported,      // valid, but no back end in this build or on this machine serves it
  kEnvironment,      // the machine lacks something: a library, a driver, a permission
  kIo,               // a file could not be opened, read or written
  kBadFile,          // a file was read and its content breaks its format
  kInternal,         // a defect in Octavo
};

[[nodiscard]] constexpr const char* to_string(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid argument";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kEnvironment: return "environment";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kBadFile: return "bad file";
    case ErrorCode::kInternal: return "internal";
  }
  return "unknown";
}

// The only exception type that public calls throw (std::bad_alloc apart).
class Error : public std::runtime_error {
 public:
  Error(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}

  [[nodiscard]] ErrorCode code() const noexcept { return code_; }

 private:
  ErrorCode code_;
};

// A value or an Error. value() throws the Error; public calls end in value().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::move(value)) {}      // NOLINT(google-explicit-constructor)
  Result(Error error) : state_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool ok() const noexcept { return std::holds_alternative<T>(state_); }
  [[nodiscard]] const Error& error() const { return std::get<Error>(state_); }
  [[nodiscard]] T& value() & {
    if (!ok()) throw error();
    return std::get<T>(state_);
  }
  [[nodiscard]] const T& value() const& {
    if (!ok()) throw error();
    return std::get<T>(state_);
  }
  [[nodiscard]] T&& value() && {
    if (!ok()) throw error();
    return std::get<T>(std::move(state_));
  }

 private:
  std::variant<T, Error> state_;
};

// Success without a value.
struct Ok {};
using Status = Result<Ok>;

}  // namespace octavo
