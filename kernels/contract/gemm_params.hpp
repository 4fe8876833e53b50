// SPDX-License-Identifier: Apache-2.0
// Every run-time argument of a GEMM kernel, once, for host and device.
#pragma once

namespace octavo {

// A CUtensorMap as the driver encodes it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// D[m, n] = epilogue(A[m, k] B[n, k]^T). Strides are in elements.
struct GemmParams {
  TensorMap a;  // [m, k], box tile_m / cluster_n rows of 128 bytes, 128-byte swizzle
  TensorMap b;  // [n, k], box tile_n / cluster_m rows
  TensorMap d;  // [m, n], box 64 rows of 128 bytes; unused if stores_directly
  // Block recipes: A's scales are [ceil(k/128), m] with a row stride that is a multiple of 4,
  // 16-byte aligned. B's are [ceil(n/128), ceil(k/128)] (128x128), aligned alike, or laid out as
  // A's (1x128). Row recipe: [m] and [n] with any stride. Tensor recipe: [1] each, stride 0.
  const float* a_scale;
  const float* b_scale;
  long long a_scale_stride;
  long long b_scale_stride;
  void* output;
  long long output_stride;  // from one row to the next
  const void* bias;         // [n], of bias_dtype
  long long bias_stride;
  int m;
  int n;
  int k;
  unsigned char bias_dtype;       // a DType
  unsigned char stores_directly;  // 1: element by element, for outputs that TMA cannot write
};

}  // namespace octavo
