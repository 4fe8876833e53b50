// SPDX-License-Identifier: Apache-2.0
#include "base/environment.hpp"

#include <charconv>
#include <cstdlib>
#include <cstring>

namespace octavo {
namespace {

constexpr int kMaxThreads = 1024;

// Empty if unset: for folders, an empty value means the same.
std::string text_of(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string default_cache_dir() {
  // The XDG base directory specification tells to ignore a relative path.
  const std::string caches = text_of("XDG_CACHE_HOME");
  if (caches.starts_with('/')) return caches + "/octavo/cubin";
  const std::string home = text_of("HOME");
  return home.empty() ? "" : home + "/.cache/octavo/cubin";
}

Result<Environment> read_environment() {
  Environment result;
  if (const char* backend = std::getenv("OCTAVO_BACKEND")) result.backend = backend;
  result.cache_dir = text_of("OCTAVO_CACHE_DIR");
  if (result.cache_dir.empty()) result.cache_dir = default_cache_dir();
  result.jit_dump = text_of("OCTAVO_JIT_DUMP");
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
