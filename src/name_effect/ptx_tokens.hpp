// SPDX-License-Identifier: Apache-2.0
// The words of a PTX module (PTX ISA 8.x and 9.x, "Syntax"). It may come from anywhere: whatever is
// wrong is an Error with its line and column.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "octavo/error.hpp"

namespace octavo {

enum class PtxTokenKind : std::uint8_t {
  kIdentifier,   // a name or the first word of an instruction; %r1 and %tid are too
  kDirective,    // with its dot: .entry, and what follows the first word of an instruction: .f32
  kNumber,       //
  kString,       // with its quotes
  kPunctuation,  // one character
};

struct PtxToken {
  PtxTokenKind kind;
  std::uint32_t line;    // from 1 on
  std::uint32_t column;  // from 1 on, in bytes
  std::string_view text;
};

// Comments and lines that begin with # are left out. `file`: for messages. The tokens refer to
// `text`.
[[nodiscard]] Result<std::vector<PtxToken>> tokenize_ptx(std::string_view text,
                                                         std::string_view file);

// Error kBadFile: "<file>:<line>:<column>: <what>".
[[nodiscard]] Error ptx_error(std::string_view file, std::uint32_t line, std::uint32_t column,
                              std::string_view what);

}  // namespace octavo
