// SPDX-License-Identifier: Apache-2.0
// A tensor somebody else owns: pointer, dtype, shape, strides, device. Nothing here allocates.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <type_traits>

#include "octavo/dtype.hpp"

namespace octavo {

inline constexpr int kMaxRank = 4;

enum class DeviceKind : std::uint8_t { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int ordinal = 0;

  friend bool operator==(const Device&, const Device&) = default;
};

[[nodiscard]] inline std::string to_string(Device device) {
  return device.kind == DeviceKind::kCpu ? "cpu" : "cuda:" + std::to_string(device.ordinal);
}

// Strides count elements and may be 0 (a broadcast) or negative. A view with data == nullptr and
// rank == 0 is "absent": the way optional arguments are left out.
template <typename Pointer>
struct BasicTensorView {
  Pointer data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<std::int64_t, kMaxRank> shape{};
  std::array<std::int64_t, kMaxRank> strides{};
  Device device{};

  [[nodiscard]] bool absent() const noexcept { return data == nullptr && rank == 0; }
  [[nodiscard]] bool present() const noexcept { return !absent(); }

  [[nodiscard]] std::int64_t num_elements() const noexcept {
    std::int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= shape[static_cast<std::size_t>(i)];
    return n;
  }

  // True if the elements are dense in row-major order (a length-1 dimension's stride is ignored).
  [[nodiscard]] bool contiguous() const noexcept {
    std::int64_t expected = 1;
    for (int i = rank - 1; i >= 0; --i) {
      const auto d = static_cast<std::size_t>(i);
      if (shape[d] != 1 && strides[d] != expected) return false;
      expected *= shape[d];
    }
    return true;
  }

  // A mutable view converts to a read-only one.
  operator BasicTensorView<const void*>() const noexcept  // NOLINT(google-explicit-constructor)
      requires(!std::is_same_v<Pointer, const void*>) {
    return {data, dtype, rank, shape, strides, device};
  }
};

using TensorView = BasicTensorView<const void*>;
using MutableTensorView = BasicTensorView<void*>;

// Dense row-major view. Throws std::length_error for more than kMaxRank dimensions.
template <typename T>
[[nodiscard]] auto make_view(T* data, DType dtype, std::initializer_list<std::int64_t> shape,
                             Device device = {}) {
  using Pointer = std::conditional_t<std::is_const_v<T>, const void*, void*>;
  if (shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw std::length_error("make_view: " + std::to_string(shape.size()) +
                            " dimensions were given; a view has at most 4");
  }
  BasicTensorView<Pointer> view;
  view.data = data;
  view.dtype = dtype;
  view.device = device;
  for (const std::int64_t extent : shape)
    view.shape[static_cast<std::size_t>(view.rank++)] = extent;
  std::int64_t stride = 1;
  for (int i = view.rank - 1; i >= 0; --i) {
    const auto d = static_cast<std::size_t>(i);
    view.strides[d] = stride;
    stride *= view.shape[d];
  }
  return view;
}

// The same tensor with two dimensions exchanged; no data moves.
template <typename Pointer>
[[nodiscard]] BasicTensorView<Pointer> transposed(BasicTensorView<Pointer> view, int dim0,
                                                  int dim1) {
  const auto i = static_cast<std::size_t>(dim0);
  const auto j = static_cast<std::size_t>(dim1);
  std::swap(view.shape[i], view.shape[j]);
  std::swap(view.strides[i], view.strides[j]);
  return view;
}

}  // namespace octavo
