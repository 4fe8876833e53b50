// SPDX-License-Identifier: Apache-2.0
// How long tests may take: OCTAVO_TEST_LEVEL=full asks for exhaustive sweeps.
#pragma once

#include <cstdlib>
#include <string_view>

namespace octavo::test {

[[nodiscard]] inline bool full_level() {
  const char* level = std::getenv("OCTAVO_TEST_LEVEL");
  return level != nullptr && std::string_view(level) == "full";
}

}  // namespace octavo::test
