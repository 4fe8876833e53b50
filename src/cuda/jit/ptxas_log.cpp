// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/ptxas_log.hpp"

#include <algorithm>
#include <array>

#include "base/number_before.hpp"

namespace octavo {
namespace {

template <typename Visit>
void for_each_line(std::string_view text, Visit visit) {
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    visit(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

}  // namespace

std::optional<KernelResources> parse_resources(std::string_view log, std::string_view entry) {
  const std::string opening = "Compiling entry function '" + std::string(entry) + "'";
  KernelResources resources;
  bool inside = false;
  bool found = false;
  for_each_line(log, [&](std::string_view line) {
    if (line.find("Compiling entry function '") != std::string_view::npos) {
      inside = line.find(opening) != std::string_view::npos;
    }
    // The warning about spills repeats the numbers of the line that holds the stack frame.
    if (const auto stack = number_before(line, " bytes stack frame")) {
      resources.stack_bytes = std::max(resources.stack_bytes, *stack);
      resources.spill_store_bytes += number_before(line, " bytes spill stores").value_or(0);
      resources.spill_load_bytes += number_before(line, " bytes spill loads").value_or(0);
    }
    if (!inside) return;
    const auto registers = line.find("Used ") == std::string_view::npos
                               ? std::nullopt
                               : number_before(line, " registers");
    if (registers) {
      resources.registers = std::max(resources.registers, *registers);
      found = true;
    }
  });
  if (!found) return std::nullopt;
  return resources;
}

std::vector<std::string> lost_guarantees(std::string_view log) {
  constexpr std::array kCodes = {"(C7504)", "(C7505)", "(C7508)", "(C7509)",
                                 "(C7510)", "(C7519)", "(C7520)"};
  std::vector<std::string> lines;
  for_each_line(log, [&](std::string_view line) {
    const bool names_one = std::any_of(kCodes.begin(), kCodes.end(), [line](const char* code) {
      return line.find(code) != std::string_view::npos;
    });
    if (names_one) lines.emplace_back(line);
  });
  return lines;
}

}  // namespace octavo
