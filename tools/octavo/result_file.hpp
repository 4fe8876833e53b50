// SPDX-License-Identifier: Apache-2.0
// What every result file says besides its rows: when, of which sources (bench/METHOD.md).
#pragma once

#include <string>

#include "session.hpp"

namespace octavo::cli {

inline constexpr int kResultSchema = 1;

// Which sources this was measured in: null outside a clone of Octavo, whose other commits say
// nothing about this program.
[[nodiscard]] Json commit_here();
// Whether they differ from that commit; null outside a clone.
[[nodiscard]] Json dirty_here();

// Replaces the file. Throws Error kIo.
void write_result(const Json& document, const std::string& path);

}  // namespace octavo::cli
