// SPDX-License-Identifier: Apache-2.0
#include "llm/byte_alphabet.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

#include "llm/utf8.hpp"

namespace octavo::llm {
namespace {

constexpr std::size_t kNumBytes = 256;
constexpr std::size_t kNumMoved = 68;  // bytes whose character lies at U+0100 and above

constexpr bool stands_for_itself(std::size_t byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

// By code point; -1 outside the alphabet.
using Alphabet = std::array<std::int16_t, kNumBytes + kNumMoved>;

constexpr Alphabet make_alphabet() {
  Alphabet bytes{};
  std::size_t moved = 0;
  for (std::size_t byte = 0; byte < kNumBytes; ++byte) {
    if (stands_for_itself(byte)) {
      bytes[byte] = static_cast<std::int16_t>(byte);
    } else {
      bytes[byte] = -1;
      bytes[kNumBytes + moved] = static_cast<std::int16_t>(byte);
      ++moved;
    }
  }
  return bytes;
}

constexpr Alphabet kAlphabet = make_alphabet();
static_assert(kAlphabet[0x120] == ' ' && kAlphabet[kNumBytes + kNumMoved - 1] == 0xAD);

}  // namespace

std::optional<std::string> bytes_from_alphabet(std::string_view token) {
  std::string bytes;
  while (!token.empty()) {
    const Utf8Step step = read_utf8(token);
    if (step.kind != Utf8Kind::kCodePoint) return std::nullopt;
    const auto code_point = static_cast<std::size_t>(step.code_point);
    if (code_point >= kAlphabet.size() || kAlphabet[code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet[code_point]));
    token.remove_prefix(step.length);
  }
  return bytes;
}

}  // namespace octavo::llm
