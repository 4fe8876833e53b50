// SPDX-License-Identifier: Apache-2.0
// FP8 kernels by warp-group wgmma for sm_90a: two products, and attention as two products in a
// chain with an online softmax between them. Tiles come by cp.async, not by TMA, so that a launch
// needs nothing but pointers and numbers. One entry per PTX file: README.md, "One entry a file".
#include <cuda_fp8.h>

#include <cstdint>

#include "swizzled_tile.cuh"
#include "wgmma.cuh"

constexpr int kThreads = 2 * kGroupThreads;

// Products.
// C [M, N] in BF16, A [M, K] and B [N, K] row-major E4M3; M, N and K multiples of 128.
// How C is summed: Accumulation (wgmma.cuh).
// Launch: grid (N / 128, M / 128), 256 threads, kGemmSharedBytes of dynamic shared memory.
constexpr int kStages = 4;
constexpr int kStageBytes = 2 * kTileBytes;  // A, then B
constexpr int kGemmSharedBytes = kStages * kStageBytes + kTileAlignment;
static_assert(kGemmSharedBytes == 132096);

template <Accumulation accumulation>
__device__ __forceinline__ void gemm(const uint8_t* a, const uint8_t* b, const float* a_scale,
                                     const float* b_scale, uint16_t* c, int m, int n, int k) {
  constexpr bool kPromoted = accumulation == Accumulation::kPromoted;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_column = static_cast<int>(blockIdx.x) * kTile;
  if (first_row >= m) return;
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
    close_copy_group();  // empty past the end, so that the count of pending groups stays right
  };
#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) start_stage(step);

  float sum[kSums];
  float total[kSums] = {};  // gone where it is not used
  for (int step = 0; step < steps; ++step) {
    float low_row_scale = 0.0F;
    float high_row_scale = 0.0F;
    if constexpr (kPromoted) {
      const float column_scale = __ldg(b_scale + static_cast<size_t>(blockIdx.x) * steps + step);
      const float* row_scales =
          a_scale + static_cast<size_t>(step) * m + first_row + row_of_thread();
      low_row_scale = __ldg(row_scales) * column_scale;
      high_row_scale = __ldg(row_scales + kSwizzleRows) * column_scale;
    }
    wait_for_copies<kStages - 2>();
    publish_copies();
    // Both warp-groups are done with the stage before this one, which is the one to fill.
    start_stage(step + kStages - 1);

    const uint32_t b_tile = ring + step % kStages * kStageBytes + kTileBytes;
    const uint32_t a_tile = b_tile - kTileBytes + group * kGroupRows * kTile;
    multiply_tile(sum, a_tile, b_tile, !kPromoted && step > 0);
    if constexpr (kPromoted) promote(total, sum, low_row_scale, high_row_scale);
  }

  uint16_t* out = c + static_cast<size_t>(first_row) * n + first_column;
  if constexpr (kPromoted) {
    store(out, n, total, 1.0F, 1.0F);
  } else {
    store(out, n, sum, __ldg(a_scale), __ldg(a_scale));
  }
}

#if !defined(ONE_ENTRY) || defined(ENTRY_wgmma_fp8_gemm_plain)
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    wgmma_fp8_gemm_plain(const uint8_t* a, const uint8_t* b, const float* scale, uint16_t* c, int m,
                         int n, int k) {
  gemm<Accumulation::kPlain>(a, b, scale, nullptr, c, m, n, k);
}
#endif

#if !defined(ONE_ENTRY) || defined(ENTRY_wgmma_fp8_gemm_promoted)
extern "C" __global__ void __launch_bounds__(kThreads, 1)
    wgmma_fp8_gemm_promoted(const uint8_t* a, const uint8_t* b, const float* a_scale,
                            const float* b_scale, uint16_t* c, int m, int n, int k) {
  gemm<Accumulation::kPromoted>(a, b, a_scale, b_scale, c, m, n, k);
}
#endif

// Attention.
#if !defined(ONE_ENTRY) || defined(ENTRY_wgmma_fp8_attention)
// For each head: O = softmax(scale * (Q @ K.T), axis=1) @ V, head dimension 128, no mask.
// q and k [heads, length, 128], v_transposed [heads, 128, length] in E4M3 (FP8 wgmma wants its
// second operand K-major, and the K of P @ V is the length), out [heads, length, 128] in BF16; the
// length is a multiple of 128. P = exp(scores - maximum so far) is rounded to E4M3.
// Launch: grid (length / 128, heads), 256 threads, kAttentionSharedBytes of dynamic shared memory.
constexpr int kPairs = 2;  // of a tile of K and one of V, in turns
constexpr int kAttentionSharedBytes = (1 + 2 * kPairs) * kTileBytes + kTileAlignment;
static_assert(kAttentionSharedBytes == 82944);

// The scores leave the first product two columns to a thread, the second wants P four to a thread.
// Instead of moving P between threads, the rows of K move: within 16, key 4 q + 2 h + c of thread
// q's four goes to row 8 h + 2 q + c, whose scores that thread gets.
struct RowOfKey {
  __device__ __forceinline__ int operator()(int key) const {
    const int q = key / 4 % 4;
    const int h = key / 2 % 2;
    const int c = key % 2;
    return key / 16 * 16 + 8 * h + 2 * q + c;
  }
};

__device__ __forceinline__ float over_four_lanes(float value, float (*join)(float, float)) {
  value = join(value, __shfl_xor_sync(0xFFFFFFFFU, value, 1));
  return join(value, __shfl_xor_sync(0xFFFFFFFFU, value, 2));
}
__device__ __forceinline__ float larger(float x, float y) { return fmaxf(x, y); }
__device__ __forceinline__ float sum_of(float x, float y) { return x + y; }

__device__ __forceinline__ uint32_t four_codes(float x0, float x1, float x2, float x3) {
  constexpr int kBitsOfTwoCodes = 16;
  const uint32_t low = __nv_cvt_float2_to_fp8x2(make_float2(x0, x1), __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2(make_float2(x2, x3), __NV_SATFINITE, __NV_E4M3);
  return low | high << kBitsOfTwoCodes;
}

extern "C" __global__ void __launch_bounds__(kThreads, 1)
    wgmma_fp8_attention(const uint8_t* q, const uint8_t* k, const uint8_t* v_transposed,
                        uint16_t* out, float scale, int length) {
  constexpr float kLog2E = 1.44269504F;
  constexpr float kLowest = -3.402823466e38F;
  const int group = static_cast<int>(threadIdx.x) / kGroupThreads;
  const size_t head = static_cast<size_t>(blockIdx.y) * length * kTile;
  const size_t first_query = static_cast<size_t>(blockIdx.x) * kTile;
  const uint32_t q_tile = aligned_shared_memory();
  const int steps = length / kTile;
  const auto start_pair = [&](int step) {
    if (step < steps) {
      const uint32_t pair = q_tile + kTileBytes + step % kPairs * 2 * kTileBytes;
      const size_t first_key = static_cast<size_t>(step) * kTile;
      start_tile<kThreads>(pair, k + head + first_key * kTile, kTile, RowOfKey());
      start_tile<kThreads>(pair + kTileBytes, v_transposed + head + first_key, length);
    }
    close_copy_group();
  };
  start_tile<kThreads>(q_tile, q + head + first_query * kTile, kTile);
  start_pair(0);
  start_pair(1);

  // Two rows to a thread: low is t % 32 / 4 of its warp's 16, high 8 below it.
  float output[kSums] = {};
  float low_maximum = kLowest;
  float high_maximum = kLowest;
  float low_sum = 0.0F;
  float high_sum = 0.0F;
  const float scale_log2 = scale * kLog2E;
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kPairs - 1>();
    publish_copies();
    const uint32_t k_tile = q_tile + kTileBytes + step % kPairs * 2 * kTileBytes;
    const uint32_t v_tile = k_tile + kTileBytes;

    float score[kSums];
    multiply_tile(score, q_tile + group * kGroupRows * kTile, k_tile, false);

    float low_next = low_maximum;
    float high_next = high_maximum;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      low_next = fmaxf(low_next, fmaxf(score[i], score[i + 1]));
      high_next = fmaxf(high_next, fmaxf(score[i + 2], score[i + 3]));
    }
    low_next = over_four_lanes(low_next, larger);
    high_next = over_four_lanes(high_next, larger);
    const float low_factor = exp2f((low_maximum - low_next) * scale_log2);
    const float high_factor = exp2f((high_maximum - high_next) * scale_log2);
    low_maximum = low_next;
    high_maximum = high_next;
    low_sum *= low_factor;
    high_sum *= high_factor;
#pragma unroll
    for (int i = 0; i < kSums; i += 4) {
      score[i] = exp2f(fmaf(score[i], scale_log2, -low_maximum * scale_log2));
      score[i + 1] = exp2f(fmaf(score[i + 1], scale_log2, -low_maximum * scale_log2));
      score[i + 2] = exp2f(fmaf(score[i + 2], scale_log2, -high_maximum * scale_log2));
      score[i + 3] = exp2f(fmaf(score[i + 3], scale_log2, -high_maximum * scale_log2));
      low_sum += score[i] + score[i + 1];
      high_sum += score[i + 2] + score[i + 3];
      output[i] *= low_factor;
      output[i + 1] *= low_factor;
      output[i + 2] *= high_factor;
      output[i + 3] *= high_factor;
    }

    // 16 columns of scores, eight registers, hold two of a fragment's four words.
    constexpr int kWordsOfP = kSums / 4;
    uint32_t p[kWordsOfP];
#pragma unroll
    for (int word = 0; word < kWordsOfP; word += 2) {
      const float* s = score + 4 * word;
      p[word] = four_codes(s[0], s[1], s[4], s[5]);
      p[word + 1] = four_codes(s[2], s[3], s[6], s[7]);
    }
    wgmma_fence();
#pragma unroll
    for (int kk = 0; kk < kTile; kk += kInstructionK) {
      wgmma(output, p + kk / kInstructionK * 4, descriptor(v_tile + kk));
    }
    wgmma_finish();
    __syncthreads();  // both warp-groups are done with this pair
    start_pair(step + kPairs);
  }

  const float low_inverse = 1.0F / over_four_lanes(low_sum, sum_of);
  const float high_inverse = 1.0F / over_four_lanes(high_sum, sum_of);
  store(out + head + first_query * kTile, kTile, output, low_inverse, high_inverse);
}
#endif
