// SPDX-License-Identifier: Apache-2.0
// The pre-tokenizers one rule at a time, by hand; multilingual text is in vectors_test.cpp.
#include "llm/pre_tokenizer.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST(PreTokenizer, gpt2_takes_one_space_along_and_leaves_the_last_of_several) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "a b  c"), ElementsAre("a", " b", " ", " c"));
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "a\t\tb "), ElementsAre("a", "\t", "\t", "b", " "));
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "x \n "), ElementsAre("x", " \n "));
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, ""), IsEmpty());
}

TEST(PreTokenizer, gpt2_contractions_are_lower_case_only) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "we'll WE'LL"),
              ElementsAre("we", "'ll", " WE", "'", "LL"));
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "'re 'r 're'"),
              ElementsAre("'re", " '", "r", " '", "re", "'"));
}

TEST(PreTokenizer, gpt2_keeps_letters_numbers_and_symbols_apart) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "abc123 45+=x"),
              ElementsAre("abc", "123", " 45", "+=", "x"));
  // U+0301 is a mark, no letter; U+00BD and U+0661 are numbers; U+3000 is a space.
  EXPECT_THAT(pre_tokenize(PreTokenizer::kGpt2, "e\u0301a \u00BD\u0661\u3000x"),
              ElementsAre("e", "\u0301", "a", " \u00BD\u0661", "\u3000", "x"));
}

TEST(PreTokenizer, smollm_cuts_each_digit_off_before_anything_else) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kSmollm, "in 1987."),
              ElementsAre("in", " ", "1", "9", "8", "7", "."));
  // The spaces before a digit end their piece, so none of them is left over.
  EXPECT_THAT(pre_tokenize(PreTokenizer::kSmollm, "a   5  b"),
              ElementsAre("a", "   ", "5", " ", " b"));
}

TEST(PreTokenizer, llama_contractions_ignore_case) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kLlamaBpe, "we'll WE'LL it'\u017F"),
              ElementsAre("we", "'ll", " WE", "'LL", " it", "'\u017F"));
}

TEST(PreTokenizer, llama_numbers_have_three_digits_and_no_space) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kLlamaBpe, "x 1234567 8"),
              ElementsAre("x", " ", "123", "456", "7", " ", "8"));
}

TEST(PreTokenizer, llama_words_take_one_symbol_along) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kLlamaBpe, "(a\tb ...c\n"),
              ElementsAre("(a", "\tb", " ...", "c", "\n"));
}

TEST(PreTokenizer, llama_line_breaks_end_runs_of_spaces_and_symbols) {
  EXPECT_THAT(pre_tokenize(PreTokenizer::kLlamaBpe, "a  \n \n  b!\r\n\nc"),
              ElementsAre("a", "  \n \n", " ", " b", "!\r\n\n", "c"));
}

TEST(PreTokenizer, names_round_trip_and_others_are_refused_by_name) {
  EXPECT_EQ(pre_tokenizer_from_name("gpt-2"), PreTokenizer::kGpt2);
  EXPECT_EQ(pre_tokenizer_from_name("smollm"), PreTokenizer::kSmollm);
  EXPECT_EQ(pre_tokenizer_from_name("llama-bpe"), PreTokenizer::kLlamaBpe);
  try {
    (void)pre_tokenizer_from_name("deepseek-coder");
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("deepseek-coder"));
    EXPECT_THAT(error.what(), HasSubstr("\"gpt-2\", \"smollm\" and \"llama-bpe\""));
  }
}

TEST(PreTokenizer, words_are_exactly_the_text_for_random_bytes) {
  std::mt19937 random(7);
  // Bytes that meet each other's rules often: spaces, quotes, digits, letters, pieces of UTF-8.
  const std::string alphabet = " \n\r\t'slLrE19.\xC3\xA9\xE6\x98\xA5\xF0\x9F\xFF\x80";
  for (int round = 0; round < 3000; ++round) {
    std::string text(random() % 40, ' ');
    for (char& byte : text) {
      byte = round % 2 == 0 ? alphabet[random() % alphabet.size()] : static_cast<char>(random());
    }
    for (const PreTokenizer kind :
         {PreTokenizer::kGpt2, PreTokenizer::kSmollm, PreTokenizer::kLlamaBpe}) {
      std::string joined;
      for (const std::string_view word : pre_tokenize(kind, text)) {
        ASSERT_FALSE(word.empty());
        joined += word;
      }
      ASSERT_EQ(joined, text);
    }
  }
}

// A megabyte of the runs that a backtracking engine is slowest on. Quadratic time would be hours.
TEST(PreTokenizer, long_runs_take_linear_time) {
  constexpr std::size_t kMegabyte = std::size_t{1} << 20;
  std::string alternating;
  while (alternating.size() < kMegabyte) alternating += " \n\t' 1";
  for (const std::string& text :
       {std::string(kMegabyte, ' '), std::string(kMegabyte, '\n'), std::string(kMegabyte, 'a'),
        std::string(kMegabyte, '\''), std::string(kMegabyte, '1'),
        std::string(kMegabyte, ' ') + "x", alternating}) {
    for (const PreTokenizer kind :
         {PreTokenizer::kGpt2, PreTokenizer::kSmollm, PreTokenizer::kLlamaBpe}) {
      std::size_t total = 0;
      for (const std::string_view word : pre_tokenize(kind, text)) total += word.size();
      EXPECT_EQ(total, text.size());
    }
  }
}

}  // namespace
}  // namespace octavo::llm
