// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch/tensor_map.hpp"

#include <array>

#include "kernels/contract/smem_bytes.hpp"

namespace octavo::cuda {
namespace {

// From cuda.h: CUtensorMapDataType and the like.
constexpr int kUint8 = 0;
constexpr int kFloat16 = 6;
constexpr int kFloat32 = 7;
constexpr int kBfloat16 = 9;
constexpr int kInterleaveNone = 0;
constexpr int kSwizzle128 = 3;
constexpr int kL2Promotion256 = 3;
constexpr int kFillZeros = 0;

int data_type(DType dtype) {
  switch (dtype) {
    case DType::kF16: return kFloat16;
    case DType::kBF16: return kBfloat16;
    case DType::kF32: return kFloat32;
    default: return kUint8;
  }
}

}  // namespace

bool tma_can_copy(const void* data, DType dtype, std::int64_t row_stride) {
  constexpr std::int64_t kAlignment = 16;
  constexpr std::int64_t kMaxStrideBytes = std::int64_t{1} << 40;
  const std::int64_t stride_bytes = row_stride * size_bytes(dtype);
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0 && row_stride > 0 &&
         stride_bytes % kAlignment == 0 && stride_bytes < kMaxStrideBytes;
}

Result<TensorMap> make_tensor_map(const Driver& api, const MatrixBoxes& matrix) {
  TensorMap map{};
  const auto element_bytes = static_cast<std::uint64_t>(size_bytes(matrix.dtype));
  const std::array<std::uint64_t, 2> extents{static_cast<std::uint64_t>(matrix.columns),
                                             static_cast<std::uint64_t>(matrix.rows)};
  const std::uint64_t stride = static_cast<std::uint64_t>(matrix.row_stride) * element_bytes;
  const std::array<std::uint32_t, 2> box{
      static_cast<std::uint32_t>(kSwizzleBytes / static_cast<int>(element_bytes)),
      static_cast<std::uint32_t>(matrix.box_rows)};
  const std::array<std::uint32_t, 2> element_strides{1, 1};
  const int code =
      api.TensorMapEncodeTiled(&map, data_type(matrix.dtype), 2, const_cast<void*>(matrix.data),
                               extents.data(), &stride, box.data(), element_strides.data(),
                               kInterleaveNone, kSwizzle128, kL2Promotion256, kFillZeros);
  if (Status s = api.check(code, "cuTensorMapEncodeTiled"); !s.ok()) return s.error();
  return map;
}

}  // namespace octavo::cuda
