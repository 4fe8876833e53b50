// SPDX-License-Identifier: Apache-2.0
// Bytes as lower-case hexadecimal digits.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <span>
#include <string>

namespace octavo {

[[nodiscard]] inline std::string hex_of(std::span<const std::byte> bytes) {
  std::string text;
  for (const std::byte byte : bytes) text += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
  return text;
}

}  // namespace octavo
