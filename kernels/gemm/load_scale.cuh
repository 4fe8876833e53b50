// SPDX-License-Identifier: Apache-2.0
// Scales as people have them: F32 or UE8M0.
#pragma once

#include "kernels/contract/gemm_params.hpp"

namespace octavo {

// Element i of a scale tensor.
__device__ __forceinline__ float load_scale(const ScaleParams& scale, long long i) {
  if (scale.is_ue8m0 == 0) return __ldg(static_cast<const float*>(scale.data) + i);
  // 2^(code - 127); code 0 is 2^-127, a subnormal F32, and code 255 NaN.
  const unsigned code = __ldg(static_cast<const unsigned char*>(scale.data) + i);
  constexpr unsigned kSubnormal = 0x00400000U;
  constexpr unsigned kNan = 0x7FFFFFFFU;
  return __uint_as_float(code == 0 ? kSubnormal : code == 255 ? kNan : code << 23);
}

}  // namespace octavo
