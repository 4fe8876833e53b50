// SPDX-License-Identifier: Apache-2.0
// Equality of two tensors bit for bit, with a failure text that names the first and the worst
// element and how to repeat the problem.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "numerics/codec.hpp"
#include "octavo/metrics.hpp"

namespace octavo::test {

[[nodiscard]] inline std::string position_text(const TensorView& view, std::int64_t position) {
  if (position < 0) return "none";
  std::string text = "]";
  for (int i = view.rank - 1; i >= 0; --i) {
    const std::int64_t extent = view.shape[static_cast<std::size_t>(i)];
    text = (i > 0 ? ", " : "[") + std::to_string(position % extent) + text;
    position /= extent;
  }
  return text;
}

[[nodiscard]] inline float element_at(const TensorView& view, std::int64_t position) {
  std::int64_t offset = 0;
  for (int i = view.rank - 1; i >= 0; --i) {
    const auto d = static_cast<std::size_t>(i);
    offset += position % view.shape[d] * view.strides[d];
    position /= view.shape[d];
  }
  return load_element(view.data, view.dtype, offset);
}

// EXPECT_TRUE(same_bits(got, want, repeat)). NaNs are all the same here; -0 is not 0.
[[nodiscard]] inline ::testing::AssertionResult same_bits(const TensorView& got,
                                                          const TensorView& want,
                                                          const std::string& repeat) {
  const ErrorMetrics metrics = compare(got, want);
  if (metrics.num_different_bits == 0) return ::testing::AssertionSuccess();
  std::ostringstream text;
  text.precision(9);
  text << metrics.num_different_bits << " of " << metrics.num_elements << " elements differ; first "
       << position_text(want, metrics.first_different) << ": "
       << element_at(got, metrics.first_different) << " instead of "
       << element_at(want, metrics.first_different);
  if (metrics.worst >= 0) {
    text << "; worst " << position_text(want, metrics.worst) << ": "
         << element_at(got, metrics.worst) << " instead of " << element_at(want, metrics.worst);
  }
  text << "\nrepeat: " << repeat;
  return ::testing::AssertionFailure() << text.str();
}

}  // namespace octavo::test
