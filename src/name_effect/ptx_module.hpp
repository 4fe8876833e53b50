// SPDX-License-Identifier: Apache-2.0
// A PTX module's entries, and the module with other names for them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "name_effect/ptx_tokens.hpp"
#include "octavo/error.hpp"

namespace octavo {

struct PtxEntry {
  std::string name;
  std::uint32_t line;
  std::uint32_t column;
  std::vector<std::size_t> parameter_bytes;  // of each; 0: of a type that is not known
};

struct PtxModule {
  std::string version;            // as in "8.7"
  std::string target;             // as in "sm_90a"
  std::vector<PtxEntry> entries;  // that have a body
};

// Of tokens of a text. Error where brackets do not match, an entry has no name or one twice, or
// .version and .target do not come first.
[[nodiscard]] Result<PtxModule> read_ptx_module(std::span<const PtxToken> tokens,
                                                std::string_view file);

// What ptxas looks for in an entry's symbol (docs/kernel_names.md).
inline constexpr std::string_view kNameWord = "cutlass";
[[nodiscard]] bool has_name_word(std::string_view name);

struct Renaming {
  std::string from;
  std::string to;
};

// A name with the word for each entry that lacks it; of the same length, so that string tables keep
// their size, unless it is shorter than the word. No other symbol of the module has it.
[[nodiscard]] std::vector<Renaming> names_with_word(const PtxModule& module,
                                                    std::span<const PtxToken> tokens);

// A name of the same length without the word for each entry that has it.
[[nodiscard]] std::vector<Renaming> names_without_word(const PtxModule& module,
                                                       std::span<const PtxToken> tokens);

// The text with these names: where an entry is defined, declared, called, aliased or referred to,
// in strings that consist of the name (but not of .pragma and .file), and, where both have the same
// length, in the bytes of debug sections. Instructions and targets that are spelled like an entry
// stay. `tokens`: of `text`.
[[nodiscard]] std::string rename_in_ptx(std::string_view text, std::span<const PtxToken> tokens,
                                        std::span<const Renaming> renamings);

}  // namespace octavo
