// SPDX-License-Identifier: Apache-2.0
// The arguments of the teaching kernels: one block-scaled product of dense row-major E4M3 matrices.
// The real kernel's: kernels/contract/gemm_params.hpp.
#pragma once

#include "kernels/contract/gemm_params.hpp"

namespace octavo {

// D[m, n] = sum over k of (A[m, k] * a_scale[m, k/128]) * (B[n, k] * b_scale[n/128, k/128])
struct NaiveGemmParams {
  TensorMap a_map;         // of A and B, for the version with TMA: boxes of 64 and of 128 rows of
  TensorMap b_map;         // 128 bytes, 128-byte swizzle
  const unsigned char* a;  // [m, k]
  const unsigned char* b;  // [n, k]
  const float* a_scale;    // [m, ceil(k/128)]
  const float* b_scale;    // [ceil(n/128), ceil(k/128)]
  float* d;                // [m, n]
  int m;
  int n;
  int k;
};

}  // namespace octavo
