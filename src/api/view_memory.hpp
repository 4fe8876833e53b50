// SPDX-License-Identifier: Apache-2.0
// Which bytes a view may touch, whether it names one twice, and whether two views share some.
// Only arithmetic: the rules and their messages are in validate_*.cpp.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <numeric>

#include "octavo/tensor_view.hpp"

namespace octavo {

enum class ViewFault : unsigned char {
  kNone,
  kRank,            // below 0 or above kMaxRank
  kNegativeExtent,  // an extent is below 0
  kTooLarge,        // the elements, or the bytes between the first and the last, overflow int64
  kNullData,        // no memory behind elements
};

// Bytes from the view's data to its lowest byte (<= 0) and past its highest.
struct ByteSpan {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// NOTE: a span is the sum of at most kMaxRank products of two int64; 128 bits cannot overflow.
__extension__ using Int128 = __int128;

// What is wrong with a view by itself; if nothing is, *span holds its bytes (none for an empty
// view).
template <typename Pointer>
[[nodiscard]] ViewFault examine(const BasicTensorView<Pointer>& view, ByteSpan* span) noexcept {
  constexpr Int128 kMax = std::numeric_limits<std::int64_t>::max();
  *span = {};
  if (view.rank < 0 || view.rank > kMaxRank) return ViewFault::kRank;
  bool empty = false;
  for (int i = 0; i < view.rank; ++i) {
    const std::int64_t extent = view.shape[static_cast<std::size_t>(i)];
    if (extent < 0) return ViewFault::kNegativeExtent;
    empty = empty || extent == 0;
  }
  Int128 elements = 1;
  Int128 low = 0;
  Int128 high = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto d = static_cast<std::size_t>(i);
    // Extents of an empty tensor must still be sane: shapes are multiplied without regard to it.
    elements *= view.shape[d] > 0 ? view.shape[d] : 1;
    if (elements * size_bytes(view.dtype) > kMax) return ViewFault::kTooLarge;
    const Int128 reach = static_cast<Int128>(view.strides[d]) * (view.shape[d] - 1);
    (reach < 0 ? low : high) += reach;
  }
  if (empty) return ViewFault::kNone;
  low *= size_bytes(view.dtype);
  high = (high + 1) * size_bytes(view.dtype);
  if (high > kMax || -low > kMax || high - low > kMax) return ViewFault::kTooLarge;
  if (view.data == nullptr) return ViewFault::kNullData;
  *span = {static_cast<std::int64_t>(low), static_cast<std::int64_t>(high)};
  return ViewFault::kNone;
}

// True if no two positions of a sound view are one element. Exact up to two dimensions longer than
// 1; with more, a view whose dimensions interleave counts as repeating.
template <typename Pointer>
[[nodiscard]] bool elements_distinct(const BasicTensorView<Pointer>& view) noexcept {
  std::array<std::int64_t, kMaxRank> strides{};
  std::array<std::int64_t, kMaxRank> extents{};
  std::size_t count = 0;
  if (view.num_elements() == 0) return true;
  for (int i = 0; i < view.rank; ++i) {
    const auto d = static_cast<std::size_t>(i);
    if (view.shape[d] == 1) continue;
    if (view.strides[d] == 0) return false;
    const std::int64_t stride = view.strides[d] < 0 ? -view.strides[d] : view.strides[d];
    std::size_t at = count++;
    for (; at > 0 && strides[at - 1] > stride; --at) {
      strides[at] = strides[at - 1];
      extents[at] = extents[at - 1];
    }
    strides[at] = stride;
    extents[at] = view.shape[d];
  }
  if (count == 2) {
    // i * strides[0] == j * strides[1] first happens at the strides' quotients by their divisor.
    const std::int64_t divisor = std::gcd(strides[0], strides[1]);
    return strides[1] / divisor >= extents[0] || strides[0] / divisor >= extents[1];
  }
  std::int64_t reach = 0;  // of the dimensions with smaller strides; examine() bounds it
  for (std::size_t i = 0; i < count; ++i) {
    if (strides[i] <= reach) return false;
    reach += strides[i] * (extents[i] - 1);
  }
  return true;
}

// A set of equally long pieces of memory at equal distances that covers a view.
struct Pieces {
  std::uintptr_t begin;
  std::uint64_t length;    // of one piece, up to its last element
  std::uint64_t distance;  // between pieces; 0 if there is one
  std::uint64_t total;     // from the first byte past the last
};

template <typename Pointer>
[[nodiscard]] Pieces pieces_of(const BasicTensorView<Pointer>& view,
                               const ByteSpan& span) noexcept {
  std::uint64_t distance = 0;
  std::uint64_t reach = 0;
  for (int i = 0; i < view.rank; ++i) {
    const auto d = static_cast<std::size_t>(i);
    if (view.shape[d] <= 1) continue;
    const std::int64_t stride = view.strides[d] < 0 ? -view.strides[d] : view.strides[d];
    const auto bytes =
        static_cast<std::uint64_t>(stride) * static_cast<std::uint64_t>(size_bytes(view.dtype));
    if (bytes <= distance) continue;
    distance = bytes;
    reach = bytes * static_cast<std::uint64_t>(view.shape[d] - 1);
  }
  const auto total = static_cast<std::uint64_t>(span.end - span.begin);
  return {reinterpret_cast<std::uintptr_t>(view.data) + static_cast<std::uintptr_t>(span.begin),
          total - reach, distance, total};
}

// Whether two sound views may share a byte. Slices of one buffer side by side (columns of the same
// rows) do not; views woven together in another way count as sharing.
template <typename PointerX, typename PointerY>
[[nodiscard]] bool may_overlap(const BasicTensorView<PointerX>& x, const ByteSpan& x_span,
                               const BasicTensorView<PointerY>& y,
                               const ByteSpan& y_span) noexcept {
  if (x_span.begin == x_span.end || y_span.begin == y_span.end) return false;
  const Pieces a = pieces_of(x, x_span);
  const Pieces b = pieces_of(y, y_span);
  if (a.begin + a.total <= b.begin || b.begin + b.total <= a.begin) return false;
  const std::uint64_t distance = a.distance > b.distance ? a.distance : b.distance;
  if (distance == 0) return true;
  // Modulo the distance each view is one interval; a view with shorter steps counts whole.
  const std::uint64_t a_length = a.distance == distance ? a.length : a.total;
  const std::uint64_t b_length = b.distance == distance ? b.length : b.total;
  const std::uint64_t a_at = a.begin % distance;
  const std::uint64_t b_at = b.begin % distance;
  const std::uint64_t b_after_a = (b_at + distance - a_at) % distance;
  const std::uint64_t a_after_b = (a_at + distance - b_at) % distance;
  return b_after_a < a_length || a_after_b < b_length;
}

}  // namespace octavo
