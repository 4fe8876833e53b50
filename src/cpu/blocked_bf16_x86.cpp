// SPDX-License-Identifier: Apache-2.0
// BF16 kernels of the blocked product with AVX-512's dot product of pairs (VDPBF16PS), which
// Debian 12's Highway does not offer. The lanes of a vector run along K as in blocked_lanes.cpp.
// NOTE: the instruction reads a BF16 subnormal as 0: operands below 2^-126 count as 0. No FP8 value
// is that small.
#include "cpu/blocked_kernels.hpp"

#if defined(__x86_64__)

#include <algorithm>

#include "cpu/blocked_pack_x86.hpp"
#include "octavo/scale.hpp"

namespace octavo::cpu {
namespace {

using x86::kBf16PerVector;

// 24 sums, 4 vectors of A and one of B fit in 32 registers.
constexpr int kGroupA = 4;
constexpr int kGroupB = 6;
constexpr std::int64_t kStepsPerBlock = kScaleBlock / kBf16PerVector;
// PERF: 2048 of K keeps a group of B (6 x 4 KiB) in a first-level cache while A streams by.
constexpr std::int64_t kChunkK = 2048;

OCTAVO_TARGET_AVX512_BF16 void pack(const PackArgs& args) { x86::pack_rows(args); }

OCTAVO_TARGET_AVX512_BF16 inline __m512bh load(const std::byte* vector) {
  return reinterpret_cast<__m512bh>(_mm512_load_si512(vector));
}

template <int kRows>
OCTAVO_TARGET_AVX512_BF16 inline void multiply_steps(const std::byte* a, const std::byte* b,
                                                     std::int64_t group_a, std::int64_t num_steps,
                                                     __m512 (&sums)[kRows][kGroupB]) {
  for (std::int64_t step = 0; step < num_steps; ++step) {
    __m512bh a_values[kRows];
    OCTAVO_UNROLL
    for (int i = 0; i < kRows; ++i) a_values[i] = load(a + i * kPanelVectorBytes);
    OCTAVO_UNROLL
    for (int j = 0; j < kGroupB; ++j) {
      const __m512bh b_values = load(b + j * kPanelVectorBytes);
      OCTAVO_UNROLL
      for (int i = 0; i < kRows; ++i) {
        sums[i][j] = _mm512_dpbf16_ps(sums[i][j], a_values[i], b_values);
      }
    }
    a += group_a * kPanelVectorBytes;
    b += kGroupB * kPanelVectorBytes;
  }
}

template <int kRows>
OCTAVO_TARGET_AVX512_BF16 inline void clear(__m512 (&sums)[kRows][kGroupB]) {
  OCTAVO_UNROLL
  for (int i = 0; i < kRows; ++i) {
    OCTAVO_UNROLL
    for (int j = 0; j < kGroupB; ++j) sums[i][j] = _mm512_setzero_ps();
  }
}

// kRows rows of one group of A by one group of B.
template <int kRows>
OCTAVO_TARGET_AVX512_BF16 void multiply_groups(const ProductArgs& args, const std::byte* a,
                                               const std::byte* b, std::int64_t row_a,
                                               std::int64_t row_b) {
  const std::int64_t group_a = args.num_rows_a == 1 ? 1 : kGroupA;
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  __m512 sums[kRows][kGroupB];
  clear<kRows>(sums);
  if (args.a_scale == nullptr) {
    multiply_steps<kRows>(a, b, group_a, num_steps, sums);
  } else {
    for (std::int64_t step = 0; step < num_steps; step += kStepsPerBlock) {
      __m512 partial[kRows][kGroupB];
      clear<kRows>(partial);
      multiply_steps<kRows>(a + step * group_a * kPanelVectorBytes,
                            b + step * kGroupB * kPanelVectorBytes, group_a,
                            std::min(kStepsPerBlock, num_steps - step), partial);
      const std::int64_t block = step / kStepsPerBlock;
      const float* a_scale = args.a_scale + block * args.a_scale_stride + row_a;
      const float* b_scale = args.b_scale + block * args.b_scale_stride + row_b;
      OCTAVO_UNROLL
      for (int i = 0; i < kRows; ++i) {
        OCTAVO_UNROLL
        for (int j = 0; j < kGroupB; ++j) {
          sums[i][j] =
              _mm512_fmadd_ps(_mm512_set1_ps(a_scale[i] * b_scale[j]), partial[i][j], sums[i][j]);
        }
      }
    }
  }
  OCTAVO_UNROLL
  for (int i = 0; i < kRows; ++i) {
    float* totals = args.totals + (row_a + i) * args.totals_stride + row_b;
    OCTAVO_UNROLL
    for (int j = 0; j < kGroupB; ++j) totals[j] += _mm512_reduce_add_ps(sums[i][j]);
  }
}

OCTAVO_TARGET_AVX512_BF16 void product(const ProductArgs& args) {
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  const std::byte* b = args.b;
  for (std::int64_t row_b = 0; row_b < args.num_rows_b; row_b += kGroupB) {
    const std::byte* a = args.a;
    for (std::int64_t row_a = 0; row_a < args.num_rows_a; row_a += kGroupA) {
      switch (std::min<std::int64_t>(kGroupA, args.num_rows_a - row_a)) {
        case 1: multiply_groups<1>(args, a, b, row_a, row_b); break;
        case 2: multiply_groups<2>(args, a, b, row_a, row_b); break;
        case 3: multiply_groups<3>(args, a, b, row_a, row_b); break;
        default: multiply_groups<kGroupA>(args, a, b, row_a, row_b); break;
      }
      a += kGroupA * num_steps * kPanelVectorBytes;
    }
    b += kGroupB * num_steps * kPanelVectorBytes;
  }
}

}  // namespace

const BlockedKernels* avx512_bf16_kernels() {
  static constexpr BlockedKernels kKernels{
      .instruction_set = "avx512_bf16",
      .bf16 = true,
      .totals_transposed = false,
      .group_a = kGroupA,
      .group_b = kGroupB,
      .chunk_k = kChunkK,
      .rows_b_at_a_time = kGroupB,
      .pack_a = pack,
      .pack_b = pack,
      .product = product,
  };
  const bool available = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                         __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                         __builtin_cpu_supports("avx512vbmi") &&
                         __builtin_cpu_supports("avx512bf16");
  return available ? &kKernels : nullptr;
}

}  // namespace octavo::cpu

#else

namespace octavo::cpu {
const BlockedKernels* avx512_bf16_kernels() { return nullptr; }
}  // namespace octavo::cpu

#endif
