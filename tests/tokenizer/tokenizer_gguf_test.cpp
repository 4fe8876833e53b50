// SPDX-License-Identifier: Apache-2.0
// The tokenizer keys of a GGUF, from small files made in memory; a whole model's are in
// vectors_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <span>
#include <string>
#include <vector>

#include "llm/gguf_reader.hpp"
#include "llm/tokenizer_bpe.hpp"
#include "llm/tokenizer_source.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Values in the file's encoding, each with its type in front.
class GgufBytes {
 public:
  template <typename T>
  GgufBytes& put(T value) {
    bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    return *this;
  }
  GgufBytes& type(GgufType value) { return put(static_cast<std::uint32_t>(value)); }
  GgufBytes& text(std::string_view value) {
    put(std::uint64_t{value.size()});
    bytes_.append(value);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

std::string text_value(std::string_view text) {
  return GgufBytes().type(GgufType::kString).text(text).bytes();
}
std::string id_value(std::uint32_t id) {
  return GgufBytes().type(GgufType::kUint32).put(id).bytes();
}
std::string flag_value(std::uint8_t flag) {
  return GgufBytes().type(GgufType::kBool).put(flag).bytes();
}
std::string texts_value(const std::vector<std::string>& texts) {
  GgufBytes out;
  out.type(GgufType::kArray).type(GgufType::kString).put(std::uint64_t{texts.size()});
  for (const std::string& text : texts) out.text(text);
  return out.bytes();
}
std::string ints_value(const std::vector<std::int32_t>& values) {
  GgufBytes out;
  out.type(GgufType::kArray).type(GgufType::kInt32).put(std::uint64_t{values.size()});
  for (const std::int32_t value : values) out.put(value);
  return out.bytes();
}

using Keys = std::map<std::string, std::string>;

Keys good_keys() {
  return {{"model", text_value("gpt2")},
          {"pre", text_value("smollm")},
          {"tokens", texts_value({"<|end|>", "a", "b", "ab"})},
          {"token_type", ints_value({3, 1, 1, 1})},
          {"merges", texts_value({"a b"})},
          {"bos_token_id", id_value(0)},
          {"eos_token_id", id_value(0)},
          {"unknown_token_id", id_value(0)},
          {"add_bos_token", flag_value(1)}};
}

TokenizerParts read(const Keys& keys) {
  constexpr std::uint32_t kVersion = 3;
  GgufBytes out;
  out.put('G').put('G').put('U').put('F').put(kVersion);
  out.put(std::uint64_t{0}).put(std::uint64_t{keys.size()});
  std::string file = out.bytes();
  for (const auto& [key, value] : keys) {
    file += GgufBytes().text("tokenizer.ggml." + key).bytes() + value;
  }
  constexpr std::size_t kAlignment = 32;
  file.resize((file.size() + kAlignment - 1) / kAlignment * kAlignment);
  return tokenizer_parts_from_gguf(
      GgufFile::parse(std::as_bytes(std::span(file.data(), file.size())), "small.gguf"));
}

void expect_refused(const Keys& keys, ErrorCode code, const std::string& part) {
  try {
    (void)BpeTokenizer::from_parts(read(keys));
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr("small.gguf"));
  }
}

TEST(TokenizerGguf, reads_the_keys) {
  const TokenizerParts parts = read(good_keys());
  EXPECT_THAT(parts.tokens, ElementsAre("<|end|>", "a", "b", "ab"));
  EXPECT_THAT(parts.token_types, ElementsAre(TokenType::kControl, TokenType::kNormal,
                                             TokenType::kNormal, TokenType::kNormal));
  EXPECT_THAT(parts.merges, ElementsAre("a b"));
  EXPECT_EQ(parts.pre_tokenizer, "smollm");
  EXPECT_EQ(parts.bos, 0);
  EXPECT_EQ(parts.eos, 0);
  EXPECT_EQ(parts.unknown, 0);
  EXPECT_TRUE(parts.add_bos);
  EXPECT_FALSE(parts.whole_words_first);
  EXPECT_THAT(BpeTokenizer::from_parts(parts).encode("abba<|end|>", SpecialTokens::kParse),
              ElementsAre(3, 2, 1, 0));
}

TEST(TokenizerGguf, ids_and_flags_may_be_absent) {
  Keys keys = good_keys();
  for (const char* key : {"bos_token_id", "eos_token_id", "unknown_token_id", "add_bos_token"}) {
    keys.erase(key);
  }
  const TokenizerParts parts = read(keys);
  EXPECT_FALSE(parts.bos || parts.eos || parts.unknown || parts.add_bos);
}

TEST(TokenizerGguf, llama_3_takes_whole_words_first) {
  Keys keys = good_keys();
  keys["pre"] = text_value("llama-bpe");
  EXPECT_TRUE(read(keys).whole_words_first);
}

TEST(TokenizerGguf, missing_keys_are_named) {
  for (const char* key : {"model", "pre", "tokens", "token_type", "merges"}) {
    Keys keys = good_keys();
    keys.erase(key);
    expect_refused(keys, ErrorCode::kBadFile, std::string("tokenizer.ggml.") + key);
  }
}

TEST(TokenizerGguf, faults_are_refused) {
  const auto with = [](const std::string& key, const std::string& value) {
    Keys keys = good_keys();
    keys[key] = value;
    return keys;
  };
  expect_refused(with("model", text_value("llama")), ErrorCode::kUnsupported, "\"llama\"");
  expect_refused(with("model", id_value(3)), ErrorCode::kBadFile, "tokenizer.ggml.model");
  expect_refused(with("tokens", ints_value({1, 2})), ErrorCode::kBadFile, "tokenizer.ggml.tokens");
  expect_refused(with("token_type", ints_value({3, 1, 1})), ErrorCode::kBadFile,
                 "3 token types for 4 tokens");
  expect_refused(with("token_type", ints_value({3, 1, -1, 1})), ErrorCode::kUnsupported, "token 2");
  expect_refused(with("token_type", ints_value({3, 1, 6, 1})), ErrorCode::kUnsupported, "type 6");
  expect_refused(with("eos_token_id", id_value(4)), ErrorCode::kBadFile, "eos token has id 4");
  expect_refused(with("eos_token_id", id_value(0xFFFFFFFFU)), ErrorCode::kBadFile, "4294967295");
  expect_refused(with("merges", texts_value({"a z"})), ErrorCode::kBadFile, "\"z\"");
}

TEST(TokenizerGguf, an_unknown_pre_tokenizer_is_refused_by_name) {
  Keys keys = good_keys();
  keys["pre"] = text_value("qwen2");
  try {
    (void)BpeTokenizer::from_parts(read(keys));
    FAIL() << "not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_THAT(error.what(), HasSubstr("\"qwen2\""));
  }
}

}  // namespace
}  // namespace octavo::llm
