// SPDX-License-Identifier: Apache-2.0
// Elements of D, its old values and biases: F32 to and from the types in memory.
#pragma once

#include <octavo/dtype.hpp>

namespace octavo {

// Two F32 values as BF16 or F16, round to nearest even; `low` in the lower half.
template <DType type>
__device__ __forceinline__ unsigned pack_16bit(float low, float high) {
  static_assert(is_16bit(type));
  unsigned packed;
  if constexpr (type == DType::kBF16) {
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  } else {
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(packed) : "f"(high), "f"(low));
  }
  return packed;
}

__device__ __forceinline__ float from_16bit(unsigned short code, DType type) {
  float value;
  if (type == DType::kBF16) {
    value = __uint_as_float(static_cast<unsigned>(code) << 16);
  } else {
    asm("{\n.reg .b16 h;\nmov.b16 h, %1;\ncvt.f32.f16 %0, h;\n}" : "=f"(value) : "h"(code));
  }
  return value;
}

// Element i of an array of BF16, F16 or F32.
__device__ __forceinline__ float load_value(const void* values, long long i, DType type) {
  if (type == DType::kF32) return static_cast<const float*>(values)[i];
  return from_16bit(static_cast<const unsigned short*>(values)[i], type);
}

template <DType type>
__device__ __forceinline__ void store_value(void* values, long long i, float value) {
  if constexpr (type == DType::kF32) {
    static_cast<float*>(values)[i] = value;
  } else {
    static_cast<unsigned short*>(values)[i] =
        static_cast<unsigned short>(pack_16bit<type>(value, value) & 0xFFFFU);
  }
}

}  // namespace octavo
