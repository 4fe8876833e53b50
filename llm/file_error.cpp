// SPDX-License-Identifier: Apache-2.0
// Messages about files. See file_error.hpp.
#include "llm/file_error.hpp"

#include <fmt/format.h>

namespace octavo::llm {
namespace {

constexpr std::size_t kMaxShownBytes = 80;
constexpr unsigned char kFirstPrintable = 0x20;
constexpr unsigned char kLastPrintable = 0x7E;

}  // namespace

Error bad_file(std::string_view file, std::string_view found, std::string_view rule,
               std::string_view fix) {
  return {ErrorCode::kBadFile, fmt::format("{}: {}; {}. {}.", file, found, rule, fix)};
}

std::string printable(std::string_view text) {
  std::string shown = "\"";
  for (const char c : text.substr(0, kMaxShownBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < kFirstPrintable || byte > kLastPrintable) {
      shown += fmt::format("\\x{:02x}", byte);
    } else {
      shown += c;
    }
  }
  shown += text.size() > kMaxShownBytes ? "...\"" : "\"";
  return shown;
}

}  // namespace octavo::llm
