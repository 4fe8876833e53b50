// SPDX-License-Identifier: Apache-2.0
// An FP8 product by tcgen05.mma for sm_100a: one thread multiplies tiles in shared memory into
// tensor memory. It has been compiled and never run. PTX ISA, "tcgen05", has all bit layouts.
#include <cstdint>

#include "swizzled_tile.cuh"

// C [M, N] = A @ B.T in FP32, A [M, K] and B [N, K] row-major E4M3; M, N and K multiples of 128.
// Launch: grid (N / 128, M / 128), 128 threads, kSharedBytes of dynamic shared memory.
constexpr int kThreads = 128;
constexpr int kWarpSize = 32;
constexpr int kInstructionK = 32;
constexpr int kStages = 4;
constexpr int kStageBytes = 2 * kTileBytes;  // A, then B
constexpr int kSharedBytes = kStages * kStageBytes + kTileAlignment;
static_assert(kSharedBytes == 132096);

// Shared-memory descriptor: address / 16, stride between atoms of 8 rows / 16, version 1, 128-byte
// swizzle.
__device__ __forceinline__ uint64_t descriptor(uint32_t address) {
  constexpr uint64_t kUnit = 16;
  constexpr uint64_t kLeadingOffset = 1ULL << 16;  // not read with this swizzle
  constexpr uint64_t kStrideOffset = (kSwizzleRows * kTile / kUnit) << 32;
  constexpr uint64_t kVersion = 1ULL << 46;
  constexpr uint64_t kSwizzle128 = 2ULL << 61;
  return (address & 0x3FFFFU) / kUnit | kLeadingOffset | kStrideOffset | kVersion | kSwizzle128;
}

// Instruction descriptor: sums in FP32, both operands E4M3 (0) and K-major (0), N / 8 and M / 16.
constexpr uint32_t kInstruction = 1U << 4 | (kTile / 8U) << 17 | (kTile / 16U) << 24;

// d [128, 128] in tensor memory (+)= a [128, 32] b [128, 32]^T.
__device__ __forceinline__ void multiply(uint32_t d, uint64_t a, uint64_t b, bool adds) {
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.b32 p, %4, 0;\n"
      "tcgen05.mma.cta_group::1.kind::f8f6f4 [%0], %1, %2, %3, p;\n}" ::"r"(d),
      "l"(a), "l"(b), "r"(kInstruction), "r"(static_cast<int>(adds))
      : "memory");
}

// The barrier's phase ends when all products issued so far are done.
__device__ __forceinline__ void announce_products(uint32_t barrier) {
  asm volatile(
      "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%0];" ::"r"(barrier)
      : "memory");
}

__device__ __forceinline__ void wait_for_phase(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "wait_%=:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra wait_%=;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

// Sixteen columns of this thread's row.
constexpr int kColumnsPerLoad = 16;
__device__ __forceinline__ void load_sums(uint32_t (&row)[kColumnsPerLoad], uint32_t address) {
  asm volatile(
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, "
      "%12, %13, %14, %15}, [%16];\n"
      "tcgen05.wait::ld.sync.aligned;"
      : "=r"(row[0]), "=r"(row[1]), "=r"(row[2]), "=r"(row[3]), "=r"(row[4]), "=r"(row[5]),
        "=r"(row[6]), "=r"(row[7]), "=r"(row[8]), "=r"(row[9]), "=r"(row[10]), "=r"(row[11]),
        "=r"(row[12]), "=r"(row[13]), "=r"(row[14]), "=r"(row[15])
      : "r"(address)
      : "memory");
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    tcgen05_fp8_gemm(const uint8_t* a, const uint8_t* b, float* c, int m, int n, int k) {
  __shared__ uint32_t sums_address;
  __shared__ __align__(8) uint64_t done[kStages];
  const int thread = static_cast<int>(threadIdx.x);
  const int warp = thread / kWarpSize;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_column = static_cast<int>(blockIdx.x) * kTile;
  if (first_row >= m) return;

  if (warp == 0) {
    asm volatile("tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [%0], %1;" ::"r"(
                     shared_address(&sums_address)),
                 "n"(kTile)
                 : "memory");
    asm volatile("tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned;");
  }
  if (thread == 0) {
#pragma unroll
    for (int stage = 0; stage < kStages; ++stage) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&done[stage]))
                   : "memory");
    }
  }
  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  publish_copies();  // nothing copied yet: the barriers become visible to the tensor core
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
  const uint32_t sums = sums_address;

  const uint32_t ring = aligned_shared_memory();
  const uint8_t* a_rows = a + static_cast<size_t>(first_row) * k;
  const uint8_t* b_rows = b + static_cast<size_t>(first_column) * k;
  const int steps = k / kTile;
  const auto start_stage = [&](int step) {
    if (step < steps) {
      const uint32_t stage = ring + step % kStages * kStageBytes;
      const size_t k_byte = static_cast<size_t>(step) * kTile;
      start_tile<kThreads>(stage, a_rows + k_byte, k);
      start_tile<kThreads>(stage + kTileBytes, b_rows + k_byte, k);
    }
    close_copy_group();
  };
  const auto wait_for_products = [&](int step) {
    wait_for_phase(shared_address(&done[step % kStages]), step / kStages % 2);
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) start_stage(step);

  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    publish_copies();
    if (thread == 0) {
      asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");
      const uint32_t a_tile = ring + step % kStages * kStageBytes;
      const uint32_t b_tile = a_tile + kTileBytes;
#pragma unroll
      for (int kk = 0; kk < kTile; kk += kInstructionK) {
        multiply(sums, descriptor(a_tile + kk), descriptor(b_tile + kk), step + kk > 0);
      }
      announce_products(shared_address(&done[step % kStages]));
    }
    // The stage to fill is the one before this; its products run while this one's are issued.
    if (step > 0) wait_for_products(step - 1);
    start_stage(step + kStages - 1);
  }
  if (steps > 0) wait_for_products(steps - 1);
  asm volatile("tcgen05.fence::after_thread_sync;" ::: "memory");

  // Warp w may read lanes 32 w to 32 w + 31 of tensor memory; a lane is a row.
  constexpr int kLaneShift = 16;
  const uint32_t my_lanes = sums + (static_cast<uint32_t>(warp * kWarpSize) << kLaneShift);
  float* out = c + static_cast<size_t>(first_row + thread) * n + first_column;
#pragma unroll
  for (int column = 0; column < kTile; column += kColumnsPerLoad) {
    uint32_t row[kColumnsPerLoad];
    load_sums(row, my_lanes + column);
#pragma unroll
    for (int i = 0; i < kColumnsPerLoad; i += 4) {
      *reinterpret_cast<uint4*>(out + column + i) =
          make_uint4(row[i], row[i + 1], row[i + 2], row[i + 3]);
    }
  }

  asm volatile("tcgen05.fence::before_thread_sync;" ::: "memory");
  __syncthreads();
  if (warp == 0) {
    asm volatile("tcgen05.dealloc.cta_group::1.sync.aligned.b32 %0, %1;" ::"r"(sums), "n"(kTile));
  }
}
