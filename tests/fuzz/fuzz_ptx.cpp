// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to the rewriter of PTX. Anything but octavo::Error, a renamed module that is no
// module any more or has other entries, or a second rewriting that changes something, is a defect.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "name_effect/ptx_module.hpp"

namespace {

using octavo::PtxModule;
using octavo::PtxToken;
using octavo::Renaming;
using octavo::Result;

using Chooser = std::vector<Renaming> (*)(const PtxModule&, std::span<const PtxToken>);

void rewrite_twice(std::string_view text, const PtxModule& module,
                   const std::vector<PtxToken>& tokens, Chooser choose) {
  const std::string once = octavo::rename_in_ptx(text, tokens, choose(module, tokens));
  const Result<std::vector<PtxToken>> again = octavo::tokenize_ptx(once, "fuzz");
  if (!again.ok() || again.value().size() != tokens.size()) std::abort();
  const Result<PtxModule> renamed = octavo::read_ptx_module(again.value(), "fuzz");
  if (!renamed.ok() || renamed.value().entries.size() != module.entries.size()) std::abort();
  const std::vector<Renaming> nothing = choose(renamed.value(), again.value());
  if (!nothing.empty()) std::abort();
  if (octavo::rename_in_ptx(once, again.value(), nothing) != once) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const Result<std::vector<PtxToken>> tokens = octavo::tokenize_ptx(text, "fuzz");
  if (!tokens.ok()) return 0;
  const Result<PtxModule> module = octavo::read_ptx_module(tokens.value(), "fuzz");
  if (!module.ok()) return 0;
  rewrite_twice(text, module.value(), tokens.value(), &octavo::names_with_word);
  rewrite_twice(text, module.value(), tokens.value(), &octavo::names_without_word);
  return 0;
}
