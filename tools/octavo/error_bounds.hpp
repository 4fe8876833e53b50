// SPDX-License-Identifier: Apache-2.0
// How large an error may be before the command calls a result wrong. Every bound is on the relative
// Frobenius error against FP64 arithmetic on the same quantized operands, and comes with the rule
// it follows. The tensor core's share: docs/numerics.md.
#pragma once

#include <cstdint>
#include <string>

#include "gemm_request.hpp"
#include "octavo/backend.hpp"

namespace octavo::cli {

struct ErrorBound {
  double relative_frobenius = 0;
  std::string rule;
};

// What rounding to an output type costs: for each element at most relative * |x| + absolute.
struct RoundingCost {
  double relative = 0;
  double absolute = 0;
};
[[nodiscard]] RoundingCost rounding_cost(DType dtype);

// Of the sums alone, before rounding to a narrow output.
[[nodiscard]] ErrorBound accumulation_bound(const GemmRequest& request, Numerics numerics);

}  // namespace octavo::cli
