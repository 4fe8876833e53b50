// SPDX-License-Identifier: Apache-2.0
// Tiles of tensor-core products, the same bits as tensor_core_dot() column by column.
//
// Per group of products and lane: the largest exponent ea + eb of the nonzero ones is an 8-bit
// maximum; then every product is an exact FP32 number, and times 2^(fraction_bits - largest),
// converted to an integer towards zero, it is the aligned and cut term. Sums of those, below 2^24,
// convert back exactly, and masking their FP32 fraction is the cut after normalisation. What this
// cannot carry (NaN, Inf, accumulators near the ends of FP32's range) is handed to
// tensor_core_dot().
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/tensor_core_products.cpp"
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"
// highway.h must come first.
#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

#include "numerics/codec.hpp"
#include "numerics/tensor_core.hpp"

#ifndef OCTAVO_NUMERICS_TENSOR_CORE_PRODUCTS_ONCE
#define OCTAVO_NUMERICS_TENSOR_CORE_PRODUCTS_ONCE
namespace octavo {
namespace tensor_core_tile {

inline constexpr int kCols = 64;    // one 512-bit vector of exponents
inline constexpr int kDepth = 128;  // products between two visits to the output
inline constexpr int kLineBytes = 64;

// The exponent of a zero; sums with it saturate below every other.
inline constexpr std::int8_t kZeroExponent = -128;

// FP32 exponent fields, between which products and accumulators stay exact here. Products of
// finite codes, and sums that begin with them, are far inside: 2^-41 .. 2^46.
inline constexpr int kF32Bias = 127;
inline constexpr int kF32FractionBits = 23;
inline constexpr int kMinField = 64;
inline constexpr int kMaxField = 226;

// Column c, product k of b is at k * kCols + c.
struct alignas(kLineBytes) Columns {
  float values[kDepth * kCols];
  std::int8_t exponents[kDepth * kCols];
  std::uint8_t codes[kDepth * kCols];
  bool special[kCols];  // holds NaN or Inf
};

struct alignas(kLineBytes) Row {
  float values[kDepth];
  std::int8_t exponents[kDepth];
  std::uint8_t codes[kDepth];
};

// The chunk [k_begin, k_begin + depth) of K and what it adds to a tile of at most kCols columns.
struct Chunk {
  const TensorCoreModel& model;
  CodeMatrix a;  // starting at the chunk
  CodeMatrix b;  // starting at the chunk and the tile's first column
  int num_cols;
  int depth;
};

inline bool is_special(std::uint8_t code, DType format) {
  const int magnitude = code & 0x7F;
  return format == DType::kE4M3 ? magnitude == 0x7F : magnitude >= 0x7C;
}

inline bool is_outside(float accumulator) {
  const std::uint32_t magnitude = std::bit_cast<std::uint32_t>(accumulator) & ~kF32SignBit;
  const auto field = static_cast<int>(magnitude >> kF32FractionBits);
  return magnitude != 0 && (field < kMinField || field > kMaxField);
}

}  // namespace tensor_core_tile
}  // namespace octavo
#endif

HWY_BEFORE_NAMESPACE();
namespace octavo {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using tensor_core_tile::Chunk;
using tensor_core_tile::Columns;
using tensor_core_tile::is_outside;
using tensor_core_tile::is_special;
using tensor_core_tile::kCols;
using tensor_core_tile::kF32Bias;
using tensor_core_tile::kF32FractionBits;
using tensor_core_tile::kLineBytes;
using tensor_core_tile::kMaxField;
using tensor_core_tile::kMinField;
using tensor_core_tile::kZeroExponent;
using tensor_core_tile::Row;

#if HWY_TARGET == HWY_SCALAR

void multiply_chunk(const Chunk& chunk, std::int64_t num_rows, bool chained, float* out,
                    std::int64_t out_stride) {
  for (std::int64_t row = 0; row < num_rows; ++row) {
    for (std::int64_t col = 0; col < chunk.num_cols; ++col) {
      float* value = out + row * out_stride + col;
      *value = tensor_core_dot(chunk.model, chunk.a, row, chunk.b, col, chunk.depth,
                               chained ? value : nullptr);
    }
  }
}

#else

// One vector of exponents covers as many columns as four vectors of values.
using D8 = hn::CappedTag<std::int8_t, kCols>;
using D32 = hn::Repartition<std::int32_t, D8>;
using DF = hn::Repartition<float, D8>;
using V32 = hn::Vec<D32>;
using VF = hn::Vec<DF>;

// Towards zero, for |value| < 2^31 only: hn::ConvertTo() spends instructions on the rest.
HWY_INLINE V32 truncate(VF value) {
#if HWY_TARGET == HWY_AVX3
  return V32{_mm512_cvttps_epi32(value.raw)};
#elif HWY_TARGET == HWY_AVX2
  return V32{_mm256_cvttps_epi32(value.raw)};
#else
  return hn::ConvertTo(D32(), value);
#endif
}

// FP8 codes as FP32 values and exponents; true if one of them is NaN or Inf (whose values here
// mean nothing). count is rounded up to whole vectors.
HWY_INLINE bool decode(const std::uint8_t* HWY_RESTRICT codes, DType format, int count,
                       float* HWY_RESTRICT values, std::int8_t* HWY_RESTRICT exponents) {
  const bool is_e4m3 = format == DType::kE4M3;
  const int fraction_bits = is_e4m3 ? 3 : 2;
  const int bias = is_e4m3 ? 7 : 15;
  const int least_special = is_e4m3 ? 0x7F : 0x7C;

  const D8 d8;
  const auto magnitude_mask = hn::Set(d8, 0x7F);
  const auto field_mask = hn::Set(d8, static_cast<std::int8_t>(0x7F >> fraction_bits));
  const auto before_special = hn::Set(d8, static_cast<std::int8_t>(least_special - 1));
  const auto one = hn::Set(d8, 1);
  auto any_special = hn::Zero(d8);
  for (int i = 0; i < count; i += static_cast<int>(hn::Lanes(d8))) {
    const auto code = hn::LoadU(d8, reinterpret_cast<const std::int8_t*>(codes) + i);
    const auto magnitude = hn::And(code, magnitude_mask);
    any_special = hn::Or(any_special, hn::VecFromMask(d8, hn::Gt(magnitude, before_special)));
    const auto shifted = hn::BitCast(
        d8, hn::ShiftRightSame(
                hn::BitCast(hn::RepartitionToWide<hn::RebindToUnsigned<D8> >(), magnitude),
                fraction_bits));
    const auto field = hn::Max(hn::And(shifted, field_mask), one);
    const auto exponent = hn::Sub(field, hn::Set(d8, static_cast<std::int8_t>(bias)));
    const auto is_zero = hn::Eq(magnitude, hn::Zero(d8));
    hn::StoreU(hn::IfThenElse(is_zero, hn::Set(d8, kZeroExponent), exponent), d8, exponents + i);
  }

  // The fields of a normal code are FP32's after a shift and a change of bias. A subnormal code
  // gets a hidden bit by the same steps with one exponent more, which is then subtracted: no FP32
  // subnormal appears, which a caller's flush-to-zero would lose.
  const DF df;
  const hn::Rebind<std::uint8_t, DF> d8_quarter;
  const hn::Rebind<std::uint32_t, DF> du32;
  const auto one_exponent = hn::Set(du32, 1U << kF32FractionBits);
  const auto min_normal_field =
      hn::Set(du32, static_cast<std::uint32_t>(kF32Bias + 1 - bias) << kF32FractionBits);
  const auto bias_change =
      hn::Set(du32, static_cast<std::uint32_t>(kF32Bias - bias) << kF32FractionBits);
  const auto sign_mask = hn::Set(du32, 0x80U);
  const auto code_mask = hn::Set(du32, 0x7FU);
  for (int i = 0; i < count; i += static_cast<int>(hn::Lanes(df))) {
    const auto code = hn::PromoteTo(du32, hn::LoadU(d8_quarter, codes + i));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, sign_mask));
    const auto normal = hn::Add(
        hn::ShiftLeftSame(hn::And(code, code_mask), kF32FractionBits - fraction_bits), bias_change);
    const auto subnormal =
        hn::Sub(hn::BitCast(df, hn::Add(normal, one_exponent)), hn::BitCast(df, min_normal_field));
    const auto is_subnormal = hn::RebindMask(
        df, hn::Lt(hn::BitCast(D32(), normal), hn::BitCast(D32(), min_normal_field)));
    const auto value = hn::IfThenElse(is_subnormal, subnormal, hn::BitCast(df, normal));
    hn::StoreU(hn::Or(value, hn::BitCast(df, sign)), df, values + i);
  }
  return !hn::AllTrue(d8, hn::Eq(any_special, hn::Zero(d8)));
}

// result[i] = row times column col + i, i < Lanes(D8), on top of c (null: no accumulator).
HWY_INLINE void multiply(const TensorCoreModel& model, const Row& a, const Columns& b, int depth,
                         int col, const float* HWY_RESTRICT c, float* HWY_RESTRICT result) {
  constexpr std::size_t kParts = 4;
  const D8 d8;
  const D32 d32;
  const DF df;
  const hn::Rebind<std::int8_t, DF> d8_quarter;
  const auto part_cols = static_cast<int>(hn::Lanes(df));
  const auto exponent_mask = hn::Set(d32, 0xFF << kF32FractionBits);
  const auto min_field = hn::Set(d32, kMinField << kF32FractionBits);
  const auto bias = hn::Set(d32, kF32Bias);
  const auto fraction_bits = hn::Set(d32, model.fraction_bits << kF32FractionBits);
  // field + this is the exponent field of 2^(fraction_bits - exponent), modulo 2^32.
  const auto scale_field = hn::Set(
      d32, static_cast<std::int32_t>(static_cast<std::uint32_t>(2 * kF32Bias + model.fraction_bits)
                                     << kF32FractionBits));
  const auto result_mask =
      hn::BitCast(df, hn::Set(d32, -(1 << (kF32FractionBits - model.result_fraction_bits))));

  VF carried0 = c != nullptr ? hn::Load(df, c) : hn::Zero(df);
  VF carried1 = c != nullptr ? hn::Load(df, c + part_cols) : hn::Zero(df);
  VF carried2 = c != nullptr ? hn::Load(df, c + 2 * part_cols) : hn::Zero(df);
  VF carried3 = c != nullptr ? hn::Load(df, c + 3 * part_cols) : hn::Zero(df);
  for (int begin = 0; begin < depth; begin += model.group) {
    const int end = HWY_MIN(begin + model.group, depth);
    auto largest = hn::Set(d8, kZeroExponent);
    for (int k = begin; k < end; ++k) {
      const auto exponents = hn::Load(d8, b.exponents + k * kCols + col);
      largest = hn::Max(largest, hn::SaturatedAdd(exponents, hn::Set(d8, a.exponents[k])));
    }
    alignas(kLineBytes) std::int8_t largest_by_col[kCols];
    hn::Store(largest, d8, largest_by_col);

    // With no nonzero term at all the field is kMinField and every term below is 0.
    const auto field_of = [&](std::size_t part, VF carried) HWY_ATTR {
      const auto exponent = hn::PromoteTo(
          d32, hn::LoadU(d8_quarter, largest_by_col + part * static_cast<std::size_t>(part_cols)));
      const auto products = hn::ShiftLeft<kF32FractionBits>(hn::Add(exponent, bias));
      const auto accumulator = hn::And(hn::BitCast(d32, carried), exponent_mask);
      return hn::Max(hn::Max(products, accumulator), min_field);
    };
    const V32 field0 = field_of(0, carried0);
    const V32 field1 = field_of(1, carried1);
    const V32 field2 = field_of(2, carried2);
    const V32 field3 = field_of(kParts - 1, carried3);
    const VF scale0 = hn::BitCast(df, hn::Sub(scale_field, field0));
    const VF scale1 = hn::BitCast(df, hn::Sub(scale_field, field1));
    const VF scale2 = hn::BitCast(df, hn::Sub(scale_field, field2));
    const VF scale3 = hn::BitCast(df, hn::Sub(scale_field, field3));
    V32 sum0 = truncate(hn::Mul(carried0, scale0));
    V32 sum1 = truncate(hn::Mul(carried1, scale1));
    V32 sum2 = truncate(hn::Mul(carried2, scale2));
    V32 sum3 = truncate(hn::Mul(carried3, scale3));
    for (int k = begin; k < end; ++k) {
      const VF x = hn::Set(df, a.values[k]);
      const float* HWY_RESTRICT y = b.values + k * kCols + col;
      const auto term = [&](int part, VF scale) HWY_ATTR {
        return truncate(hn::Mul(hn::Mul(x, hn::Load(df, y + part * part_cols)), scale));
      };
      sum0 = hn::Add(sum0, term(0, scale0));
      sum1 = hn::Add(sum1, term(1, scale1));
      sum2 = hn::Add(sum2, term(2, scale2));
      sum3 = hn::Add(sum3, term(3, scale3));
    }
    const auto rounded = [&](V32 sum, V32 field) HWY_ATTR {
      const VF unit = hn::BitCast(df, hn::Sub(field, fraction_bits));
      return hn::Mul(hn::And(hn::ConvertTo(df, sum), result_mask), unit);
    };
    carried0 = rounded(sum0, field0);
    carried1 = rounded(sum1, field1);
    carried2 = rounded(sum2, field2);
    carried3 = rounded(sum3, field3);
  }
  hn::Store(carried0, df, result);
  hn::Store(carried1, df, result + part_cols);
  hn::Store(carried2, df, result + 2 * part_cols);
  hn::Store(carried3, df, result + 3 * part_cols);
}

void multiply_row(const TensorCoreModel& model, const Row& a, const Columns& b, int depth,
                  int num_cols, const float* c, float* result) {
  const auto step = static_cast<int>(hn::Lanes(D8()));
  for (int col = 0; col < num_cols; col += step) {
    multiply(model, a, b, depth, col, c != nullptr ? c + col : nullptr, result + col);
  }
}

// True if some accumulator is NaN, Inf or so large or small that only the scalar form is exact.
bool any_outside(const float* accumulators, int num_cols) {
  const DF df;
  const D32 d32;
  const auto exponent_mask = hn::Set(d32, 0xFF << kF32FractionBits);
  const auto magnitude_mask = hn::Set(d32, 0x7FFFFFFF);
  const auto min_field = hn::Set(d32, kMinField << kF32FractionBits);
  const auto max_field = hn::Set(d32, kMaxField << kF32FractionBits);
  auto outside = hn::Zero(d32);
  for (int col = 0; col < num_cols; col += static_cast<int>(hn::Lanes(df))) {
    const auto bits = hn::BitCast(d32, hn::Load(df, accumulators + col));
    const auto field = hn::And(bits, exponent_mask);
    const auto nonzero = hn::Gt(hn::And(bits, magnitude_mask), hn::Zero(d32));
    const auto tiny = hn::And(hn::Lt(field, min_field), nonzero);
    const auto huge = hn::Gt(field, max_field);
    outside = hn::Or(outside, hn::VecFromMask(d32, hn::Or(tiny, huge)));
  }
  return !hn::AllTrue(d32, hn::Eq(outside, hn::Zero(d32)));
}

// Byte j of word i goes to byte i of word j.
HWY_INLINE void transpose_bytes(std::uint64_t (&words)[8]) {
  const auto swap_blocks = [&](int distance, std::uint64_t mask) {
    for (int i = 0; i < 8; ++i) {
      if ((i & distance) != 0) continue;
      const std::uint64_t difference = ((words[i] >> (8 * distance)) ^ words[i + distance]) & mask;
      words[i + distance] ^= difference;
      words[i] ^= difference << (8 * distance);
    }
  };
  swap_blocks(4, 0x00000000FFFFFFFFU);
  swap_blocks(2, 0x0000FFFF0000FFFFU);
  swap_blocks(1, 0x00FF00FF00FF00FFU);
}

// Copies codes to [k][column] order, zero behind the last column.
// PERF: for one row of A this is most of the work; by words it is twice as quick as by bytes
// (N=512, K=1024, 1.9 instead of 0.95 GMAC/s, AVX-512, 2026-11-29).
void gather_codes(const Chunk& chunk, std::uint8_t* codes) {
  const CodeMatrix& b = chunk.b;
  if (chunk.num_cols < kCols) {
    std::memset(codes, 0, static_cast<std::size_t>(chunk.depth) * kCols);
  }
  if (b.row_stride == 1) {
    for (int k = 0; k < chunk.depth; ++k) {
      std::memcpy(codes + static_cast<std::ptrdiff_t>(k) * kCols, b.codes + k * b.k_stride,
                  static_cast<std::size_t>(chunk.num_cols));
    }
    return;
  }
  constexpr int kWordBytes = 8;
  const bool by_words = b.k_stride == 1 && std::endian::native == std::endian::little;
  const int word_cols = by_words ? chunk.num_cols / kWordBytes * kWordBytes : 0;
  const int word_depth = by_words ? chunk.depth / kWordBytes * kWordBytes : 0;
  for (int col = 0; col < word_cols; col += kWordBytes) {
    for (int k = 0; k < word_depth; k += kWordBytes) {
      std::uint64_t words[kWordBytes];
      for (int i = 0; i < kWordBytes; ++i) {
        std::memcpy(&words[i], b.codes + (col + i) * b.row_stride + k, kWordBytes);
      }
      transpose_bytes(words);
      for (int i = 0; i < kWordBytes; ++i) {
        std::memcpy(codes + static_cast<std::ptrdiff_t>(k + i) * kCols + col, &words[i],
                    kWordBytes);
      }
    }
  }
  for (int k = 0; k < chunk.depth; ++k) {
    for (int col = k < word_depth ? word_cols : 0; col < chunk.num_cols; ++col) {
      codes[k * kCols + col] = b.codes[k * b.k_stride + col * b.row_stride];
    }
  }
}

// Fills columns; true if some of them hold NaN or Inf.
bool load_columns(const Chunk& chunk, Columns& columns) {
  gather_codes(chunk, columns.codes);
  const bool any_special =
      decode(columns.codes, chunk.b.format, chunk.depth * kCols, columns.values, columns.exponents);
  if (!any_special) return false;
  for (int col = 0; col < kCols; ++col) {
    columns.special[col] = false;
    for (int k = 0; k < chunk.depth; ++k) {
      columns.special[col] =
          columns.special[col] || is_special(columns.codes[k * kCols + col], chunk.b.format);
    }
  }
  return true;
}

bool load_row(const Chunk& chunk, std::int64_t row_idx, Row& row) {
  const std::uint8_t* from = chunk.a.codes + row_idx * chunk.a.row_stride;
  std::memset(row.codes, 0, sizeof(row.codes));
  if (chunk.a.k_stride == 1) {
    std::memcpy(row.codes, from, static_cast<std::size_t>(chunk.depth));
  } else {
    for (int k = 0; k < chunk.depth; ++k) row.codes[k] = from[k * chunk.a.k_stride];
  }
  return decode(row.codes, chunk.a.format, tensor_core_tile::kDepth, row.values, row.exponents);
}

void multiply_chunk(const Chunk& chunk, std::int64_t num_rows, bool chained, float* out,
                    std::int64_t out_stride) {
  Columns columns;  // 48 KiB of stack
  const bool special_columns = load_columns(chunk, columns);
  Row row;
  alignas(kLineBytes) float accumulators[kCols] = {};
  alignas(kLineBytes) float results[kCols];
  const std::size_t row_bytes = static_cast<std::size_t>(chunk.num_cols) * sizeof(float);
  for (std::int64_t row_idx = 0; row_idx < num_rows; ++row_idx) {
    float* out_row = out + row_idx * out_stride;
    const bool special_row = load_row(chunk, row_idx, row);
    bool any_scalar = special_row || special_columns;
    if (chained) {
      std::memcpy(accumulators, out_row, row_bytes);
      any_scalar = any_scalar || any_outside(accumulators, kCols);
    }
    multiply_row(chunk.model, row, columns, chunk.depth, chunk.num_cols,
                 chained ? accumulators : nullptr, results);
    for (int col = 0; any_scalar && col < chunk.num_cols; ++col) {
      if (!special_row && !(special_columns && columns.special[col]) &&
          !(chained && is_outside(accumulators[col]))) {
        continue;
      }
      results[col] = tensor_core_dot(chunk.model, chunk.a, row_idx, chunk.b, col, chunk.depth,
                                     chained ? &accumulators[col] : nullptr);
    }
    std::memcpy(out_row, results, row_bytes);
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace octavo
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo {

HWY_EXPORT(multiply_chunk);

namespace {

using tensor_core_tile::Chunk;
using tensor_core_tile::kCols;
using tensor_core_tile::kDepth;

// Sums of a group stay below 2^24, and chunks hold whole groups.
bool is_vectorised(const TensorCoreModel& model) {
  constexpr int kMaxFractionBits = 16;  // 2 + 16 bits a term, and 33 terms
  return model.fraction_bits <= kMaxFractionBits &&
         model.result_fraction_bits <= tensor_core_tile::kF32FractionBits && model.group > 0 &&
         model.group <= 32 && kDepth % model.group == 0;
}

}  // namespace

void tensor_core_products(const TensorCoreModel& model, const CodeMatrix& a, std::int64_t num_rows,
                          const CodeMatrix& b, std::int64_t num_cols, std::int64_t k,
                          ChainStart start, const ProductRows& out) noexcept {
  const bool chained = start == ChainStart::kFromOutput;
  if (k == 0 || !is_vectorised(model)) {
    for (std::int64_t row = 0; row < num_rows; ++row) {
      for (std::int64_t col = 0; col < num_cols; ++col) {
        float* value = out.values + row * out.stride + col;
        *value = tensor_core_dot(model, a, row, b, col, k, chained ? value : nullptr);
      }
    }
    return;
  }
  for (std::int64_t col = 0; col < num_cols; col += kCols) {
    for (std::int64_t begin = 0; begin < k; begin += kDepth) {
      Chunk chunk{model, a, b, static_cast<int>(std::min<std::int64_t>(kCols, num_cols - col)),
                  static_cast<int>(std::min<std::int64_t>(kDepth, k - begin))};
      chunk.a.codes += begin * a.k_stride;
      chunk.b.codes += begin * b.k_stride + col * b.row_stride;
      HWY_DYNAMIC_DISPATCH(multiply_chunk)
      (chunk, num_rows, chained || begin > 0, out.values + col, out.stride);
    }
  }
}

}  // namespace octavo
#endif  // HWY_ONCE
