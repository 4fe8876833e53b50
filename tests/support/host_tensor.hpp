// SPDX-License-Identifier: Apache-2.0
// A dense tensor that owns its memory, and seeded random data for it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "numerics/codec.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo::test {

class HostTensor {
 public:
  HostTensor() = default;  // absent
  HostTensor(DType dtype, std::vector<std::int64_t> shape)
      : dtype_(dtype), shape_(std::move(shape)) {
    for (const std::int64_t extent : shape_) size_ *= extent;
    bytes_.resize(static_cast<std::size_t>(size_ * size_bytes(dtype)));
    present_ = true;
  }

  [[nodiscard]] MutableTensorView view() {
    MutableTensorView view;
    fill_in(view);
    if (present_) view.data = bytes_.data();
    return view;
  }
  [[nodiscard]] TensorView view() const {
    TensorView view;
    fill_in(view);
    if (present_) view.data = bytes_.data();
    return view;
  }

  [[nodiscard]] bool present() const { return present_; }
  [[nodiscard]] std::int64_t size() const { return present_ ? size_ : 0; }
  [[nodiscard]] float at(std::int64_t position) const {
    return load_element(bytes_.data(), dtype_, position);
  }
  void set(std::int64_t position, float value) {
    store_element(bytes_.data(), dtype_, position, value);
  }
  void fill(float value) {
    for (std::int64_t i = 0; i < size(); ++i) set(i, value);
  }
  void fill_bytes(std::uint8_t byte) { std::fill(bytes_.begin(), bytes_.end(), byte); }
  [[nodiscard]] std::vector<std::uint8_t>& bytes() { return bytes_; }
  [[nodiscard]] const std::vector<std::uint8_t>& bytes() const { return bytes_; }

 private:
  template <typename View>
  void fill_in(View& view) const {
    view.dtype = dtype_;
    view.rank = static_cast<int>(shape_.size());
    std::int64_t stride = 1;
    for (std::size_t d = shape_.size(); d-- > 0;) {
      view.shape[d] = shape_[d];
      view.strides[d] = stride;
      stride *= shape_[d];
    }
  }

  DType dtype_ = DType::kF32;
  std::vector<std::int64_t> shape_;
  std::int64_t size_ = 1;
  std::vector<std::uint8_t> bytes_;
  bool present_ = false;
};

enum class Data : unsigned char {
  kGaussian,  // N(0,1)
  kPositive,  // U(0,1): truncation and lost terms show as a bias
  kAnyBits,   // any bytes: NaN, Inf, subnormals, both zeros
};

[[nodiscard]] constexpr const char* to_string(Data data) {
  switch (data) {
    case Data::kGaussian: return "gaussian";
    case Data::kPositive: return "uniform";
    case Data::kAnyBits: return "any bits";
  }
  return "?";
}

inline void randomize(HostTensor& tensor, Data data, std::mt19937_64& random) {
  if (data == Data::kAnyBits) {
    for (std::uint8_t& byte : tensor.bytes()) byte = static_cast<std::uint8_t>(random());
    return;
  }
  std::normal_distribution<float> gaussian(0.0F, 1.0F);
  std::uniform_real_distribution<float> uniform(0.0F, 1.0F);
  for (std::int64_t i = 0; i < tensor.size(); ++i) {
    tensor.set(i, data == Data::kGaussian ? gaussian(random) : uniform(random));
  }
}

}  // namespace octavo::test
