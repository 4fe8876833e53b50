// SPDX-License-Identifier: Apache-2.0
// The blocked product of a single row of A (a decode step) with AVX-512 BF16: one row of B after
// another is read from memory in order, decoded in registers and multiplied along K. Bound by
// memory, where the kernels for many rows are bound by decoding.
// NOTE: VDPBF16PS reads a BF16 subnormal as 0: operands below 2^-126 count as 0. No FP8 value is
// that small.
#include "cpu/blocked_kernels.hpp"

#if defined(__x86_64__)

#include <algorithm>

#include "cpu/blocked_pack_x86.hpp"
#include "octavo/scale.hpp"

namespace octavo::cpu {
namespace {

using x86::Bf16Pair;
using x86::kBf16PerVector;

constexpr std::int64_t kPairK = 2 * kBf16PerVector;
constexpr std::int64_t kChunkK = 2048;
constexpr std::int64_t kRowsAtATime = 64;
// PERF: how far ahead of its use B is fetched into the second-level cache. 298 MB of [3072, 576]
// weights on one core: 10.7 GB/s with 16 KiB, 8.5 GB/s into the first-level cache, 8.1 GB/s
// without, of 13.3 GB/s that only reading them gives (Xeon with AMX, 2026-11-29).
constexpr std::int64_t kPrefetchBytes = 16384;

// K positions [k, k + count) of a row in memory, count <= kPairK; zeros behind them.
class Fp8Row {
 public:
  OCTAVO_TARGET_AVX512_BF16 Fp8Row(const std::byte* row, const x86::Fp8ToBf16& decode)
      : row_(row), decode_(decode) {}

  OCTAVO_TARGET_AVX512_BF16 Bf16Pair load(std::int64_t k, std::int64_t count) const {
    _mm_prefetch(row_ + k + kPrefetchBytes, _MM_HINT_T1);
    if (count == kPairK) return decode_(_mm512_loadu_si512(row_ + k));
    const __mmask64 valid = (std::uint64_t{1} << count) - 1;
    return decode_(_mm512_maskz_loadu_epi8(valid, row_ + k));
  }

 private:
  const std::byte* row_;
  const x86::Fp8ToBf16& decode_;
};

class Bf16Row {
 public:
  explicit Bf16Row(const std::byte* row) : row_(row) {}

  OCTAVO_TARGET_AVX512_BF16 Bf16Pair load(std::int64_t k, std::int64_t count) const {
    const std::byte* at = row_ + 2 * k;
    _mm_prefetch(at + kPrefetchBytes, _MM_HINT_T1);
    _mm_prefetch(at + kPrefetchBytes + kPanelVectorBytes, _MM_HINT_T1);
    if (count == kPairK) {
      return {_mm512_loadu_si512(at), _mm512_loadu_si512(at + kPanelVectorBytes)};
    }
    const std::uint64_t valid = (std::uint64_t{1} << count) - 1;
    return {_mm512_maskz_loadu_epi16(static_cast<__mmask32>(valid), at),
            _mm512_maskz_loadu_epi16(static_cast<__mmask32>(valid >> kBf16PerVector),
                                     at + kPanelVectorBytes)};
  }

 private:
  const std::byte* row_;
};

// A row in a panel: whole vectors, zeros behind the end of K.
class PanelRow {
 public:
  explicit PanelRow(const std::byte* row) : row_(row) {}

  OCTAVO_TARGET_AVX512_BF16 Bf16Pair load(std::int64_t k, std::int64_t count) const {
    const std::byte* at = row_ + 2 * k;
    return {_mm512_load_si512(at), count > kBf16PerVector
                                       ? _mm512_load_si512(at + kPanelVectorBytes)
                                       : _mm512_setzero_si512()};
  }

 private:
  const std::byte* row_;
};

// Sums of A[k] * B[k] over [begin, end), lane by lane.
// PERF: four sums that do not wait for one another. VDPBF16PS takes 6 cycles from one to the next,
// so a single sum would take 12 cycles for 64 codes, more than decoding them does.
template <typename RowOfB>
OCTAVO_TARGET_AVX512_BF16 inline __m512 sum_of_products(const PanelRow& a, const RowOfB& b,
                                                        std::int64_t begin, std::int64_t end) {
  const auto add = [&](std::int64_t k, __m512& first, __m512& second) OCTAVO_TARGET_AVX512_BF16 {
    const std::int64_t count = std::min(kPairK, end - k);
    const Bf16Pair a_pair = a.load(k, count);
    const Bf16Pair b_pair = b.load(k, count);
    first = _mm512_dpbf16_ps(first, reinterpret_cast<__m512bh>(a_pair.first),
                             reinterpret_cast<__m512bh>(b_pair.first));
    second = _mm512_dpbf16_ps(second, reinterpret_cast<__m512bh>(a_pair.second),
                              reinterpret_cast<__m512bh>(b_pair.second));
  };
  __m512 sum0 = _mm512_setzero_ps();
  __m512 sum1 = _mm512_setzero_ps();
  __m512 sum2 = _mm512_setzero_ps();
  __m512 sum3 = _mm512_setzero_ps();
  std::int64_t k = begin;
  for (; k + kPairK < end; k += 2 * kPairK) {
    add(k, sum0, sum1);
    add(k + kPairK, sum2, sum3);
  }
  if (k < end) add(k, sum0, sum1);
  return _mm512_add_ps(_mm512_add_ps(sum0, sum1), _mm512_add_ps(sum2, sum3));
}

// What K [begin, end), at most a chunk, adds to element (row_a, row_b).
template <typename RowOfB>
OCTAVO_TARGET_AVX512_BF16 inline float chunk_sum(const ProductArgs& args, const PanelRow& a,
                                                 const RowOfB& b, std::int64_t begin,
                                                 std::int64_t end, std::int64_t row_a,
                                                 std::int64_t row_b) {
  if (args.a_scale == nullptr) return _mm512_reduce_add_ps(sum_of_products(a, b, begin, end));
  __m512 sum = _mm512_setzero_ps();
  for (std::int64_t k = begin; k < end; k += kScaleBlock) {
    const __m512 partial = sum_of_products(a, b, k, std::min<std::int64_t>(k + kScaleBlock, end));
    const std::int64_t block = k / kScaleBlock;
    const float scale = args.a_scale[block * args.a_scale_stride + row_a] *
                        args.b_scale[block * args.b_scale_stride + row_b];
    sum = _mm512_fmadd_ps(_mm512_set1_ps(scale), partial, sum);
  }
  return _mm512_reduce_add_ps(sum);
}

template <typename RowOfB>
OCTAVO_TARGET_AVX512_BF16 inline void multiply_rows(const ProductArgs& args, const std::byte* a,
                                                    const RowOfB& b, std::int64_t row_a,
                                                    std::int64_t row_b) {
  float& total = args.totals[row_a * args.totals_stride + row_b];
  for (std::int64_t k = 0; k < args.k; k += kChunkK) {
    total += chunk_sum(args, PanelRow(a), b, k, std::min(k + kChunkK, args.k), row_a, row_b);
  }
}

OCTAVO_TARGET_AVX512_BF16 void streamed_product(const PackArgs& b_rows, const ProductArgs& args) {
  const x86::Fp8ToBf16 decode = x86::decoder_of(b_rows.dtype);
  const std::byte* row = b_rows.rows;
  for (std::int64_t row_b = 0; row_b < b_rows.num_rows; ++row_b) {
    if (b_rows.dtype == DType::kBF16) {
      multiply_rows(args, args.a, Bf16Row(row), 0, row_b);
    } else {
      multiply_rows(args, args.a, Fp8Row(row, decode), 0, row_b);
    }
    row += b_rows.row_stride_bytes;
  }
}

OCTAVO_TARGET_AVX512_BF16 void product(const ProductArgs& args) {
  const std::int64_t row_bytes = (args.k + kBf16PerVector - 1) / kBf16PerVector * kPanelVectorBytes;
  for (std::int64_t row_a = 0; row_a < args.num_rows_a; ++row_a) {
    for (std::int64_t row_b = 0; row_b < args.num_rows_b; ++row_b) {
      multiply_rows(args, args.a + row_a * row_bytes, PanelRow(args.b + row_b * row_bytes), row_a,
                    row_b);
    }
  }
}

OCTAVO_TARGET_AVX512_BF16 void pack(const PackArgs& args) { x86::pack_rows(args); }

}  // namespace

const BlockedKernels* avx512_bf16_row_kernels() {
  static constexpr BlockedKernels kKernels{
      .instruction_set = "avx512_bf16_row",
      .bf16 = true,
      .single_row = true,
      .group_a = 1,
      .group_b = 1,
      .chunk_k = kChunkK,
      .rows_b_at_a_time = kRowsAtATime,
      .pack_a = pack,
      .pack_b = pack,
      .product = product,
      .streamed_product = streamed_product,
  };
  return avx512_bf16_kernels() != nullptr ? &kKernels : nullptr;
}

}  // namespace octavo::cpu

#else

namespace octavo::cpu {
const BlockedKernels* avx512_bf16_row_kernels() { return nullptr; }
}  // namespace octavo::cpu

#endif
