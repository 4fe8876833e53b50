// SPDX-License-Identifier: Apache-2.0
// Runs a program and waits for it, at most so long.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "octavo/error.hpp"

namespace octavo {

struct ChildResult {
  int exit_code = 0;     // of a program that ended by itself
  int signal = 0;        // that ended it; 0: none
  bool is_late = false;  // it was killed, for it took too long
  std::string output;    // stdout and stderr, in the order of writing

  [[nodiscard]] bool succeeded() const { return exit_code == 0 && signal == 0 && !is_late; }
};

// `arguments`: the program first, a path or a name that PATH has. Its stdin is empty. Error
// kEnvironment if it cannot be started.
[[nodiscard]] Result<ChildResult> run_child(const std::vector<std::string>& arguments,
                                            std::chrono::seconds limit);

}  // namespace octavo
