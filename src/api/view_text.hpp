// SPDX-License-Identifier: Apache-2.0
// Shapes and strides of views as messages write them: [2, 3].
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>

#include "octavo/tensor_view.hpp"

namespace octavo {

// The first `rank` values; a message about a bad rank may ask for more than there are.
[[nodiscard]] inline std::string list_text(const std::array<std::int64_t, kMaxRank>& values,
                                           int rank) {
  std::string text = "[";
  for (int i = 0; i < rank && i < kMaxRank; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", values[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

template <typename Pointer>
[[nodiscard]] std::string shape_text(const BasicTensorView<Pointer>& view) {
  return list_text(view.shape, view.rank);
}

template <typename Pointer>
[[nodiscard]] std::string strides_text(const BasicTensorView<Pointer>& view) {
  return list_text(view.strides, view.rank);
}

}  // namespace octavo
