// SPDX-License-Identifier: Apache-2.0
// FP8 wgmma of 64 x 128 x 32 on swizzled tiles (PTX ISA, "wgmma"), what may follow 128 of K, and
// the way of the sums to memory; the library's own are in kernels/ptx.
#pragma once

#include <cstdint>

#include "swizzled_tile.cuh"

// Two warp-groups, the block's first 256 threads, share a tile of 128 x 128, 64 rows each.
constexpr int kGroupThreads = 128;
constexpr int kGroupRows = 64;
constexpr int kWarpSize = 32;
constexpr int kWarpRows = 16;
constexpr int kInstructionK = 32;
constexpr int kSums = kGroupRows * kTile / kGroupThreads;  // a thread's share: 64 registers

// Matrix descriptor (PTX ISA, "wgmma"): address / 16, stride between atoms of 8 rows / 16, swizzle
// mode 1. Within an atom the next 32 of K are 32 bytes on.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  constexpr uint64_t kUnit = 16;
  constexpr uint64_t kLeadingOffset = 1ULL << 16;  // not read with this swizzle
  constexpr uint64_t kStrideOffset = (kSwizzleRows * kTile / kUnit) << 32;
  constexpr uint64_t kSwizzle128 = 1ULL << 62;
  return (address & 0x3FFFFU) / kUnit | kLeadingOffset | kStrideOffset | kSwizzle128;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}
__device__ __forceinline__ void wgmma_finish() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
}

#define SUMS_4(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define SUMS_16(d, i) SUMS_4(d, i), SUMS_4(d, i + 4), SUMS_4(d, i + 8), SUMS_4(d, i + 12)
#define SUMS_64(d) SUMS_16(d, 0), SUMS_16(d, 16), SUMS_16(d, 32), SUMS_16(d, 48)
#define OPERANDS_0_TO_63                                              \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, "     \
  "%14, %15, %16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, " \
  "%27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, %38, %39, " \
  "%40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, " \
  "%53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63}"

// d [64, 128] (+)= a [64, 32] b [128, 32]^T; with `adds` false what d held is ignored. Thread t of
// the warp-group holds in d[4 i + 2 r + c] row 16 (t / 32) + t % 32 / 4 + 8 r and column
// 8 i + 2 (t % 4) + c.
__device__ __forceinline__ void wgmma(float (&d)[kSums], uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " OPERANDS_0_TO_63
      ", %64, %65, p, 1, 1;\n}"
      : SUMS_64(d)
      : "l"(a), "l"(b), "r"(static_cast<int>(adds)));
}

// The same with a in registers: bytes 4 (t % 4) to 4 (t % 4) + 3 of row 16 (t / 32) + t % 32 / 4 in
// a0 and of the row 8 below in a1, and 16 bytes on in a2 and a3.
__device__ __forceinline__ void wgmma(float (&d)[kSums], const uint32_t* a, uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k32.f32.e4m3.e4m3 " OPERANDS_0_TO_63
               ", {%64, %65, %66, %67}, %68, 1, 1, 1;"
               : SUMS_64(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

// How 128 of K after 128 of K are summed.
// kPlain: the tensor core's accumulator runs over all of K, C = scale[0] * (A @ B.T).
// kPromoted: after each 128 of K it is scaled and added to FP32 sums, with a_scale [K / 128, M] and
// b_scale [N / 128, K / 128]
//   C = sum over kb of a_scale[kb, :, None] * b_scale[n / 128, kb] * (A[:, kb] @ B[:, kb].T).
enum class Accumulation { kPlain, kPromoted };

// The first of this thread's two rows within the tile; the other is 8 below.
__device__ __forceinline__ int row_of_thread() {
  const int thread = static_cast<int>(threadIdx.x);
  return thread / kWarpSize * kWarpRows + thread % kWarpSize / 4;
}

// This thread's sums of four wgmma: 64 rows from address a on with 128 rows from b on, 128 of K.
__device__ __forceinline__ void multiply_tile(float (&sum)[kSums], uint32_t a, uint32_t b,
                                              bool adds) {
  wgmma_fence();
#pragma unroll
  for (int kk = 0; kk < kTile; kk += kInstructionK) {
    wgmma(sum, descriptor(a + kk), descriptor(b + kk), adds || kk > 0);
  }
  wgmma_finish();
}

__device__ __forceinline__ void promote(float (&total)[kSums], const float (&sum)[kSums],
                                        float low_row_scale, float high_row_scale) {
#pragma unroll
  for (int q = 0; q < kSums; ++q) {
    total[q] = fmaf(sum[q], q % 4 < 2 ? low_row_scale : high_row_scale, total[q]);
  }
}

__device__ __forceinline__ uint32_t two_bf16(float low, float high) {
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
}

// Stores this thread's sums, times the factor of their row, as BF16. `out` is the tile's first row.
__device__ __forceinline__ void store(uint16_t* out, size_t row_elements, const float (&sum)[kSums],
                                      float low_row_factor, float high_row_factor) {
  uint16_t* low = out + row_of_thread() * row_elements + threadIdx.x % 4 * 2;
  uint16_t* high = low + kSwizzleRows * row_elements;
#pragma unroll
  for (int q = 0; q < kSums; q += 4) {
    *reinterpret_cast<uint32_t*>(low + q * 2) =
        two_bf16(sum[q] * low_row_factor, sum[q + 1] * low_row_factor);
    *reinterpret_cast<uint32_t*>(high + q * 2) =
        two_bf16(sum[q + 2] * high_row_factor, sum[q + 3] * high_row_factor);
  }
}
