// SPDX-License-Identifier: Apache-2.0
// octavo names ab: what the word "cutlass" in an entry's name does to its machine code.
#pragma once

#include "session.hpp"

namespace CLI {
class App;
}

namespace octavo::cli {

void add_names_ab(CLI::App& names, Session& session);

}  // namespace octavo::cli
