// SPDX-License-Identifier: Apache-2.0
// The well-formed byte sequences of table 3-7 of the Unicode Standard.
#include "llm/utf8.hpp"

namespace octavo::llm {
namespace {

struct LeadByte {
  std::size_t length;       // bytes of the whole sequence; 0 when no sequence begins so
  unsigned second_lowest;   // range of the second byte: shuts out overlong forms, surrogates
  unsigned second_highest;  // and values above U+10FFFF
};

constexpr unsigned kContinuationLowest = 0x80;
constexpr unsigned kContinuationHighest = 0xBF;
constexpr unsigned kContinuationBits = 6;
constexpr unsigned kContinuationMask = 0x3F;

LeadByte lead_byte(unsigned first) {
  if (first < 0x80) return {1, 0, 0};
  if (first < 0xC2) return {0, 0, 0};
  if (first < 0xE0) return {2, kContinuationLowest, kContinuationHighest};
  if (first == 0xE0) return {3, 0xA0, kContinuationHighest};
  if (first == 0xED) return {3, kContinuationLowest, 0x9F};
  if (first < 0xF0) return {3, kContinuationLowest, kContinuationHighest};
  if (first == 0xF0) return {4, 0x90, kContinuationHighest};
  if (first < 0xF4) return {4, kContinuationLowest, kContinuationHighest};
  if (first == 0xF4) return {4, kContinuationLowest, 0x8F};
  return {0, 0, 0};
}

}  // namespace

Utf8Step read_utf8(std::string_view text) noexcept {
  const unsigned first = static_cast<unsigned char>(text[0]);
  const LeadByte lead = lead_byte(first);
  if (lead.length == 0) return {Utf8Kind::kInvalid, 0, 1};
  if (lead.length == 1) return {Utf8Kind::kCodePoint, static_cast<std::int32_t>(first), 1};
  // A lead byte of n bytes carries 7 - n bits of the value.
  unsigned value = first & ((1U << (7 - lead.length)) - 1);
  for (std::size_t i = 1; i < lead.length; ++i) {
    if (i == text.size()) return {Utf8Kind::kIncomplete, 0, i};
    const unsigned byte = static_cast<unsigned char>(text[i]);
    const unsigned lowest = i == 1 ? lead.second_lowest : kContinuationLowest;
    const unsigned highest = i == 1 ? lead.second_highest : kContinuationHighest;
    if (byte < lowest || byte > highest) return {Utf8Kind::kInvalid, 0, i};
    value = (value << kContinuationBits) | (byte & kContinuationMask);
  }
  return {Utf8Kind::kCodePoint, static_cast<std::int32_t>(value), lead.length};
}

}  // namespace octavo::llm
