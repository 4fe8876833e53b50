// SPDX-License-Identifier: Apache-2.0
// GPT-2's alphabet: every byte has a printable character, so that a vocabulary of byte strings can
// be written down as text. Printable Latin-1 bytes stand for themselves; the other 68 are U+0100,
// U+0101, ... in order, which makes the space U+0120.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace octavo::llm {

// The bytes that `token` spells, or nothing if it has a character outside the alphabet.
[[nodiscard]] std::optional<std::string> bytes_from_alphabet(std::string_view token);

}  // namespace octavo::llm
