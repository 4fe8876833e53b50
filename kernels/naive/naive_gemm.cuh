// SPDX-License-Identifier: Apache-2.0
// Chapter 1: a block-scaled FP8 product with one thread for each element of D. It is the formula,
// and nothing else; read it first. Next: tiled_gemm.cuh.
//
// Arithmetic: an E4M3 code has 4 significant bits, so a product of two is exact in FP32. Products
// are added in FP32, one after another, each sum rounded to 24 bits; every 128 of K the sum, times
// its two scales, is added to the total. The tensor core adds 32 products at once and keeps 14 bits
// of them (docs/numerics.md): this kernel is nearer to the exact sum, and is NOT equal to the
// tensor core's bits.
//
// Speed: every thread reads a whole row of A and of B from global memory: 2 m n k bytes for 2 m n k
// operations. The caches catch most of that, and still nearly all time goes into loads.
#pragma once

#include <octavo/scale.hpp>

#include "kernels/naive/naive_gemm_params.hpp"

namespace octavo {

// seeemmm, bias 7: 1.mmm * 2^(e - 7), or 0.mmm * 2^-6 where e is 0. All ones is NaN.
__device__ __forceinline__ float e4m3_value(unsigned char code) {
  constexpr int kNan = 0x7F;
  if ((code & kNan) == kNan) return __int_as_float(0x7FFFFFFF);
  const int exponent = (code >> 3) & 15;
  const int fraction = code & 7;
  // Eighths, so that the significand is a whole number.
  const float magnitude = exponent == 0
                              ? ldexpf(static_cast<float>(fraction), -6 - 3)
                              : ldexpf(static_cast<float>(8 + fraction), exponent - 7 - 3);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

// The launch: 16 x 16 threads a block, ceil(n/16) x ceil(m/16) blocks.
inline constexpr int kNaiveBlock = 16;

__device__ __forceinline__ void naive_gemm(const NaiveGemmParams& params) {
  const int row = static_cast<int>(blockIdx.y * blockDim.y + threadIdx.y);
  const int column = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row >= params.m || column >= params.n) return;
  const int num_k_blocks = (params.k + kScaleBlock - 1) / kScaleBlock;
  const unsigned char* a = params.a + static_cast<long long>(row) * params.k;
  const unsigned char* b = params.b + static_cast<long long>(column) * params.k;
  float total = 0;
  for (int block = 0; block < num_k_blocks; ++block) {
    float sum = 0;
    const int end = min(params.k, (block + 1) * kScaleBlock);
    for (int k = block * kScaleBlock; k < end; ++k) {
      sum = fmaf(e4m3_value(a[k]), e4m3_value(b[k]), sum);
    }
    // Promotion: the scales belong to these 128 of K alone, so they cannot wait until the end.
    const float a_scale = params.a_scale[static_cast<long long>(row) * num_k_blocks + block];
    const float b_scale = params.b_scale[column / kScaleBlock * num_k_blocks + block];
    total = fmaf(a_scale * b_scale, sum, total);
  }
  params.d[static_cast<long long>(row) * params.n + column] = total;
}

}  // namespace octavo
