// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/compiled_kernel.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace octavo {

Status check_entry_name(const KernelSource& source) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
  };
  const auto is_word = [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); };
  const std::string& entry = source.entry;
  if (!entry.empty() && entry.size() <= kMaxEntryLength && is_letter(entry.front()) &&
      std::all_of(entry.begin(), entry.end(), is_word)) {
    return Ok{};
  }
  // A zero would end the message.
  std::string shown = entry.substr(0, kMaxEntryLength);
  std::replace_if(
      shown.begin(), shown.end(), [](char c) { return c >= 0 && c < ' '; }, '?');
  return Error(ErrorCode::kInternal,
               fmt::format("jit: a kernel's entry is \"{}\" ({} characters); it must be a C "
                           "identifier of at most {}. Shorten or correct the name.",
                           shown, entry.size(), kMaxEntryLength));
}

}  // namespace octavo
