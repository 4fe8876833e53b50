// SPDX-License-Identifier: Apache-2.0
// Packs rows of E4M3, E5M2 or BF16 into panels of BF16 with AVX-512 VBMI. Included by the two files
// of x86 intrinsics only, which check the processor before they call it.
#pragma once

// NOTE: g++ 12 takes the undefined operands of its own AVX-512 intrinsics for a mistake of the
// caller (GCC bug 105593), for the rest of the file that includes this.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif

#include <immintrin.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/blocked_kernels.hpp"
#include "numerics/codec.hpp"

#define OCTAVO_TARGET_AVX512_BF16 \
  __attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16")))

namespace octavo::cpu::x86 {

// BF16 values in a panel vector.
inline constexpr std::int64_t kBf16PerVector = kPanelVectorBytes / 2;

// The two bytes of the BF16 value of each FP8 code without its sign.
struct Bf16Bytes {
  alignas(64) std::array<std::uint8_t, 128> low;
  alignas(64) std::array<std::uint8_t, 128> high;
};

template <typename Format>
inline constexpr Bf16Bytes kBf16Bytes = [] {
  Bf16Bytes bytes{};
  for (std::size_t code = 0; code < bytes.low.size(); ++code) {
    // Every finite FP8 value is a BF16 value, and its bits are the upper half of the FP32 ones. The
    // upper half of the canonical NaN is a NaN.
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(kFp8Values<Format>[code]) >> 16;
    bytes.low[code] = static_cast<std::uint8_t>(bits & 0xFFU);
    bytes.high[code] = static_cast<std::uint8_t>(bits >> 8);
  }
  return bytes;
}();

// A pair of panel vectors: K positions 0 to 31 and 32 to 63.
struct Bf16Pair {
  __m512i first;
  __m512i second;
};

class Fp8ToBf16 {
 public:
  OCTAVO_TARGET_AVX512_BF16 explicit Fp8ToBf16(const Bf16Bytes& bytes)
      : low0_(_mm512_load_si512(bytes.low.data())),
        low1_(_mm512_load_si512(bytes.low.data() + 64)),
        high0_(_mm512_load_si512(bytes.high.data())),
        high1_(_mm512_load_si512(bytes.high.data() + 64)),
        order_(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7)) {}

  // 64 codes. The 8-byte pieces are put in the order in which unpacking takes them apart again.
  OCTAVO_TARGET_AVX512_BF16 Bf16Pair operator()(__m512i codes) const {
    codes = _mm512_permutexvar_epi64(order_, codes);
    const __m512i low = _mm512_permutex2var_epi8(low0_, codes, low1_);
    const __m512i magnitude = _mm512_permutex2var_epi8(high0_, codes, high1_);
    // high = magnitude | (codes & 0x80)
    constexpr int kOrAnd = 0xF8;
    const __m512i high = _mm512_ternarylogic_epi32(
        magnitude, codes, _mm512_set1_epi8(static_cast<char>(0x80)), kOrAnd);
    return {_mm512_unpacklo_epi8(low, high), _mm512_unpackhi_epi8(low, high)};
  }

 private:
  __m512i low0_;
  __m512i low1_;
  __m512i high0_;
  __m512i high1_;
  __m512i order_;
};

OCTAVO_TARGET_AVX512_BF16 inline void pack_fp8_row(const std::byte* row, std::int64_t k,
                                                   const Fp8ToBf16& decode, const std::byte* next,
                                                   std::byte* out, std::int64_t step_bytes) {
  constexpr std::int64_t kCodesPerPair = 2 * kBf16PerVector;
  std::int64_t i = 0;
  for (; i + kCodesPerPair <= k; i += kCodesPerPair) {
    if (next != nullptr) _mm_prefetch(next + i, _MM_HINT_T0);
    const Bf16Pair pair = decode(_mm512_loadu_si512(row + i));
    _mm512_store_si512(out, pair.first);
    _mm512_store_si512(out + step_bytes, pair.second);
    out += 2 * step_bytes;
  }
  if (i == k) return;
  const __mmask64 rest = (std::uint64_t{1} << (k - i)) - 1;
  const Bf16Pair pair = decode(_mm512_maskz_loadu_epi8(rest, row + i));
  _mm512_store_si512(out, pair.first);
  if (k - i > kBf16PerVector) _mm512_store_si512(out + step_bytes, pair.second);
}

OCTAVO_TARGET_AVX512_BF16 inline void pack_bf16_row(const std::byte* row, std::int64_t k,
                                                    std::byte* out, std::int64_t step_bytes) {
  std::int64_t i = 0;
  for (; i + kBf16PerVector <= k; i += kBf16PerVector) {
    _mm512_store_si512(out, _mm512_loadu_si512(row + 2 * i));
    out += step_bytes;
  }
  if (i == k) return;
  const __mmask32 rest = (1U << (k - i)) - 1;
  _mm512_store_si512(out, _mm512_maskz_loadu_epi16(rest, row + 2 * i));
}

OCTAVO_TARGET_AVX512_BF16 inline Fp8ToBf16 decoder_of(DType dtype) {
  return Fp8ToBf16(dtype == DType::kE5M2 ? kBf16Bytes<E5M2> : kBf16Bytes<E4M3>);
}

OCTAVO_TARGET_AVX512_BF16 inline void pack_rows(const PackArgs& args) {
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  const std::int64_t step_bytes = args.group * kPanelVectorBytes;
  const std::int64_t num_panel_rows = (args.num_rows + args.group - 1) / args.group * args.group;
  const Fp8ToBf16 decode = decoder_of(args.dtype);
  for (std::int64_t row = 0; row < num_panel_rows; ++row) {
    const std::int64_t group_begin = row / args.group * args.group;
    std::byte* out = args.panel + (group_begin * num_steps + row - group_begin) * kPanelVectorBytes;
    if (row < args.num_rows) {
      const std::byte* in = args.rows + row * args.row_stride_bytes;
      const std::byte* next =
          args.prefetch_stride_bytes == 0 ? nullptr : in + args.prefetch_stride_bytes;
      if (args.dtype == DType::kBF16) {
        pack_bf16_row(in, args.k, out, step_bytes);
      } else {
        pack_fp8_row(in, args.k, decode, next, out, step_bytes);
      }
      continue;
    }
    for (std::int64_t step = 0; step < num_steps; ++step) {
      _mm512_store_si512(out + step * step_bytes, _mm512_setzero_si512());
    }
  }
}

}  // namespace octavo::cpu::x86
