// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace octavo {
namespace {

constexpr int kMaxThreads = 1024;

Result<Environment> read_environment() {
  Environment result;
  if (const char* backend = std::getenv("OCTAVO_BACKEND")) result.backend = backend;
  if (const char* text = std::getenv("OCTAVO_NUM_THREADS")) {
    const char* end = text + std::strlen(text);
    const auto [stop, status] = std::from_chars(text, end, result.num_threads);
    if (status != std::errc() || stop != end || result.num_threads < 1 ||
        result.num_threads > kMaxThreads) {
      return Error(ErrorCode::kInvalidArgument,
                   std::string("environment: OCTAVO_NUM_THREADS is \"") + text +
                       "\"; it must be a whole number from 1 to 1024. Correct or unset it.");
    }
  }
  return result;
}

}  // namespace

const Result<Environment>& environment() {
  static const Result<Environment> result = read_environment();
  return result;
}

}  // namespace octavo
