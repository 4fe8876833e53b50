// SPDX-License-Identifier: Apache-2.0
#include "api/validate.hpp"

namespace octavo {

Status validate(const QuantizeProblem&) { return Ok{}; }
Status validate(const DequantizeProblem&) { return Ok{}; }
Status validate(const RequantizeProblem&) { return Ok{}; }

}  // namespace octavo
