// SPDX-License-Identifier: Apache-2.0
#include "octavo/runtime.hpp"

namespace octavo {

std::string version() { return OCTAVO_VERSION; }

}  // namespace octavo
