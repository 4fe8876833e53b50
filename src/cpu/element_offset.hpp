// SPDX-License-Identifier: Apache-2.0
// Where an element of a strided matrix lies. One place, 64 bits throughout: a matrix of a few
// gigabytes has offsets past 2^31.
#pragma once

#include <cstdint>

#include "octavo/tensor_view.hpp"

namespace octavo::cpu {

// Offset of element (row, col), in elements from `view.data`.
template <typename Pointer>
[[nodiscard]] constexpr std::int64_t element_offset(const BasicTensorView<Pointer>& view,
                                                    std::int64_t row, std::int64_t col) noexcept {
  return row * view.strides[0] + col * view.strides[1];
}

// The same in bytes.
template <typename Pointer>
[[nodiscard]] constexpr std::int64_t byte_offset(const BasicTensorView<Pointer>& view,
                                                 std::int64_t row, std::int64_t col) noexcept {
  return element_offset(view, row, col) * size_bytes(view.dtype);
}

// Address of element (row, col).
[[nodiscard]] inline const void* element_address(const TensorView& view, std::int64_t row,
                                                 std::int64_t col) noexcept {
  return static_cast<const char*>(view.data) + byte_offset(view, row, col);
}
[[nodiscard]] inline void* element_address(const MutableTensorView& view, std::int64_t row,
                                           std::int64_t col) noexcept {
  return static_cast<char*>(view.data) + byte_offset(view, row, col);
}

}  // namespace octavo::cpu
