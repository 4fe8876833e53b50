// SPDX-License-Identifier: Apache-2.0
// A dense tensor in host memory that owns its elements. The library works on views; the command
// needs somebody to own the memory behind them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "octavo/tensor_view.hpp"

namespace octavo::cli {

class HostTensor {
 public:
  HostTensor() = default;  // absent

  // Every byte is 0xFF: NaN in every value type, so that an element nobody wrote is noticed.
  HostTensor(DType dtype, std::vector<std::int64_t> shape);

  [[nodiscard]] bool absent() const { return shape_.empty(); }
  [[nodiscard]] bool present() const { return !absent(); }
  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] const std::vector<std::int64_t>& shape() const { return shape_; }
  [[nodiscard]] std::int64_t num_elements() const;

  // An absent tensor's view is absent.
  [[nodiscard]] TensorView view() const;
  [[nodiscard]] MutableTensorView mutable_view();

  [[nodiscard]] std::span<const std::byte> bytes() const { return bytes_; }
  [[nodiscard]] std::span<std::byte> mutable_bytes() { return bytes_; }

  // The elements of an F32 tensor.
  [[nodiscard]] std::span<float> f32();
  [[nodiscard]] std::span<const float> f32() const;

 private:
  DType dtype_ = DType::kF32;
  std::vector<std::int64_t> shape_;
  std::vector<std::byte> bytes_;
};

// F32 elements rounded to another type (FP8 without a scale), and any value type as F32.
[[nodiscard]] HostTensor converted(const HostTensor& tensor, DType dtype);

// Element `idx` of the first dimension, which is left out.
template <typename Pointer>
[[nodiscard]] BasicTensorView<Pointer> entry(BasicTensorView<Pointer> view, std::int64_t idx) {
  using Byte = std::conditional_t<std::is_same_v<Pointer, const void*>, const std::byte, std::byte>;
  BasicTensorView<Pointer> result = view;
  result.data = static_cast<Byte*>(view.data) + idx * view.strides[0] * size_bytes(view.dtype);
  result.rank = view.rank - 1;
  for (std::size_t i = 0; i + 1 < kMaxRank; ++i) {
    result.shape[i] = view.shape[i + 1];
    result.strides[i] = view.strides[i + 1];
  }
  return result;
}

// Every `step`-th index of one dimension, from 0.
template <typename Pointer>
[[nodiscard]] BasicTensorView<Pointer> every(BasicTensorView<Pointer> view, int dim,
                                             std::int64_t step) {
  const auto d = static_cast<std::size_t>(dim);
  view.shape[d] = (view.shape[d] + step - 1) / step;
  view.strides[d] *= step;
  return view;
}

}  // namespace octavo::cli
