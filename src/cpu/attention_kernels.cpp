// SPDX-License-Identifier: Apache-2.0
// Contracts: attention_kernels.hpp. Compiled once per instruction set.
#include "cpu/attention_kernels.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/attention_kernels.cpp"
#include <hwy/foreach_target.h>
// Highway's own header must come after foreach_target.h.
#include <hwy/highway.h>

#include "numerics/codec_lanes-inl.hpp"

// NOTE: -O2 alone leaves short loops over arrays of vectors rolled, and the arrays in memory.
#if defined(__clang__)
#define OCTAVO_UNROLL _Pragma("clang loop unroll(full)")
#else
#define OCTAVO_UNROLL _Pragma("GCC unroll 8")
#endif

HWY_BEFORE_NAMESPACE();
namespace octavo::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using octavo::HWY_NAMESPACE::Bf16Array;
using octavo::HWY_NAMESPACE::E4M3Array;
using octavo::HWY_NAMESPACE::E5M2Array;
using octavo::HWY_NAMESPACE::F16Array;
using octavo::HWY_NAMESPACE::F32Array;
using octavo::HWY_NAMESPACE::FloatTag;
using octavo::HWY_NAMESPACE::FloatVec;

constexpr std::size_t kMaxLanes = hn::MaxLanes(FloatTag());
constexpr std::size_t kPair = 2 * kMaxLanes;  // elements that one load of a pair of vectors reads
static_assert(kPair <= static_cast<std::size_t>(kRowPadding));

// ---- Decoding ----------------------------------------------------------------------------------

struct VectorPair {
  FloatVec first;
  FloatVec second;
};

// Loads kPair elements as FP32 values divided by kUnit, a power of two.
template <typename Array>
struct PairOfLoads {
  using Code = typename Array::Code;
  static constexpr float kUnit = 1;
  static HWY_INLINE VectorPair load(const Code* codes) {
    return {Array::load(codes), Array::load(codes + kMaxLanes)};
  }
};

#if HWY_TARGET <= HWY_AVX2
using HalfFloatTag = hn::Rebind<hwy::float16_t, FloatTag>;
using WordTag = hn::Repartition<std::uint16_t, FloatTag>;
using HalfWordTag = hn::Half<WordTag>;
using ByteTag = hn::Rebind<std::uint8_t, WordTag>;

// PERF: an FP8 code moved to the top of an FP16 word is its value (E5M2) or its value / 2^8 (E4M3,
// subnormals included), so that the processor's FP16 conversion decodes it: 4.5 instructions a
// vector instead of 12.
template <bool kIsE4M3>
struct Fp8Pair {
  using Code = std::uint8_t;
  static constexpr float kUnit = kIsE4M3 ? 256 : 1;
  static HWY_INLINE VectorPair load(const Code* codes) {
    const WordTag dw;
    const auto words = hn::PromoteTo(dw, hn::LoadU(ByteTag(), codes));
    auto bits = hn::ShiftLeft<8>(words);
    if constexpr (kIsE4M3) {
      const hn::RebindToSigned<WordTag> ds;
      const auto magnitude_mask = hn::Set(dw, std::uint16_t{0x7F});
      const auto is_nan = hn::Eq(hn::And(words, magnitude_mask), magnitude_mask);
      const auto shifted = hn::BitCast(dw, hn::ShiftRight<1>(hn::BitCast(ds, bits)));
      bits = hn::And(shifted, hn::Set(dw, std::uint16_t{0xBF80}));
      bits = hn::Or(bits, hn::IfThenElseZero(is_nan, hn::Set(dw, std::uint16_t{0x7C00})));
    }
    const HalfFloatTag dh;
    const HalfWordTag dhw;
    return {hn::PromoteTo(FloatTag(), hn::BitCast(dh, hn::LowerHalf(dhw, bits))),
            hn::PromoteTo(FloatTag(), hn::BitCast(dh, hn::UpperHalf(dhw, bits)))};
  }
};

struct F16Pair {
  using Code = std::uint16_t;
  static constexpr float kUnit = 1;
  static HWY_INLINE VectorPair load(const Code* codes) {
    const HalfFloatTag dh;
    const HalfWordTag dhw;
    return {hn::PromoteTo(FloatTag(), hn::BitCast(dh, hn::LoadU(dhw, codes))),
            hn::PromoteTo(FloatTag(), hn::BitCast(dh, hn::LoadU(dhw, codes + kMaxLanes)))};
  }
};

using E4M3Pair = Fp8Pair<true>;
using E5M2Pair = Fp8Pair<false>;
#else
using E4M3Pair = PairOfLoads<E4M3Array>;
using E5M2Pair = PairOfLoads<E5M2Array>;
using F16Pair = PairOfLoads<F16Array>;
#endif
using Bf16Pair = PairOfLoads<Bf16Array>;
using F32Pair = PairOfLoads<F32Array>;

// Calls f with the loader of a value type.
template <typename F>
HWY_INLINE void with_loader(DType dtype, const F& f) {
  switch (dtype) {
    case DType::kE4M3: f(E4M3Pair()); break;
    case DType::kE5M2: f(E5M2Pair()); break;
    case DType::kBF16: f(Bf16Pair()); break;
    case DType::kF16: f(F16Pair()); break;
    default: f(F32Pair()); break;
  }
}

// The elements of one row, a pair of vectors at a time. The last, partial pair is copied first:
// nothing past the row is read.
template <typename Loader>
HWY_INLINE VectorPair load_pair(const void* row, std::size_t first_elem, std::size_t dim) {
  using Code = typename Loader::Code;
  const auto* codes = static_cast<const Code*>(row) + first_elem;
  if (HWY_LIKELY(first_elem + kPair <= dim)) return Loader::load(codes);
  HWY_ALIGN Code rest[kPair] = {};
  std::memcpy(rest, codes, (dim - first_elem) * sizeof(Code));
  return Loader::load(rest);
}

// ---- Scores, keys decoded in registers ----

// out[i] = the sum of all lanes of v_i, times unit.
#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void store_sums(FloatVec v0, FloatVec v1, FloatVec v2, FloatVec v3, float unit,
                           float* out) {
  out[0] = hn::GetLane(v0) * unit;
  out[1] = hn::GetLane(v1) * unit;
  out[2] = hn::GetLane(v2) * unit;
  out[3] = hn::GetLane(v3) * unit;
}
#else
using QuadTag = hn::CappedTag<float, 4>;
using QuadVec = hn::Vec<QuadTag>;

// Adds the 128-bit blocks of a vector.
template <typename D>
HWY_INLINE QuadVec sum_of_blocks(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) <= 4) {
    return v;
  } else {
    const hn::Half<D> dh;
    return sum_of_blocks(dh, hn::Add(hn::LowerHalf(dh, v), hn::UpperHalf(dh, v)));
  }
}

HWY_INLINE void store_sums(FloatVec v0, FloatVec v1, FloatVec v2, FloatVec v3, float unit,
                           float* out) {
  const FloatTag d;
  const QuadTag dq;
  const hn::Repartition<double, FloatTag> dd;
  const FloatVec s01 = hn::Add(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const FloatVec s23 = hn::Add(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const auto p01 = hn::BitCast(dd, s01);
  const auto p23 = hn::BitCast(dd, s23);
  const QuadVec sums = sum_of_blocks(d, hn::Add(hn::BitCast(d, hn::InterleaveLower(dd, p01, p23)),
                                                hn::BitCast(d, hn::InterleaveUpper(dd, p01, p23))));
  hn::StoreU(hn::Mul(sums, hn::Set(dq, unit)), dq, out);
}
#endif

constexpr std::int64_t kKeysAtOnce = 4;

template <typename Loader, int kRows>
HWY_INLINE void score_keys_of(const FloatRows& q, const KeyRows& keys, const FloatRows& scores) {
  const FloatTag d;
  const auto dim = static_cast<std::size_t>(keys.dim);
  for (std::int64_t j = 0; j < keys.num_rows; j += kKeysAtOnce) {
    const void* rows[kKeysAtOnce];
    OCTAVO_UNROLL
    for (std::int64_t i = 0; i < kKeysAtOnce; ++i) {
      rows[i] = keys.rows[std::min(j + i, keys.num_rows - 1)];
    }
    FloatVec sums[kRows][kKeysAtOnce];
    OCTAVO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      OCTAVO_UNROLL
      for (int i = 0; i < kKeysAtOnce; ++i) sums[r][i] = hn::Zero(d);
    }
    for (std::size_t elem = 0; elem < dim; elem += kPair) {
      OCTAVO_UNROLL
      for (int i = 0; i < kKeysAtOnce; ++i) {
        const VectorPair key = load_pair<Loader>(rows[i], elem, dim);
        OCTAVO_UNROLL
        for (int r = 0; r < kRows; ++r) {
          const float* q_row = q.values + r * q.stride + elem;
          sums[r][i] = hn::MulAdd(hn::LoadU(d, q_row), key.first, sums[r][i]);
          sums[r][i] = hn::MulAdd(hn::LoadU(d, q_row + kMaxLanes), key.second, sums[r][i]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      store_sums(sums[r][0], sums[r][1], sums[r][2], sums[r][3], Loader::kUnit,
                 scores.values + r * scores.stride + j);
    }
  }
}

void score_keys(const FloatRows& q, const KeyRows& keys, const FloatRows& scores) {
  with_loader(keys.dtype, [&](auto loader) {
    using Loader = decltype(loader);
    switch (q.num_rows) {
      case 1: score_keys_of<Loader, 1>(q, keys, scores); break;
      case 2: score_keys_of<Loader, 2>(q, keys, scores); break;
      case 3: score_keys_of<Loader, 3>(q, keys, scores); break;
      default: score_keys_of<Loader, kMaxSharedRows>(q, keys, scores); break;
    }
  });
}

// ---- Values, decoded in registers ----

// kPairs pairs of columns from first_elem on, through all rows.
template <typename Loader, int kRows, int kPairs>
HWY_INLINE void accumulate_columns(const FloatRows& p, const KeyRows& values,
                                   std::size_t first_elem, const FloatRows& o) {
  const FloatTag d;
  const auto dim = static_cast<std::size_t>(values.dim);
  FloatVec sums[kRows][2 * kPairs];
  OCTAVO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    OCTAVO_UNROLL
    for (int i = 0; i < 2 * kPairs; ++i) sums[r][i] = hn::Zero(d);
  }
  for (std::int64_t j = 0; j < values.num_rows; ++j) {
    FloatVec row[2 * kPairs];
    OCTAVO_UNROLL
    for (int i = 0; i < kPairs; ++i) {
      const VectorPair pair =
          load_pair<Loader>(values.rows[j], first_elem + static_cast<std::size_t>(i) * kPair, dim);
      row[2 * i] = pair.first;
      row[2 * i + 1] = pair.second;
    }
    OCTAVO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(d, p.values[r * p.stride + j]);
      OCTAVO_UNROLL
      for (int i = 0; i < 2 * kPairs; ++i) sums[r][i] = hn::MulAdd(weight, row[i], sums[r][i]);
    }
  }
  const FloatVec unit = hn::Set(d, Loader::kUnit);
  OCTAVO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    float* o_row = o.values + r * o.stride + first_elem;
    OCTAVO_UNROLL
    for (int i = 0; i < 2 * kPairs; ++i) {
      float* out = o_row + static_cast<std::size_t>(i) * kMaxLanes;
      hn::StoreU(hn::MulAdd(sums[r][i], unit, hn::LoadU(d, out)), d, out);
    }
  }
}

template <typename Loader, int kRows>
HWY_INLINE void accumulate_values_of(const FloatRows& p, const KeyRows& values,
                                     const FloatRows& o) {
  const auto dim = static_cast<std::size_t>(values.dim);
  std::size_t elem = 0;
  for (; elem + kPair < dim; elem += 2 * kPair) {
    accumulate_columns<Loader, kRows, 2>(p, values, elem, o);
  }
  if (elem < dim) accumulate_columns<Loader, kRows, 1>(p, values, elem, o);
}

void accumulate_values(const FloatRows& p, const KeyRows& values, const FloatRows& o) {
  with_loader(values.dtype, [&](auto loader) {
    using Loader = decltype(loader);
    switch (p.num_rows) {
      case 1: accumulate_values_of<Loader, 1>(p, values, o); break;
      case 2: accumulate_values_of<Loader, 2>(p, values, o); break;
      case 3: accumulate_values_of<Loader, 3>(p, values, o); break;
      default: accumulate_values_of<Loader, kMaxSharedRows>(p, values, o); break;
    }
  });
}

// ---- Tiles ----

void decode_rows(const KeyRows& rows, const FloatRows& out) {
  with_loader(rows.dtype, [&](auto loader) {
    using Loader = decltype(loader);
    const FloatTag d;
    const FloatVec unit = hn::Set(d, Loader::kUnit);
    const auto dim = static_cast<std::size_t>(rows.dim);
    for (std::int64_t j = 0; j < rows.num_rows; ++j) {
      float* out_row = out.values + j * out.stride;
      for (std::size_t elem = 0; elem < dim; elem += kPair) {
        const VectorPair pair = load_pair<Loader>(rows.rows[j], elem, dim);
        hn::StoreU(hn::Mul(pair.first, unit), d, out_row + elem);
        hn::StoreU(hn::Mul(pair.second, unit), d, out_row + elem + kMaxLanes);
      }
    }
  });
}

#if HWY_TARGET == HWY_SCALAR
HWY_INLINE void transpose_block(const float* in, std::int64_t in_stride, float* out,
                                std::int64_t out_stride) {
  for (std::int64_t i = 0; i < kKeysAtOnce; ++i) {
    for (std::int64_t j = 0; j < kKeysAtOnce; ++j) out[i * out_stride + j] = in[j * in_stride + i];
  }
}
#else
// A 4 x 4 block.
HWY_INLINE void transpose_block(const float* in, std::int64_t in_stride, float* out,
                                std::int64_t out_stride) {
  const QuadTag dq;
  const hn::Repartition<double, QuadTag> dd;
  const QuadVec r0 = hn::LoadU(dq, in);
  const QuadVec r1 = hn::LoadU(dq, in + in_stride);
  const QuadVec r2 = hn::LoadU(dq, in + 2 * in_stride);
  const QuadVec r3 = hn::LoadU(dq, in + 3 * in_stride);
  const auto low01 = hn::BitCast(dd, hn::InterleaveLower(dq, r0, r1));
  const auto low23 = hn::BitCast(dd, hn::InterleaveLower(dq, r2, r3));
  const auto high01 = hn::BitCast(dd, hn::InterleaveUpper(dq, r0, r1));
  const auto high23 = hn::BitCast(dd, hn::InterleaveUpper(dq, r2, r3));
  hn::StoreU(hn::BitCast(dq, hn::InterleaveLower(dd, low01, low23)), dq, out);
  hn::StoreU(hn::BitCast(dq, hn::InterleaveUpper(dd, low01, low23)), dq, out + out_stride);
  hn::StoreU(hn::BitCast(dq, hn::InterleaveLower(dd, high01, high23)), dq, out + 2 * out_stride);
  hn::StoreU(hn::BitCast(dq, hn::InterleaveUpper(dd, high01, high23)), dq, out + 3 * out_stride);
}
#endif

void transpose_rows(const FloatRows& in, std::int64_t dim, const FloatRows& out) {
  for (std::int64_t j = 0; j < in.num_rows; j += kKeysAtOnce) {
    for (std::int64_t i = 0; i < dim; i += kKeysAtOnce) {
      transpose_block(in.values + j * in.stride + i, in.stride, out.values + i * out.stride + j,
                      out.stride);
    }
  }
}

// Rows and vectors of a product kept in registers: 6 x 4 of 32 registers, 6 x 2 of 16.
constexpr int kBlockRows = 6;
constexpr int kBlockVectors = HWY_TARGET <= HWY_AVX3 ? 4 : 2;

template <int kRows, int kVectors>
HWY_INLINE void product_block(const float* a, std::int64_t a_stride, const FloatRows& b,
                              std::int64_t first_col, ProductStart start, float* c,
                              std::int64_t c_stride) {
  const FloatTag d;
  FloatVec sums[kRows][kVectors];
  OCTAVO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    OCTAVO_UNROLL
    for (int i = 0; i < kVectors; ++i) sums[r][i] = hn::Zero(d);
  }
  for (std::int64_t k = 0; k < b.num_rows; ++k) {
    const float* b_row = b.values + k * b.stride + first_col;
    FloatVec row[kVectors];
    OCTAVO_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      row[i] = hn::LoadU(d, b_row + static_cast<std::size_t>(i) * kMaxLanes);
    }
    OCTAVO_UNROLL
    for (int r = 0; r < kRows; ++r) {
      const FloatVec weight = hn::Set(d, a[r * a_stride + k]);
      OCTAVO_UNROLL
      for (int i = 0; i < kVectors; ++i) sums[r][i] = hn::MulAdd(weight, row[i], sums[r][i]);
    }
  }
  OCTAVO_UNROLL
  for (int r = 0; r < kRows; ++r) {
    OCTAVO_UNROLL
    for (int i = 0; i < kVectors; ++i) {
      float* out = c + r * c_stride + first_col + static_cast<std::size_t>(i) * kMaxLanes;
      const FloatVec sum =
          start == ProductStart::kZero ? sums[r][i] : hn::Add(hn::LoadU(d, out), sums[r][i]);
      hn::StoreU(sum, d, out);
    }
  }
}

template <int kRows>
HWY_INLINE void product_of_rows(const float* a, std::int64_t a_stride, const FloatRows& b,
                                std::int64_t num_cols, ProductStart start, float* c,
                                std::int64_t c_stride) {
  constexpr auto kBlockCols = static_cast<std::int64_t>(kBlockVectors * kMaxLanes);
  std::int64_t col = 0;
  for (; col + kBlockCols <= num_cols; col += kBlockCols) {
    product_block<kRows, kBlockVectors>(a, a_stride, b, col, start, c, c_stride);
  }
  for (; col < num_cols; col += static_cast<std::int64_t>(kMaxLanes)) {
    product_block<kRows, 1>(a, a_stride, b, col, start, c, c_stride);
  }
}

void multiply_rows(const FloatRows& a, const FloatRows& b, std::int64_t num_cols,
                   ProductStart start, const FloatRows& c) {
  for (std::int64_t row = 0; row < a.num_rows; row += kBlockRows) {
    const float* a_row = a.values + row * a.stride;
    float* c_row = c.values + row * c.stride;
    const std::int64_t rows_left = a.num_rows - row;
    const auto product = [&](auto num_rows) {
      product_of_rows<decltype(num_rows)::value>(a_row, a.stride, b, num_cols, start, c_row,
                                                 c.stride);
    };
    switch (rows_left) {
      case 1: product(std::integral_constant<int, 1>()); break;
      case 2: product(std::integral_constant<int, 2>()); break;
      case 3: product(std::integral_constant<int, 3>()); break;
      case 4: product(std::integral_constant<int, 4>()); break;
      case 5: product(std::integral_constant<int, 5>()); break;
      default: product(std::integral_constant<int, kBlockRows>()); break;
    }
  }
}

// ---- Softmax ----

// 2^x within 2 ulp for x <= 127; 0 below 2^-126; NaN stays NaN. The polynomial interpolates 2^f at
// the Chebyshev nodes of [-1/2, 1/2], relative error 2.6e-9.
HWY_INLINE FloatVec exp2_lanes(FloatVec x) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const FloatVec lowest = hn::Set(d, -126.0F);
  const auto exponent = hn::NearestInt(hn::Min(hn::Set(d, 127.0F), hn::Max(lowest, x)));
  // NOTE: from x, not from the clamped value: instruction sets differ in whether a minimum keeps a
  // NaN. Out of range f is too large, and the result infinite above and set to 0 below.
  const FloatVec f = hn::Sub(x, hn::ConvertTo(d, exponent));
  FloatVec poly = hn::Set(d, 1.546144469646172e-4F);
  poly = hn::MulAdd(poly, f, hn::Set(d, 1.3400428177419153e-3F));
  poly = hn::MulAdd(poly, f, hn::Set(d, 9.61805667852609e-3F));
  poly = hn::MulAdd(poly, f, hn::Set(d, 5.550327226670944e-2F));
  poly = hn::MulAdd(poly, f, hn::Set(d, 0.24022650922288827F));
  poly = hn::MulAdd(poly, f, hn::Set(d, 0.6931472067028321F));
  poly = hn::MulAdd(poly, f, hn::Set(d, 1.0F));
  const auto scale = hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(di, 127)));
  return hn::IfThenZeroElse(hn::Lt(x, lowest), hn::Mul(poly, hn::BitCast(d, scale)));
}

HWY_INLINE FloatVec tanh_lanes(FloatVec x) {
  const FloatTag d;
  const FloatVec one = hn::Set(d, 1.0F);
  const FloatVec two = hn::Set(d, 2.0F);
  const FloatVec power = exp2_lanes(hn::Mul(x, hn::Set(d, 2.885390081777927F)));  // 2 log2(e)
  return hn::Sub(one, hn::Div(two, hn::Add(power, one)));
}

SoftmaxSums softmax_tile(const SoftmaxTile& tile) {
  const FloatTag d;
  const hn::RebindToSigned<FloatTag> di;
  const FloatVec minus_infinity = hn::Set(d, -std::numeric_limits<float>::infinity());
  const auto begin = hn::Set(di, static_cast<std::int32_t>(tile.begin));
  const auto last = hn::Set(di, static_cast<std::int32_t>(tile.end - 1));
  const FloatVec cap = hn::Set(d, tile.cap);
  const auto lanes = static_cast<std::int64_t>(kMaxLanes);

  FloatVec largest = hn::Set(d, tile.largest);
  for (std::int64_t j = 0; j < tile.end; j += lanes) {
    FloatVec x = hn::Mul(hn::LoadU(d, tile.scores + j), hn::LoadU(d, tile.factors + j));
    if (tile.cap != 0) x = hn::Mul(cap, tanh_lanes(x));
    const auto key_idx = hn::Iota(di, static_cast<std::int32_t>(j));
    const auto hidden = hn::Or(hn::Lt(key_idx, begin), hn::Gt(key_idx, last));
    x = hn::IfThenElse(hn::RebindMask(d, hidden), minus_infinity, x);
    largest = hn::Max(largest, x);
    hn::StoreU(x, d, tile.scores + j);
  }
  SoftmaxSums result;
  result.largest = hn::GetLane(hn::MaxOfLanes(d, largest));
  // Where all scores are -inf, -inf minus the largest would be NaN.
  const bool sees_none = result.largest == -std::numeric_limits<float>::infinity();
  const FloatVec offset = hn::Set(d, sees_none ? 0 : result.largest);
  FloatVec sum = hn::Zero(d);
  for (std::int64_t j = 0; j < tile.end; j += lanes) {
    FloatVec p = exp2_lanes(hn::Sub(hn::LoadU(d, tile.scores + j), offset));
    sum = hn::Add(sum, p);
    if (tile.value_scales != nullptr) {
      // A hidden key's scale may be anything, so its 0 is set again.
      p = hn::IfThenElse(hn::Eq(p, hn::Zero(d)), p,
                         hn::Mul(p, hn::LoadU(d, tile.value_scales + j)));
    }
    hn::StoreU(p, d, tile.scores + j);
  }
  result.sum = hn::GetLane(hn::SumOfLanes(d, sum));
  return result;
}

void scale_values(float* values, std::int64_t num_elems, float factor) {
  const FloatTag d;
  const FloatVec factors = hn::Set(d, factor);
  for (std::int64_t i = 0; i < num_elems; i += static_cast<std::int64_t>(kMaxLanes)) {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), factors), d, values + i);
  }
}

void add_scaled(const float* values, std::int64_t num_elems, float factor, float* into) {
  const FloatTag d;
  const FloatVec factors = hn::Set(d, factor);
  for (std::int64_t i = 0; i < num_elems; i += static_cast<std::int64_t>(kMaxLanes)) {
    hn::StoreU(hn::MulAdd(hn::LoadU(d, values + i), factors, hn::LoadU(d, into + i)), d, into + i);
  }
}

}  // namespace octavo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::cpu {

HWY_EXPORT(score_keys);
HWY_EXPORT(accumulate_values);
HWY_EXPORT(decode_rows);
HWY_EXPORT(transpose_rows);
HWY_EXPORT(multiply_rows);
HWY_EXPORT(softmax_tile);
HWY_EXPORT(scale_values);
HWY_EXPORT(add_scaled);

void score_keys(const FloatRows& q, const KeyRows& keys, const FloatRows& scores) {
  HWY_DYNAMIC_DISPATCH(score_keys)(q, keys, scores);
}

void accumulate_values(const FloatRows& p, const KeyRows& values, const FloatRows& o) {
  HWY_DYNAMIC_DISPATCH(accumulate_values)(p, values, o);
}

void decode_rows(const KeyRows& rows, const FloatRows& out) {
  HWY_DYNAMIC_DISPATCH(decode_rows)(rows, out);
}

void transpose_rows(const FloatRows& in, std::int64_t dim, const FloatRows& out) {
  HWY_DYNAMIC_DISPATCH(transpose_rows)(in, dim, out);
}

void multiply_rows(const FloatRows& a, const FloatRows& b, std::int64_t num_cols,
                   ProductStart start, const FloatRows& c) {
  HWY_DYNAMIC_DISPATCH(multiply_rows)(a, b, num_cols, start, c);
}

SoftmaxSums softmax_tile(const SoftmaxTile& tile) {
  return HWY_DYNAMIC_DISPATCH(softmax_tile)(tile);
}

void scale_values(float* values, std::int64_t num_elems, float factor) {
  HWY_DYNAMIC_DISPATCH(scale_values)(values, num_elems, factor);
}

void add_scaled(const float* values, std::int64_t num_elems, float factor, float* into) {
  HWY_DYNAMIC_DISPATCH(add_scaled)(values, num_elems, factor, into);
}

}  // namespace octavo::cpu
#endif  // HWY_ONCE
