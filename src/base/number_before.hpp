// SPDX-License-Identifier: Apache-2.0
// The numbers in what ptxas -v prints, as in "24 bytes spill stores".
#pragma once

#include <charconv>
#include <cstddef>
#include <optional>
#include <string_view>
#include <system_error>

namespace octavo {

// The number that ends right before the first `words`; nothing where there are no such words, no
// digits before them, or more than an int holds.
[[nodiscard]] inline std::optional<int> number_before(std::string_view line,
                                                      std::string_view words) {
  const std::size_t end = line.find(words);
  if (end == std::string_view::npos) return std::nullopt;
  const std::string_view head = line.substr(0, end);
  const std::size_t begin = head.find_last_not_of("0123456789") + 1;  // npos + 1 is 0
  int value = 0;
  const auto [stop, status] = std::from_chars(head.data() + begin, head.data() + end, value);
  if (status != std::errc()) return std::nullopt;
  return value;
}

}  // namespace octavo
