// SPDX-License-Identifier: Apache-2.0
// The four-part messages of errors about files: which file, what was found, the rule, the fix.
// Text that comes from a file is hostile too: printable() bounds and escapes it before it is shown.
#pragma once

#include <string>
#include <string_view>

#include "octavo/error.hpp"

namespace octavo::llm {

// "<file>: <found>; <rule>. <fix>." The parts come without their final punctuation.
[[nodiscard]] Error bad_file(std::string_view file, std::string_view found, std::string_view rule,
                             std::string_view fix);

// The text in quotes, at most 80 bytes of it, with everything but printable ASCII escaped.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace octavo::llm
