// SPDX-License-Identifier: Apache-2.0
// Every run-time argument of a GEMM kernel, once, for host and device.
#pragma once

#include "kernels/contract/rasterization.hpp"

namespace octavo {

// A CUtensorMap as the driver encodes it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// Scales of one operand, F32 or UE8M0, in any strides (in elements).
struct ScaleParams {
  const void* data;
  long long row_stride;    // from one row of the operand, or one block of 128 rows, to the next
  long long k_stride;      // from one K-block to the next
  unsigned char is_ue8m0;  // 1: a byte e means 2^(e - 127); 0: F32
};

// D[m, n] = epilogue(A[m, k] B[n, k]^T). Strides are in elements.
struct GemmParams {
  TensorMap a;  // [m, k], box tile_m / cluster_n rows of 128 bytes, 128-byte swizzle
  TensorMap b;  // [n, k], box tile_n / cluster_m rows
  TensorMap d;  // [m, n], box 64 rows of 128 bytes; unused if stores_directly or streamed
  ScaleParams a_scale;
  ScaleParams b_scale;
  void* output;
  long long output_stride;  // from one row to the next
  const void* bias;         // [n], of bias_dtype
  long long bias_stride;
  int m;
  int n;
  int k;
  Rasterization raster;
  unsigned char bias_dtype;       // a DType
  unsigned char stores_directly;  // 1: element by element, for outputs that TMA cannot write
};

}  // namespace octavo
