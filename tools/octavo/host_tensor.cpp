// SPDX-License-Identifier: Apache-2.0
#include "host_tensor.hpp"

#include <cstring>
#include <utility>

#include "octavo/error.hpp"
#include "octavo/quantize.hpp"

namespace octavo::cli {
namespace {

constexpr std::byte kPoison{0xFF};

std::int64_t count(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  for (const std::int64_t extent : shape) elements *= extent;
  return elements;
}

}  // namespace

HostTensor::HostTensor(DType dtype, std::vector<std::int64_t> shape)
    : dtype_(dtype),
      shape_(std::move(shape)),
      bytes_(static_cast<std::size_t>(count(shape_) * size_bytes(dtype)), kPoison) {
  if (shape_.size() > static_cast<std::size_t>(kMaxRank)) {
    throw Error(ErrorCode::kInternal, "octavo: a tensor of more than 4 dimensions was made.");
  }
}

std::int64_t HostTensor::num_elements() const { return absent() ? 0 : count(shape_); }

MutableTensorView HostTensor::mutable_view() {
  MutableTensorView view;
  if (absent()) return view;
  view.data = bytes_.data();
  view.dtype = dtype_;
  view.rank = static_cast<int>(shape_.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape_.size(); i-- > 0;) {
    view.shape[i] = shape_[i];
    view.strides[i] = stride;
    stride *= shape_[i];
  }
  return view;
}

TensorView HostTensor::view() const { return const_cast<HostTensor*>(this)->mutable_view(); }

std::span<float> HostTensor::f32() {
  if (dtype_ != DType::kF32) throw Error(ErrorCode::kInternal, "octavo: a tensor is not F32.");
  return {reinterpret_cast<float*>(bytes_.data()), bytes_.size() / sizeof(float)};
}

std::span<const float> HostTensor::f32() const { return const_cast<HostTensor*>(this)->f32(); }

HostTensor converted(const HostTensor& tensor, DType dtype) {
  HostTensor result(dtype, tensor.shape());
  const auto num_elements = static_cast<std::size_t>(tensor.num_elements());
  const auto from_bytes = static_cast<std::size_t>(size_bytes(tensor.dtype()));
  const auto to_bytes = static_cast<std::size_t>(size_bytes(dtype));
  for (std::size_t i = 0; i < num_elements; ++i) {
    // Little-endian, so a code's bytes are the first of its 32-bit word.
    std::uint32_t code = 0;
    std::memcpy(&code, tensor.bytes().data() + i * from_bytes, from_bytes);
    code = encode(dtype, decode(tensor.dtype(), code));
    std::memcpy(result.mutable_bytes().data() + i * to_bytes, &code, to_bytes);
  }
  return result;
}

}  // namespace octavo::cli
