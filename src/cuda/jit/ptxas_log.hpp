// SPDX-License-Identifier: Apache-2.0
// Reads what ptxas -v writes into a compile log.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cuda/jit/compiled_kernel.hpp"

namespace octavo {

// Nothing if the log does not report on a kernel of that name.
[[nodiscard]] std::optional<KernelResources> parse_resources(std::string_view log,
                                                             std::string_view entry);

// Lines in which ptxas says that it gave up what a warp-specialised kernel stands on: setmaxnreg
// ignored (C7504, C7505, C7508), wgmma serialised or waits inserted (C7509, C7510, C7519, C7520).
[[nodiscard]] std::vector<std::string> lost_guarantees(std::string_view log);

}  // namespace octavo
