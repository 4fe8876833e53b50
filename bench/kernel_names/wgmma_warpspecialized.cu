// SPDX-License-Identifier: Apache-2.0
// FP8 products by wgmma for sm_90a in the form of most libraries: persistent blocks, one warp-group
// that only loads, two that multiply, barriers between them and setmaxnreg. Operands are packed, so
// that a copy needs no tensor map. One entry per PTX file: README.md, "One entry a file".
#include <cstdint>

#include "swizzled_tile.cuh"
#include "wgmma.cuh"

// C [M, N] in BF16, summed as Accumulation (wgmma.cuh) says; M, N and K multiples of 128. A is
// packed, as weights can be ahead of time: tile (M / 128, K / 128) by tile, in the 16 KiB that it
// takes in shared memory. With A [M, K] in E4M3,
//   tile[mb, kb][r, c] = A[128 * mb + r, 128 * kb + 16 * c : ... + 16], c from 0 to 7,
//   packed[mb, kb][r, c ^ (r % 8)] = tile[mb, kb][r, c],
// and B [N, K] likewise.
// Launch: grid (multiprocessors), 384 threads, kSharedBytes of dynamic shared memory.
constexpr int kConsumers = 2;
constexpr int kThreads = (kConsumers + 1) * kGroupThreads;
constexpr int kStages = 4;
constexpr int kStageBytes = 2 * kTileBytes;  // A, then B
constexpr int kSharedBytes = kStages * kStageBytes + kTileAlignment;
static_assert(kSharedBytes == 132096);

__device__ __forceinline__ void set_up_barrier(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}
__device__ __forceinline__ void arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
__device__ __forceinline__ void arrive_and_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
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
// Bytes that lie together, by the copy engine; they count at the barrier as they arrive.
__device__ __forceinline__ void start_bulk_copy(uint32_t to_shared, const uint8_t* from_global,
                                                uint32_t bytes, uint32_t barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to_shared),
      "l"(from_global), "r"(bytes), "r"(barrier)
      : "memory");
}

// A ring of stages, walked through without end.
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == kStages) {
      stage = 0;
      parity ^= 1U;
    }
  }
};

template <Accumulation accumulation>
__device__ __forceinline__ void gemm(const uint8_t* a, const uint8_t* b, const float* a_scale,
                                     const float* b_scale, uint16_t* c, int m, int n, int k) {
  constexpr bool kPromoted = accumulation == Accumulation::kPromoted;
  __shared__ __align__(8) uint64_t full[kStages];   // a stage has arrived
  __shared__ __align__(8) uint64_t empty[kStages];  // both consumers are done with it
  const uint32_t ring = aligned_shared_memory();
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int steps = k / kTile;
  const int tiles_along_n = n / kTile;
  const int tiles = m / kTile * tiles_along_n;
  if (threadIdx.x == 0) {
    for (int stage = 0; stage < kStages; ++stage) {
      set_up_barrier(shared_address(&full[stage]), 1);
      set_up_barrier(shared_address(&empty[stage]), kConsumers);
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  publish_copies();  // nothing copied yet: the barriers become visible to the copy engine

  RingPosition at;
  if (group == kConsumers) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x % kGroupThreads != 0) return;
    for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += gridDim.x) {
      const uint8_t* a_tiles = a + static_cast<size_t>(tile / tiles_along_n) * steps * kTileBytes;
      const uint8_t* b_tiles = b + static_cast<size_t>(tile % tiles_along_n) * steps * kTileBytes;
      for (int step = 0; step < steps; ++step) {
        const uint32_t stage = ring + at.stage * kStageBytes;
        const uint32_t arrived = shared_address(&full[at.stage]);
        // All stages are empty at first: the phase before the first one counts as ended.
        wait_for_phase(shared_address(&empty[at.stage]), at.parity ^ 1U);
        arrive_and_expect(arrived, kStageBytes);
        const size_t from = static_cast<size_t>(step) * kTileBytes;
        start_bulk_copy(stage, a_tiles + from, kTileBytes, arrived);
        start_bulk_copy(stage + kTileBytes, b_tiles + from, kTileBytes, arrived);
        at.advance();
      }
    }
    return;
  }

  asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
  for (int tile = static_cast<int>(blockIdx.x); tile < tiles; tile += gridDim.x) {
    const int tile_n = tile % tiles_along_n;
    const int first_row = tile / tiles_along_n * kTile;
    float sum[kSums];
    float total[kSums] = {};  // gone where it is not used
    for (int step = 0; step < steps; ++step) {
      float low_row_scale = 0.0F;
      float high_row_scale = 0.0F;
      if constexpr (kPromoted) {
        const float column_scale = __ldg(b_scale + static_cast<size_t>(tile_n) * steps + step);
        const float* row_scales =
            a_scale + static_cast<size_t>(step) * m + first_row + row_of_thread();
        low_row_scale = __ldg(row_scales) * column_scale;
        high_row_scale = __ldg(row_scales + kSwizzleRows) * column_scale;
      }
      const uint32_t stage = ring + at.stage * kStageBytes;
      wait_for_phase(shared_address(&full[at.stage]), at.parity);
      multiply_tile(sum, stage + group * kGroupRows * kTile, stage + kTileBytes,
                    !kPromoted && step > 0);
      if (threadIdx.x % kGroupThreads == 0) arrive(shared_address(&empty[at.stage]));
      if constexpr (kPromoted) promote(total, sum, low_row_scale, high_row_scale);
      at.advance();
    }
    uint16_t* out = c + static_cast<size_t>(first_row) * n + tile_n * kTile;
    if constexpr (kPromoted) {
      store(out, n, total, 1.0F, 1.0F);
    } else {
      store(out, n, sum, __ldg(a_scale), __ldg(a_scale));
    }
  }
}

#if !defined(ONE_ENTRY) || defined(ENTRY_wgmma_fp8_warpspecialized_plain)
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    wgmma_fp8_warpspecialized_plain(const uint8_t* a, const uint8_t* b, const float* scale,
                                    uint16_t* c, int m, int n, int k) {
  gemm<Accumulation::kPlain>(a, b, scale, nullptr, c, m, n, k);
}
#endif

#if !defined(ONE_ENTRY) || defined(ENTRY_wgmma_fp8_warpspecialized_promoted)
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    wgmma_fp8_warpspecialized_promoted(const uint8_t* a, const uint8_t* b, const float* a_scale,
                                       const float* b_scale, uint16_t* c, int m, int n, int k) {
  gemm<Accumulation::kPromoted>(a, b, a_scale, b_scale, c, m, n, k);
}
#endif
