// SPDX-License-Identifier: Apache-2.0
#include "llm/utf8_stream.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "llm/utf8.hpp"

namespace octavo::llm {
namespace {

const std::string kReplacement = "\uFFFD";

std::string whole(std::string_view bytes) {
  Utf8Stream stream;
  std::string text = stream.push(bytes);
  return text + stream.finish();
}

TEST(Utf8Stream, splits_at_every_byte_give_the_same_text) {
  const std::string text =
      "a\u00E9\u6625\U0001F469\U0001F3FD\u200D\u2708\uFE0F \u0E27\u0E31\xFF\xC3(\xE6\x98z";
  const std::string expected = whole(text);
  for (std::size_t first = 0; first <= text.size(); ++first) {
    for (std::size_t second = first; second <= text.size(); ++second) {
      Utf8Stream stream;
      std::string out = stream.push(text.substr(0, first));
      out += stream.push(text.substr(first, second - first));
      out += stream.push(text.substr(second));
      out += stream.finish();
      ASSERT_EQ(out, expected) << first << " " << second;
    }
  }
}

TEST(Utf8Stream, holds_a_character_back_until_it_is_whole) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("x\xF0"), "x");
  EXPECT_EQ(stream.push("\x9F"), "");
  EXPECT_EQ(stream.push("\x98"), "");
  EXPECT_EQ(stream.push("\x80y"), "\U0001F600y");
  EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, finish_replaces_what_stayed_incomplete_once_and_starts_afresh) {
  Utf8Stream stream;
  EXPECT_EQ(stream.push("\xF0\x9F\x98"), "");
  EXPECT_EQ(stream.finish(), kReplacement);
  EXPECT_EQ(stream.finish(), "");
  EXPECT_EQ(stream.push("\x80"), kReplacement);
}

// The examples of the Unicode Standard, section 3.9, tables 3-8 to 3-11.
TEST(Utf8Stream, replaces_each_maximal_subpart_by_one_character) {
  const std::string r = kReplacement;
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", r + r + r + r + r + r + r + r + "A"},
      {"\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", r + r + r + r + r + "A" + r + r + "B"},
      {"\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", r + r + r + r + "A"},
  };
  for (const auto& [bytes, expected] : cases) EXPECT_EQ(whole(bytes), expected);
}

TEST(Utf8, reads_every_code_point_and_nothing_else) {
  constexpr std::int32_t kLast = 0x10FFFF;
  for (std::int32_t c = 0; c <= kLast; ++c) {
    std::string bytes;
    if (c < 0x80) {
      bytes = {static_cast<char>(c)};
    } else if (c < 0x800) {
      bytes = {static_cast<char>(0xC0 | (c >> 6)), static_cast<char>(0x80 | (c & 0x3F))};
    } else if (c < 0x10000) {
      bytes = {static_cast<char>(0xE0 | (c >> 12)), static_cast<char>(0x80 | ((c >> 6) & 0x3F)),
               static_cast<char>(0x80 | (c & 0x3F))};
    } else {
      bytes = {static_cast<char>(0xF0 | (c >> 18)), static_cast<char>(0x80 | ((c >> 12) & 0x3F)),
               static_cast<char>(0x80 | ((c >> 6) & 0x3F)), static_cast<char>(0x80 | (c & 0x3F))};
    }
    const Utf8Step step = read_utf8(bytes);
    const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
    ASSERT_EQ(step.kind == Utf8Kind::kCodePoint, !surrogate) << c;
    if (surrogate) continue;
    ASSERT_EQ(step.code_point, c);
    ASSERT_EQ(step.length, bytes.size());
    if (bytes.size() > 1) {
      ASSERT_EQ(read_utf8(std::string_view(bytes).substr(0, bytes.size() - 1)).kind,
                Utf8Kind::kIncomplete)
          << c;
    }
  }
}

}  // namespace
}  // namespace octavo::llm
