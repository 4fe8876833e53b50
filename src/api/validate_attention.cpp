// SPDX-License-Identifier: Apache-2.0
#include "api/validate.hpp"

namespace octavo {

Status validate(const AttentionProblem&) { return Ok{}; }

}  // namespace octavo
