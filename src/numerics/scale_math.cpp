// SPDX-License-Identifier: Apache-2.0
// The largest finite magnitude of an array, compiled once per instruction set.
#include "numerics/scale_math.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "numerics/codec.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "numerics/scale_math.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace octavo::HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// Magnitudes of IEEE-like formats order as their bits do, so the search runs on integers: twice the
// lanes for 16-bit types, and no NaN to trip over. Returns the magnitude's bits.
template <typename Bits>
std::uint32_t largest_finite_bits(const Bits* data, std::int64_t n, Bits infinity) {
  const hn::ScalableTag<Bits> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr Bits kMagnitudeMask = std::numeric_limits<Bits>::max();
  if (n < lanes) {
    Bits largest = 0;
    for (std::int64_t i = 0; i < n; ++i) {
      Bits bits;
      std::memcpy(&bits, data + i, sizeof(bits));
      const auto magnitude = static_cast<Bits>(bits & kMagnitudeMask);
      if (magnitude < infinity && magnitude > largest) largest = magnitude;
    }
    return static_cast<std::uint32_t>(largest);
  }
  const auto magnitude_mask = hn::Set(d, kMagnitudeMask);
  const auto first_special = hn::Set(d, infinity);
  auto largest0 = hn::Zero(d);
  auto largest1 = hn::Zero(d);
  const auto finite_magnitude = [&](std::int64_t offset) HWY_ATTR {
    const auto magnitude = hn::And(hn::LoadU(d, data + offset), magnitude_mask);
    return hn::IfThenElseZero(hn::Lt(magnitude, first_special), magnitude);
  };
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    largest0 = hn::Max(largest0, finite_magnitude(i));
    largest1 = hn::Max(largest1, finite_magnitude(i + lanes));
  }
  if (i + lanes <= n) largest0 = hn::Max(largest0, finite_magnitude(i));
  // The last vector overlaps the one before it: a maximum may count an element twice.
  largest1 = hn::Max(largest1, finite_magnitude(n - lanes));
  const auto largest = hn::Max(largest0, largest1);
  // Highway's baseline without SIMD has one lane, too narrow to be read as a 32-bit one.
  if constexpr (hn::MaxLanes(d) == 1) {
    return static_cast<std::uint32_t>(hn::GetLane(largest));
  } else {
    const hn::ScalableTag<std::int32_t> di;
    hn::Vec<decltype(di)> words = hn::BitCast(di, largest);
    if constexpr (sizeof(Bits) == 2) {
      words = hn::Max(hn::And(words, hn::Set(di, 0xFFFF)), hn::ShiftRight<16>(words));
    }
    return static_cast<std::uint32_t>(hn::GetLane(hn::MaxOfLanes(di, words)));
  }
}

template <typename Bits, typename ToFloat>
void accumulate_groups(const void* data, std::int64_t n, std::int64_t group_elems, Bits infinity,
                       float* amax, const ToFloat& to_float) {
  const auto* bits = static_cast<const Bits*>(data);
  for (std::int64_t first = 0; first < n; first += group_elems) {
    const std::int64_t length = std::min(group_elems, n - first);
    const float largest = to_float(largest_finite_bits<Bits>(bits + first, length, infinity));
    *amax = std::max(*amax, largest);
    ++amax;
  }
}

void accumulate_amax_lanes(DType dtype, const void* data, std::int64_t n, std::int64_t group_elems,
                           float* amax) {
  constexpr std::int16_t kBf16Infinity = 0x7F80;
  constexpr std::int16_t kF16Infinity = 0x7C00;
  switch (dtype) {
    case DType::kBF16:
      return accumulate_groups<std::int16_t>(
          data, n, group_elems, kBf16Infinity, amax,
          [](std::uint32_t bits) { return decode_bf16(static_cast<std::uint16_t>(bits)); });
    case DType::kF16:
      return accumulate_groups<std::int16_t>(
          data, n, group_elems, kF16Infinity, amax,
          [](std::uint32_t bits) { return decode_f16(static_cast<std::uint16_t>(bits)); });
    default:
      return accumulate_groups<std::int32_t>(
          data, n, group_elems, static_cast<std::int32_t>(kF32Infinity), amax,
          [](std::uint32_t bits) { return std::bit_cast<float>(bits); });
  }
}

}  // namespace
}  // namespace octavo::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo {
namespace {

HWY_EXPORT(accumulate_amax_lanes);

}  // namespace

void accumulate_amax(DType dtype, const void* data, std::int64_t n, std::int64_t group_elems,
                     float* amax) {
  HWY_DYNAMIC_DISPATCH(accumulate_amax_lanes)(dtype, data, n, group_elems, amax);
}

}  // namespace octavo
#endif  // HWY_ONCE
