// SPDX-License-Identifier: Apache-2.0
// One code point of UTF-8 at a time, strictly: no overlong forms, no surrogates, nothing above
// U+10FFFF. What to do with what is not UTF-8 is the caller's choice: pre_tokenizer.cpp takes such
// a byte as a character of its own, utf8_stream.cpp replaces it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace octavo::llm {

enum class Utf8Kind {
  kCodePoint,   // `length` bytes are the code point `code_point`
  kInvalid,     // the first `length` bytes can begin no code point (a maximal subpart)
  kIncomplete,  // all `length` bytes left are a good beginning; more may follow
};

struct Utf8Step {
  Utf8Kind kind;
  std::int32_t code_point;
  std::size_t length;
};

// Reads the beginning of `text`, which must not be empty.
[[nodiscard]] Utf8Step read_utf8(std::string_view text) noexcept;

}  // namespace octavo::llm
