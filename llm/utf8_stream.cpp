// SPDX-License-Identifier: Apache-2.0
#include "llm/utf8_stream.hpp"

#include "llm/utf8.hpp"

namespace octavo::llm {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

std::string Utf8Stream::push(std::string_view bytes) {
  held_.append(bytes);
  std::string out;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = read_utf8(rest);
    if (step.kind == Utf8Kind::kIncomplete) break;
    out.append(step.kind == Utf8Kind::kCodePoint ? rest.substr(0, step.length) : kReplacement);
    rest.remove_prefix(step.length);
  }
  held_ = std::string(rest);
  return out;
}

std::string Utf8Stream::finish() {
  if (held_.empty()) return {};
  held_.clear();
  return std::string(kReplacement);
}

}  // namespace octavo::llm
