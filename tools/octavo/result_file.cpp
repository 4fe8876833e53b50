// SPDX-License-Identifier: Apache-2.0
#include "result_file.hpp"

#include <array>
#include <cstdio>

#include "tensor_file.hpp"

namespace octavo::cli {
namespace {

// What a fixed git command prints, without the last newline; empty if there is no repository.
std::string git_output(const char* command) {
  std::FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return "";
  std::string output;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) {
    output += buffer.data();
  }
  if (pclose(pipe) != 0) return "";
  while (output.ends_with('\n')) output.pop_back();
  return output;
}

}  // namespace

Json commit_here() {
  const std::string tracked = git_output("git ls-files -- :/include/octavo/octavo.hpp 2>/dev/null");
  if (tracked.empty()) return nullptr;
  return git_output("git rev-parse HEAD 2>/dev/null");
}

Json dirty_here() {
  if (commit_here().is_null()) return nullptr;
  return !git_output(
              "git status --porcelain --untracked-files=no -- :/src :/include :/tools :/bench "
              ":/kernels :/measure 2>/dev/null")
              .empty();
}

void write_result(const Json& document, const std::string& path) {
  // A path in it need not be UTF-8: what is not becomes U+FFFD rather than an exception.
  constexpr int kIndent = 1;
  const std::string text =
      document.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
  ReplacedFile file(path);
  file.write(text.data(), text.size());
  file.commit();
}

}  // namespace octavo::cli
