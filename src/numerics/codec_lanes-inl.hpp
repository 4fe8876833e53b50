// SPDX-License-Identifier: Apache-2.0
// The codecs of codec.hpp on a vector of lanes, bit for bit the same. Compiled once per instruction
// set: include it only from files that go through hwy/foreach_target.h, after that header.
// Whole arrays: codec_array.cpp.

// NOTE: not #pragma once: Highway includes this file again for every target.
#if defined(OCTAVO_NUMERICS_CODEC_LANES_INL_HPP) == defined(HWY_TARGET_TOGGLE)
#ifdef OCTAVO_NUMERICS_CODEC_LANES_INL_HPP
#undef OCTAVO_NUMERICS_CODEC_LANES_INL_HPP
#else
#define OCTAVO_NUMERICS_CODEC_LANES_INL_HPP
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "numerics/codec.hpp"

HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::ScalableTag<float>;
using BitsTag = hn::RebindToUnsigned<FloatTag>;
using IntTag = hn::RebindToSigned<FloatTag>;
using FloatVec = hn::Vec<FloatTag>;
using BitsVec = hn::Vec<BitsTag>;
using IntVec = hn::Vec<IntTag>;

HWY_INLINE IntVec set_bits(std::uint32_t bits) {
  return hn::Set(IntTag(), static_cast<std::int32_t>(bits));
}

// A format narrower than FP32 with subnormals. `kClampCode` is what every larger magnitude becomes:
// the largest finite code where the format saturates, infinity's where it does not.
template <int kMantissaBits, int kBias, int kCodeBits, std::uint32_t kClampCode,
          std::uint32_t kNanCode, std::uint32_t kFirstSpecialCode, bool kHasInfinity>
struct NarrowLanes {
  static constexpr int kDroppedBits = 23 - kMantissaBits;
  static constexpr std::uint32_t kExponentOffset = static_cast<std::uint32_t>(127 - kBias)
                                                   << kMantissaBits;
  static constexpr std::uint32_t kClampMagnitude = (kClampCode + kExponentOffset) << kDroppedBits;
  static constexpr std::uint32_t kMinNormal = static_cast<std::uint32_t>(128 - kBias) << 23;
  static constexpr std::uint32_t kSignMask = 1U << (kCodeBits - 1);

  // A power of two is added whose last bit weighs as much as the format's last bit at the value's
  // exponent (the least normal one's for subnormals): the FP32 addition does the rounding, and its
  // result holds the significand as an integer.
  // NOTE: magnitudes have a clear top bit, so signed comparisons order them; unsigned ones cost
  // two more instructions before AVX-512.
  static HWY_INLINE BitsVec encode(FloatVec value) {
    const IntTag di;
    const FloatTag df;
    const IntVec bits = hn::BitCast(di, value);
    const IntVec magnitude = hn::And(bits, set_bits(~kF32SignBit));
    const auto is_nan = hn::Gt(magnitude, set_bits(kF32Infinity));
    const IntVec clamped = hn::Min(magnitude, set_bits(kClampMagnitude));
    const IntVec exponent = hn::And(hn::Max(clamped, set_bits(kMinNormal)), set_bits(kF32Infinity));
    const IntVec addend =
        hn::Add(exponent, set_bits(static_cast<std::uint32_t>(kDroppedBits) << 23));
    const IntVec sum = hn::BitCast(di, hn::Add(hn::BitCast(df, clamped), hn::BitCast(df, addend)));
    const IntVec significand = hn::Sub(sum, addend);
    // The significand's leading one carries into the exponent field, hence one exponent less.
    const IntVec exponent_field =
        hn::Sub(hn::ShiftRight<kDroppedBits>(exponent), set_bits(kMinNormal >> kDroppedBits));
    const IntVec sign =
        hn::BitCast(di, hn::ShiftRight<32 - kCodeBits>(hn::BitCast(BitsTag(), bits)));
    const IntVec code = hn::OrAnd(hn::Add(significand, exponent_field), sign, set_bits(kSignMask));
    return hn::BitCast(BitsTag(), hn::IfThenElse(is_nan, set_bits(kNanCode), code));
  }

  static HWY_INLINE FloatVec decode(BitsVec code_bits) {
    const IntTag di;
    const FloatTag df;
    const IntVec code = hn::BitCast(di, code_bits);
    const IntVec magnitude = hn::And(code, set_bits(kSignMask - 1));
    const IntVec sign = hn::ShiftLeft<32 - kCodeBits>(hn::And(code, set_bits(kSignMask)));
    const IntVec normal = hn::Add(hn::ShiftLeft<kDroppedBits>(magnitude),
                                  set_bits(static_cast<std::uint32_t>(127 - kBias) << 23));
    // A subnormal's bits, read one exponent higher, are the least normal plus its value.
    const FloatVec least_normal = hn::BitCast(df, set_bits(kMinNormal));
    const FloatVec subnormal =
        hn::Sub(hn::BitCast(df, hn::Add(normal, hn::Set(di, 1 << 23))), least_normal);
    const auto is_subnormal = hn::Lt(magnitude, hn::Set(di, 1 << kMantissaBits));
    IntVec bits = hn::Or(hn::IfThenElse(is_subnormal, hn::BitCast(di, subnormal), normal), sign);
    const IntVec first_special = set_bits(kFirstSpecialCode);
    if constexpr (kHasInfinity) {
      bits = hn::IfThenElse(hn::Eq(magnitude, first_special), hn::Or(sign, set_bits(kF32Infinity)),
                            bits);
      bits = hn::IfThenElse(hn::Gt(magnitude, first_special), set_bits(kCanonicalNan), bits);
    } else {
      bits = hn::IfThenElse(hn::Eq(magnitude, first_special), set_bits(kCanonicalNan), bits);
    }
    return hn::BitCast(df, bits);
  }
};

// How an array of each type is read and written, a vector of FP32 lanes at a time.
template <typename Codec, typename CodeType>
struct NarrowArray {
  using Code = CodeType;
  using CodeTag = hn::Rebind<Code, FloatTag>;

  static HWY_INLINE FloatVec load(const Code* codes) {
    return Codec::decode(hn::PromoteTo(BitsTag(), hn::LoadU(CodeTag(), codes)));
  }
  static HWY_INLINE void store(FloatVec value, Code* codes) {
    hn::StoreU(hn::TruncateTo(CodeTag(), Codec::encode(value)), CodeTag(), codes);
  }
};

struct Bf16Lanes {
  static HWY_INLINE BitsVec encode(FloatVec value) {
    const BitsTag du;
    const IntTag di;
    const BitsVec bits = hn::BitCast(du, value);
    const IntVec magnitude = hn::And(hn::BitCast(di, bits), set_bits(~kF32SignBit));
    const BitsVec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1U));
    const BitsVec rounded = hn::ShiftRight<16>(hn::Add(hn::Add(bits, hn::Set(du, 0x7FFFU)), odd));
    const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, set_bits(kF32Infinity)));
    return hn::IfThenElse(is_nan, hn::Set(du, 0x7FFFU), rounded);
  }
  static HWY_INLINE FloatVec decode(BitsVec code) {
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(code));
  }
};

using E4M3Array = NarrowArray<NarrowLanes<3, 7, 8, 0x7E, 0x7F, 0x7F, false>, std::uint8_t>;
using E5M2Array = NarrowArray<NarrowLanes<2, 15, 8, 0x7B, 0x7F, 0x7C, true>, std::uint8_t>;
using F16Array = NarrowArray<NarrowLanes<10, 15, 16, 0x7C00, 0x7FFF, 0x7C00, true>, std::uint16_t>;
using Bf16Array = NarrowArray<Bf16Lanes, std::uint16_t>;

struct F32Array {
  using Code = float;
  static HWY_INLINE FloatVec load(const Code* values) { return hn::LoadU(FloatTag(), values); }
  static HWY_INLINE void store(FloatVec value, Code* values) {
    hn::StoreU(value, FloatTag(), values);
  }
};

// Whether the memory some distance after the part being read is fetched early.
enum class Ahead : unsigned char { kNothing, kPrefetch };

// out[i] = convert(f(convert(in[i]))) for i in [0, n). The rest of a last, partial vector goes
// through a buffer, so that nothing outside the two arrays is read or written.
template <typename From, typename To, Ahead kAhead = Ahead::kNothing, typename F>
HWY_INLINE void transform_array(const void* in_data, std::int64_t n, void* out_data, const F& f,
                                std::int64_t ahead_elems = 0) {
  using InCode = typename From::Code;
  using OutCode = typename To::Code;
  const auto* in = static_cast<const InCode*>(in_data);
  auto* out = static_cast<OutCode*>(out_data);
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(FloatTag()));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    // NOTE: an integer sum, since the address may lie outside the array; prefetching never faults.
    if constexpr (kAhead == Ahead::kPrefetch) {
      const std::uintptr_t address = reinterpret_cast<std::uintptr_t>(in + i) +
                                     static_cast<std::uintptr_t>(ahead_elems) * sizeof(InCode);
      __builtin_prefetch(
          reinterpret_cast<const void*>(address));  // NOLINT(performance-no-int-to-ptr)
    }
    To::store(f(From::load(in + i)), out + i);
  }
  if (i >= n) return;
  constexpr std::size_t kMaxLanes = hn::MaxLanes(FloatTag());
  HWY_ALIGN InCode in_rest[kMaxLanes] = {};
  HWY_ALIGN OutCode out_rest[kMaxLanes];
  const auto rest = static_cast<std::size_t>(n - i);
  std::memcpy(in_rest, in + i, rest * sizeof(InCode));
  To::store(f(From::load(in_rest)), out_rest);
  std::memcpy(out + i, out_rest, rest * sizeof(OutCode));
}

}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // OCTAVO_NUMERICS_CODEC_LANES_INL_HPP
