// SPDX-License-Identifier: Apache-2.0
// Bounded reading of fields. See byte_cursor.hpp.
#include "llm/byte_cursor.hpp"

#include <fmt/format.h>

#include "llm/file_error.hpp"

namespace octavo::llm {

std::span<const std::byte> ByteCursor::take(std::uint64_t count, std::string_view what) {
  if (count > remaining()) {
    throw bad_file(file_,
                   fmt::format("{} at byte {} takes {} bytes, and {} are left", what, position_,
                               count, remaining()),
                   "every field must lie inside the file",
                   "The file is truncated or damaged; fetch it again");
  }
  const std::span<const std::byte> taken = bytes_.subspan(position_, count);
  position_ += count;
  return taken;
}

std::string_view ByteCursor::read_string(std::string_view what) {
  const auto length = read<std::uint64_t>(what);
  const std::span<const std::byte> text = take(length, what);
  return {reinterpret_cast<const char*>(text.data()), text.size()};
}

}  // namespace octavo::llm
