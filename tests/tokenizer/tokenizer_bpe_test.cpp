// SPDX-License-Identifier: Apache-2.0
// Properties of encoding and decoding; ids against another implementation are in vectors_test.cpp.
#include "llm/tokenizer_bpe.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "llm/utf8_stream.hpp"
#include "octavo/error.hpp"
#include "tokenizer/tiny_tokenizer.hpp"

namespace octavo::llm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Ids = std::vector<std::int32_t>;

constexpr std::int32_t kEndOfText = 0;  // ids of the tiny vocabulary
constexpr std::int32_t kImStart = 1;
constexpr std::int32_t kImEnd = 2;

std::string random_bytes(std::mt19937& random, std::size_t size) {
  std::string bytes(size, ' ');
  for (char& byte : bytes) byte = static_cast<char>(random());
  return bytes;
}

// The definition of BPE, one merge of the lowest rank at a time over the whole word: quadratic, and
// with nothing in common with the queue that it checks.
Ids merge_naively(const TokenizerParts& parts, const BpeTokenizer& tokenizer,
                  const std::string& word) {
  std::map<std::pair<std::string, std::string>, std::size_t> ranks;
  for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const std::size_t space = parts.merges[rank].find(' ');
    ranks[{parts.merges[rank].substr(0, space), parts.merges[rank].substr(space + 1)}] = rank;
  }
  std::vector<std::string> symbols;
  for (const char letter : word) symbols.emplace_back(1, letter);
  for (;;) {
    std::size_t best = symbols.size();
    std::size_t best_rank = ranks.size();
    for (std::size_t i = 0; i + 1 < symbols.size(); ++i) {
      const auto rank = ranks.find({symbols[i], symbols[i + 1]});
      if (rank != ranks.end() && rank->second < best_rank) {
        best = i;
        best_rank = rank->second;
      }
    }
    if (best == symbols.size()) break;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
  Ids ids;
  for (const std::string& symbol : symbols) ids.push_back(tokenizer.find(symbol).value());
  return ids;
}

TEST(BpeTokenizer, decode_of_encode_is_the_text_for_random_bytes) {
  std::mt19937 random(11);
  for (const char* pre : {"gpt-2", "smollm", "llama-bpe"}) {
    const BpeTokenizer tokenizer = tiny_tokenizer(pre);
    for (int round = 0; round < 500; ++round) {
      const std::string text = random_bytes(random, random() % 200);
      for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
        ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, special)), text);
      }
    }
  }
}

TEST(BpeTokenizer, every_byte_has_its_token) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  for (int byte = 0; byte < 256; ++byte) {
    const std::string text(1, static_cast<char>(byte));
    const Ids ids = tokenizer.encode(text, SpecialTokens::kParse);
    ASSERT_EQ(ids.size(), 1U);
    EXPECT_EQ(tokenizer.token_bytes(ids[0]), text);
  }
}

TEST(BpeTokenizer, merges_as_the_definition_does_on_random_words) {
  const TokenizerParts parts = tiny_parts();
  const BpeTokenizer tokenizer = tiny_tokenizer();
  std::mt19937 random(13);
  const std::string letters = "aeinosthrdlu";
  for (int round = 0; round < 300; ++round) {
    std::string word(1 + random() % 60, ' ');
    for (char& letter : word) letter = letters[random() % letters.size()];
    ASSERT_EQ(tokenizer.encode(word, SpecialTokens::kParse), merge_naively(parts, tokenizer, word))
        << word;
  }
}

TEST(BpeTokenizer, equal_ranks_merge_from_the_left) {
  TokenizerParts parts = tiny_parts();
  parts.tokens.push_back("aa");
  parts.token_types.push_back(TokenType::kNormal);
  parts.merges.emplace_back("a a");
  const BpeTokenizer tokenizer = BpeTokenizer::from_parts(parts);
  const std::int32_t a = tokenizer.find("a").value();
  const std::int32_t aa = tokenizer.find("aa").value();
  EXPECT_THAT(tokenizer.encode("aaaaa", SpecialTokens::kParse), ElementsAre(aa, aa, a));
}

// A word of a megabyte: quadratic merging would take hours.
TEST(BpeTokenizer, one_long_word_takes_no_quadratic_time) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  std::string word;
  while (word.size() < (std::size_t{1} << 20)) word += "theinandersation";
  const Ids ids = tokenizer.encode(word, SpecialTokens::kParse);
  EXPECT_LT(ids.size(), word.size() / 2);
  EXPECT_EQ(tokenizer.decode(ids), word);
}

TEST(BpeTokenizer, special_tokens_are_parsed_or_left_as_text) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  const std::string text = "<|im_start|>a<|im_end|><|endoftext|>";
  const std::int32_t a = tokenizer.find("a").value();
  EXPECT_THAT(tokenizer.encode(text, SpecialTokens::kParse),
              ElementsAre(kImStart, a, kImEnd, kEndOfText));
  const Ids as_text = tokenizer.encode(text, SpecialTokens::kAsText);
  EXPECT_TRUE(std::none_of(as_text.begin(), as_text.end(), [](std::int32_t id) {
    return id == kImStart || id == kImEnd || id == kEndOfText;
  }));
  EXPECT_EQ(tokenizer.decode(as_text), text);
  EXPECT_EQ(tokenizer.token_type(kImEnd), TokenType::kControl);
  EXPECT_EQ(tokenizer.token_type(a), TokenType::kNormal);
}

TEST(BpeTokenizer, the_longest_special_token_wins_and_user_defined_ones_are_always_found) {
  TokenizerParts parts = tiny_parts();
  const auto first = static_cast<std::int32_t>(parts.tokens.size());
  for (const char* token : {"[[", "[[x]]", "[[x"}) {
    parts.tokens.emplace_back(token);
    parts.token_types.push_back(TokenType::kUserDefined);
  }
  const BpeTokenizer tokenizer = BpeTokenizer::from_parts(parts);
  const std::int32_t x = tokenizer.find("x").value();
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
    EXPECT_THAT(tokenizer.encode("[[x]][[xx[[", special),
                ElementsAre(first + 1, first + 2, x, first));
  }
}

TEST(BpeTokenizer, bytes_without_a_token_become_unknown_or_an_error) {
  TokenizerParts parts;
  parts.source = "test";
  parts.tokens = {"<unk>", "a", "b", "ab"};
  parts.token_types = {TokenType::kControl, TokenType::kNormal, TokenType::kNormal,
                       TokenType::kNormal};
  parts.merges = {"a b"};
  parts.pre_tokenizer = "gpt-2";
  const BpeTokenizer refuses = BpeTokenizer::from_parts(parts);
  EXPECT_THAT(refuses.encode("aab", SpecialTokens::kParse), ElementsAre(1, 3));
  try {
    (void)refuses.encode("ab\xC3", SpecialTokens::kParse);
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("0xC3"));
  }
  parts.unknown = 0;
  EXPECT_THAT(BpeTokenizer::from_parts(parts).encode("ab\xC3"
                                                     "b",
                                                     SpecialTokens::kParse),
              ElementsAre(3, 0, 2));
}

TEST(BpeTokenizer, whole_words_first_skips_the_merges) {
  TokenizerParts parts = tiny_parts();
  parts.tokens.emplace_back("zqz");  // no merge makes it
  parts.token_types.push_back(TokenType::kNormal);
  EXPECT_EQ(BpeTokenizer::from_parts(parts).encode("zqz", SpecialTokens::kParse).size(), 3U);
  parts.whole_words_first = true;
  const BpeTokenizer tokenizer = BpeTokenizer::from_parts(parts);
  EXPECT_THAT(tokenizer.encode("zqz", SpecialTokens::kParse),
              ElementsAre(tokenizer.vocab_size() - 1));
}

TEST(BpeTokenizer, ids_out_of_range_are_refused) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  for (const std::int32_t id : {-1, 768, 1 << 30}) {
    EXPECT_THROW((void)tokenizer.token_bytes(id), Error);
    EXPECT_THROW((void)tokenizer.token_type(id), Error);
    EXPECT_THROW((void)tokenizer.decode(Ids{0, id}), Error);
  }
  EXPECT_EQ(tokenizer.find("no such token"), std::nullopt);
}

TEST(BpeTokenizer, tokens_stream_as_utf8) {
  const BpeTokenizer tokenizer = tiny_tokenizer();
  const std::string text = "caf\u00E9 \u6625 \U0001F600 end";
  Utf8Stream stream;
  std::string out;
  for (const std::int32_t id : tokenizer.encode(text, SpecialTokens::kParse)) {
    const std::string piece = stream.push(tokenizer.token_bytes(id));
    EXPECT_EQ(piece.find("\uFFFD"), std::string::npos);
    out += piece;
  }
  EXPECT_EQ(out + stream.finish(), text);
}

}  // namespace
}  // namespace octavo::llm
