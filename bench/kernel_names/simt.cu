// SPDX-License-Identifier: Apache-2.0
// Kernels without tensor cores: an FP32 product and three that are bound by memory. They stand for
// the loops around a tensor-core kernel. One entry per PTX file: README.md, "One entry a file".
#include <cuda_fp8.h>

#include <cstdint>

[[maybe_unused]] constexpr int kWarpSize = 32;
[[maybe_unused]] constexpr unsigned kAllLanes = 0xFFFFFFFFU;

#if !defined(ONE_ENTRY) || defined(ENTRY_sgemm_128x128x16)
// C = A @ B, FP32: A [M, K], B [K, N] and C [M, N] row-major; M and N multiples of 128, K of 16.
// Launch: grid (N / 128, M / 128), 256 threads.
//
// A block computes a tile of 128 x 128, a thread 8 x 8 of it: rows 8 ty to 8 ty + 7, and columns
// 4 tx to 4 tx + 3 of each half of 64, so that neighbours read neighbouring 16 bytes.
extern "C" __global__ void __launch_bounds__(256)
    sgemm_128x128x16(const float* a, const float* b, float* c, int m, int n, int k) {
  constexpr int kTile = 128;
  constexpr int kTileK = 16;
  constexpr int kThreads = 256;
  constexpr int kSide = 8;  // of a thread's square
  constexpr int kVector = 4;
  constexpr int kThreadsAlongN = 16;
  constexpr int kPad = 4;  // keeps the transposed stores of A from meeting in one bank
  __shared__ __align__(16) float a_tile[kTileK][kTile + kPad];  // transposed: [k][row]
  __shared__ __align__(16) float b_tile[kTileK][kTile];

  const int thread = static_cast<int>(threadIdx.x);
  const int tx = thread % kThreadsAlongN;
  const int ty = thread / kThreadsAlongN;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_column = static_cast<int>(blockIdx.x) * kTile;
  if (first_row >= m) return;
  const float* a_rows = a + static_cast<size_t>(first_row) * k;
  const float* b_columns = b + first_column;

  float sum[kSide][kSide] = {};
  for (int k0 = 0; k0 < k; k0 += kTileK) {
    constexpr int kPasses = kTile * kTileK / kVector / kThreads;
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int vector = pass * kThreads + thread;
      constexpr int kVectorsPerRowOfA = kTileK / kVector;
      const int row = vector / kVectorsPerRowOfA;
      const int column = vector % kVectorsPerRowOfA * kVector;
      const float4 value =
          *reinterpret_cast<const float4*>(a_rows + static_cast<size_t>(row) * k + k0 + column);
      a_tile[column + 0][row] = value.x;
      a_tile[column + 1][row] = value.y;
      a_tile[column + 2][row] = value.z;
      a_tile[column + 3][row] = value.w;
    }
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int vector = pass * kThreads + thread;
      constexpr int kVectorsPerRowOfB = kTile / kVector;
      const int row = vector / kVectorsPerRowOfB;
      const int column = vector % kVectorsPerRowOfB * kVector;
      *reinterpret_cast<float4*>(&b_tile[row][column]) =
          *reinterpret_cast<const float4*>(b_columns + static_cast<size_t>(k0 + row) * n + column);
    }
    __syncthreads();
#pragma unroll
    for (int kk = 0; kk < kTileK; ++kk) {
      float left[kSide];
      float right[kSide];
#pragma unroll
      for (int half = 0; half < kSide / kVector; ++half) {
        const float4 x = *reinterpret_cast<const float4*>(&a_tile[kk][ty * kSide + half * kVector]);
        const float4 y =
            *reinterpret_cast<const float4*>(&b_tile[kk][half * (kTile / 2) + tx * kVector]);
        left[half * kVector + 0] = x.x;
        left[half * kVector + 1] = x.y;
        left[half * kVector + 2] = x.z;
        left[half * kVector + 3] = x.w;
        right[half * kVector + 0] = y.x;
        right[half * kVector + 1] = y.y;
        right[half * kVector + 2] = y.z;
        right[half * kVector + 3] = y.w;
      }
#pragma unroll
      for (int i = 0; i < kSide; ++i) {
#pragma unroll
        for (int j = 0; j < kSide; ++j) sum[i][j] = fmaf(left[i], right[j], sum[i][j]);
      }
    }
    __syncthreads();
  }

#pragma unroll
  for (int i = 0; i < kSide; ++i) {
    float* row = c + static_cast<size_t>(first_row + ty * kSide + i) * n + first_column;
#pragma unroll
    for (int half = 0; half < kSide / kVector; ++half) {
      const float* s = &sum[i][half * kVector];
      *reinterpret_cast<float4*>(row + half * (kTile / 2) + tx * kVector) =
          make_float4(s[0], s[1], s[2], s[3]);
    }
  }
}
#endif

#if !defined(ONE_ENTRY) || defined(ENTRY_quantize_1x128_e4m3)
// x [groups, 128] FP32 to E4M3 codes and one FP32 scale a group; a warp quantizes a group.
//   amax = abs(x).max(axis=1); scales = where(amax > 0, amax / 448, 1); codes = e4m3(x / scales)
// Launch: grid (groups / 8), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    quantize_1x128_e4m3(const float* x, uint8_t* codes, float* scales, int groups) {
  constexpr float kLargestE4m3 = 448.0F;
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int group = static_cast<int>((blockIdx.x * blockDim.x + threadIdx.x) / kWarpSize);
  if (group >= groups) return;
  const size_t vector = static_cast<size_t>(group) * kWarpSize + lane;
  const float4 value = reinterpret_cast<const float4*>(x)[vector];

  float amax = fmaxf(fmaxf(fabsf(value.x), fabsf(value.y)), fmaxf(fabsf(value.z), fabsf(value.w)));
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    amax = fmaxf(amax, __shfl_xor_sync(kAllLanes, amax, distance));
  }
  const float scale = amax > 0.0F ? amax / kLargestE4m3 : 1.0F;
  const float inverse = 1.0F / scale;
  if (lane == 0) scales[group] = scale;

  const float2 low = make_float2(value.x * inverse, value.y * inverse);
  const float2 high = make_float2(value.z * inverse, value.w * inverse);
  const uint32_t low_codes = __nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high_codes = __nv_cvt_float2_to_fp8x2(high, __NV_SATFINITE, __NV_E4M3);
  constexpr int kBitsOfTwoCodes = 16;
  reinterpret_cast<uint32_t*>(codes)[vector] = low_codes | high_codes << kBitsOfTwoCodes;
}
#endif

#if !defined(ONE_ENTRY) || defined(ENTRY_axpy)
// z = a * x + y. Launch: grid (ceil(count / 256)), 256 threads.
extern "C" __global__ void __launch_bounds__(256)
    axpy(const float* x, const float* y, float* z, float a, int count) {
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) z[i] = fmaf(a, x[i], y[i]);
}
#endif

#if !defined(ONE_ENTRY) || defined(ENTRY_softmax_rows)
// y = exp(x - x.max(axis=1)) / exp(x - x.max(axis=1)).sum(axis=1) of x [rows, columns], FP32.
// Launch: grid (rows), 256 threads. The maximum and the sum come from one pass: a thread whose
// maximum grows scales down what it has summed so far.
extern "C" __global__ void __launch_bounds__(256)
    softmax_rows(const float* x, float* y, int columns) {
  constexpr int kThreads = 256;
  constexpr int kWarps = kThreads / kWarpSize;
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLowest = -3.402823466e38F;
  __shared__ float warp_maximum[kWarps];
  __shared__ float warp_sum[kWarps];
  const int thread = static_cast<int>(threadIdx.x);
  const float* row = x + static_cast<size_t>(blockIdx.x) * columns;

  float maximum = kLowest;
  float sum = 0.0F;
  const auto merge = [&](float other_maximum, float other_sum) {
    const float larger = fmaxf(maximum, other_maximum);
    sum = sum * exp2f((maximum - larger) * kLog2E) +
          other_sum * exp2f((other_maximum - larger) * kLog2E);
    maximum = larger;
  };
  for (int column = thread; column < columns; column += kThreads) merge(row[column], 1.0F);
#pragma unroll
  for (int distance = kWarpSize / 2; distance > 0; distance /= 2) {
    // Both are read before either changes.
    const float other_maximum = __shfl_xor_sync(kAllLanes, maximum, distance);
    const float other_sum = __shfl_xor_sync(kAllLanes, sum, distance);
    merge(other_maximum, other_sum);
  }
  if (thread % kWarpSize == 0) {
    warp_maximum[thread / kWarpSize] = maximum;
    warp_sum[thread / kWarpSize] = sum;
  }
  __syncthreads();
  maximum = kLowest;
  sum = 0.0F;
#pragma unroll
  for (int warp = 0; warp < kWarps; ++warp) merge(warp_maximum[warp], warp_sum[warp]);

  const float inverse = 1.0F / sum;
  float* out = y + static_cast<size_t>(blockIdx.x) * columns;
  for (int column = thread; column < columns; column += kThreads) {
    out[column] = exp2f((row[column] - maximum) * kLog2E) * inverse;
  }
}
#endif
