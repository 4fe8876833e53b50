// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch/tensor_map.hpp"

#include <array>
#include <vector>

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

Result<TensorMap> encode(const Driver& api, const MatrixBoxes& matrix) {
  TensorMap map{};
  const auto element_bytes = static_cast<std::uint64_t>(size_bytes(matrix.dtype));
  const int rank = matrix.num_matrices > 0 ? 3 : 2;
  const std::array<std::uint64_t, 3> extents{static_cast<std::uint64_t>(matrix.columns),
                                             static_cast<std::uint64_t>(matrix.rows),
                                             static_cast<std::uint64_t>(matrix.num_matrices)};
  const std::array<std::uint64_t, 2> strides{
      static_cast<std::uint64_t>(matrix.row_stride) * element_bytes,
      static_cast<std::uint64_t>(matrix.matrix_stride) * element_bytes};
  const std::array<std::uint32_t, 3> box{
      static_cast<std::uint32_t>(kSwizzleBytes / static_cast<int>(element_bytes)),
      static_cast<std::uint32_t>(matrix.box_rows), 1};
  const std::array<std::uint32_t, 3> element_strides{1, 1, 1};
  const int code = api.TensorMapEncodeTiled(
      &map, data_type(matrix.dtype), static_cast<std::uint32_t>(rank),
      const_cast<void*>(matrix.data), extents.data(), strides.data(), box.data(),
      element_strides.data(), kInterleaveNone, kSwizzle128, kL2Promotion256, kFillZeros);
  if (Status s = api.check(code, "cuTensorMapEncodeTiled"); !s.ok()) return s.error();
  return map;
}

// Spreads addresses, which are multiples of 256 and more, over the low bits.
std::size_t place_of(const MatrixBoxes& matrix) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;  // 2^64 over the golden ratio
  constexpr unsigned kHighBits = 48;
  const std::uint64_t mixed = (reinterpret_cast<std::uintptr_t>(matrix.data) ^
                               static_cast<std::uint64_t>(matrix.rows) << 32U ^
                               static_cast<std::uint64_t>(matrix.columns)) *
                              kOdd;
  return mixed >> kHighBits;
}

}  // namespace

Result<TensorMap> make_tensor_map(const Driver& api, const MatrixBoxes& matrix) {
  // PERF: encoding takes 0.15 us, and a model multiplies by the same weights again and again. A
  // descriptor depends on nothing but these numbers.
  struct Remembered {
    MatrixBoxes matrix{};
    TensorMap map{};
  };
  constexpr std::size_t kRemembered = 512;  // a model of 60 layers has about as many weights
  thread_local std::vector<Remembered> remembered(kRemembered);
  Remembered& place = remembered[place_of(matrix) % kRemembered];
  if (place.matrix == matrix) return place.map;
  Result<TensorMap> map = encode(api, matrix);
  if (map.ok()) place = {matrix, map.value()};
  return map;
}

}  // namespace octavo::cuda
