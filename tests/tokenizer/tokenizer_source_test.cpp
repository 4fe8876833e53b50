// SPDX-License-Identifier: Apache-2.0
// What is read from a tokenizer.json, and that hostile or unknown ones are refused with the right
// code and a message that names the fault.
#include "llm/tokenizer_source.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "octavo/error.hpp"
#include "tokenizer/tiny_tokenizer.hpp"

namespace octavo::llm {
namespace {

using Json = nlohmann::json;
using testing::HasSubstr;

const char* const kSmall = R"({
  "added_tokens": [{"id": 3, "content": "<end>", "special": true},
                   {"id": 4, "content": "[tool]", "special": false}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "unk_token": null, "vocab": {"a": 0, "b": 1, "ab": 2},
            "merges": ["a b"]}
})";

BpeTokenizer build(const Json& json) {
  return BpeTokenizer::from_parts(tokenizer_parts_from_json(json.dump(), "small.json"));
}

void expect_refused(const std::function<void()>& read, ErrorCode code, const std::string& part) {
  try {
    read();
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    EXPECT_THAT(error.what(), HasSubstr(part));
    EXPECT_THAT(error.what(), HasSubstr("small.json"));
  }
}

struct Fault {
  const char* path;   // JSON pointer
  const char* value;  // JSON text to put there
  ErrorCode code;
  const char* message_part;
};

TEST(TokenizerSource, reads_a_small_tokenizer_json) {
  const TokenizerParts parts = tokenizer_parts_from_json(kSmall, "small.json");
  EXPECT_EQ(parts.tokens, (std::vector<std::string>{"a", "b", "ab", "<end>", "[tool]"}));
  EXPECT_EQ(parts.token_types,
            (std::vector{TokenType::kNormal, TokenType::kNormal, TokenType::kNormal,
                         TokenType::kControl, TokenType::kUserDefined}));
  EXPECT_EQ(parts.merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(parts.pre_tokenizer, "gpt-2");
  EXPECT_FALSE(parts.bos || parts.eos || parts.unknown || parts.add_bos);
  EXPECT_FALSE(parts.whole_words_first);
}

TEST(TokenizerSource, merges_are_strings_or_pairs) {
  Json json = Json::parse(kSmall);
  json["model"]["merges"] = Json::parse(R"([["a", "b"]])");
  EXPECT_EQ(tokenizer_parts_from_json(json.dump(), "small.json").merges,
            std::vector<std::string>{"a b"});
}

TEST(TokenizerSource, the_tiny_model_is_known) {
  const TokenizerParts parts = tiny_parts();
  EXPECT_EQ(parts.pre_tokenizer, "smollm");
  EXPECT_EQ(parts.tokens.size(), 768U);
  EXPECT_EQ(parts.merges.size(), 768U - 256U - 3U);
}

TEST(TokenizerSource, pre_tokenizers_are_known_by_their_description) {
  Json json = Json::parse(kSmall);
  json["pre_tokenizer"] = Json::parse(R"({"type": "Sequence", "pretokenizers": [
      {"type": "Digits", "individual_digits": true},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]})");
  EXPECT_EQ(tokenizer_parts_from_json(json.dump(), "small.json").pre_tokenizer, "smollm");
  json["pre_tokenizer"] = Json::parse(R"j({"type": "Sequence", "pretokenizers": [
      {"type": "Split", "behavior": "Isolated", "invert": false, "pattern": {"Regex":
       "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"}},
      {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]})j");
  EXPECT_EQ(tokenizer_parts_from_json(json.dump(), "small.json").pre_tokenizer, "llama-bpe");
  json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"] = "\\d+";
  expect_refused([&] { (void)build(json); }, ErrorCode::kUnsupported, "Split, ByteLevel");
}

TEST(TokenizerSource, the_post_processor_says_whether_bos_is_added) {
  Json json = Json::parse(kSmall);
  json["post_processor"] = Json::parse(R"({"type": "Sequence", "processors": [
      {"type": "ByteLevel"},
      {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<end>", "type_id": 0}},
                                                {"Sequence": {"id": "A", "type_id": 0}}]}]})");
  const TokenizerParts parts = tokenizer_parts_from_json(json.dump(), "small.json");
  EXPECT_TRUE(parts.add_bos);
  EXPECT_EQ(parts.bos, 3);
}

TEST(TokenizerSource, unknown_and_whole_words_are_read_from_the_model) {
  Json json = Json::parse(kSmall);
  json["model"]["unk_token"] = "<end>";
  json["model"]["ignore_merges"] = true;
  const TokenizerParts parts = tokenizer_parts_from_json(json.dump(), "small.json");
  EXPECT_EQ(parts.unknown, 3);
  EXPECT_TRUE(parts.whole_words_first);
}

TEST(TokenizerSource, faults_are_refused_by_name) {
  constexpr ErrorCode kBad = ErrorCode::kBadFile;
  constexpr ErrorCode kUnknown = ErrorCode::kUnsupported;
  const std::vector<Fault> faults = {
      {"/model/merges", R"(["a c"])", kBad, "\"c\" is not in the vocabulary"},
      {"/model/merges", R"(["b a"])", kBad, "\"ba\" is not in the vocabulary"},
      {"/model/merges", R"(["a b", "a b"])", kBad, "merges 0 and 1"},
      {"/model/merges", R"(["ab"])", kBad, "one space"},
      {"/model/merges", R"(["a b c"])", kBad, "one space"},
      {"/model/merges", R"([" b"])", kBad, "\"\" is not in the vocabulary"},
      {"/model/merges", R"([["a"]])", kBad, "neither a string nor a pair"},
      {"/model/merges", R"([["a", 1]])", kBad, "neither a string nor a pair"},
      {"/model/merges", "7", kBad, "\"merges\""},
      {"/model/vocab", "[]", kBad, "\"vocab\""},
      {"/model/vocab", R"({"a": 0, "b": 1, "ab": 9})", kBad, "id 9"},
      {"/model/vocab", R"({"a": 0, "b": 1, "ab": 1})", kBad, "both have id 1"},
      {"/model/vocab", R"({"a": 0, "b": -1, "ab": 2})", kBad, "the id of \"b\""},
      {"/model/vocab", R"({"a": 0, "b": 1.5, "ab": 2})", kBad, "the id of \"b\""},
      {"/model/vocab", R"({"a": 0, "b": 4294967296, "ab": 2})", kBad, "the id of \"b\""},
      {"/model/vocab", R"({"a": 0, "b": 1, "ab": 2, "": 5})", kBad, "is empty"},
      {"/model/type", "\"WordPiece\"", kUnknown, "WordPiece"},
      {"/model/dropout", "0.1", kUnknown, "dropout"},
      {"/model/byte_fallback", "true", kUnknown, "byte_fallback"},
      {"/model/end_of_word_suffix", "\"</w>\"", kUnknown, "end_of_word_suffix"},
      {"/model/ignore_merges", "3", kBad, "ignore_merges"},
      {"/model/unk_token", "\"<unk>\"", kBad, "<unk>"},
      {"/model", "[]", kBad, "\"type\""},
      {"/normalizer", R"({"type": "NFC"})", kUnknown, "NFC"},
      {"/decoder", R"({"type": "Metaspace"})", kUnknown, "Metaspace"},
      {"/decoder", "null", kBad, "\"type\""},
      {"/pre_tokenizer", "null", kUnknown, "the pre-tokenizer is"},
      {"/pre_tokenizer", R"({"type": "Whitespace"})", kUnknown, "Whitespace"},
      {"/pre_tokenizer", R"({"type": "Sequence", "pretokenizers": 1})", kBad, "pretokenizers"},
      {"/pre_tokenizer/add_prefix_space", "true", kUnknown, "add_prefix_space"},
      {"/post_processor", R"({"type": "BertProcessing"})", kUnknown, "BertProcessing"},
      {"/post_processor", R"({"type": "TemplateProcessing", "single": [1, 2]})", kUnknown,
       "TemplateProcessing"},
      {"/added_tokens", "{}", kBad, "added_tokens"},
      {"/added_tokens/0", "5", kBad, "\"content\""},
      {"/added_tokens/0/id", "2", kBad, "both have id 2"},
      {"/added_tokens/0/id", "77", kBad, "id 77"},
      {"/added_tokens/0/lstrip", "true", kUnknown, "lstrip"},
      {"/added_tokens/1/content", "\"<end>\"", kBad, "tokens 3 and 4 are both"},
  };
  for (const Fault& fault : faults) {
    SCOPED_TRACE(std::string(fault.path) + " = " + fault.value);
    Json json = Json::parse(kSmall);
    json[Json::json_pointer(fault.path)] = Json::parse(fault.value);
    expect_refused([&] { (void)build(json); }, fault.code, fault.message_part);
  }
}

TEST(TokenizerSource, what_is_no_json_object_is_refused) {
  for (const std::string text : {"", "[]", "{", "nul", "\"\xFF\"", "{\"model\": \"\xC0\xAF\"}"}) {
    expect_refused([&] { (void)tokenizer_parts_from_json(text, "small.json"); },
                   ErrorCode::kBadFile, "not a JSON object");
  }
  const std::string deep = "{\"a\":" + std::string(1000000, '[');
  expect_refused([&] { (void)tokenizer_parts_from_json(deep, "small.json"); }, ErrorCode::kBadFile,
                 "nested too deeply");
  EXPECT_THROW((void)tokenizer_parts_from_json_file("/nonexistent/tokenizer.json"), Error);
}

// Every prefix of a good file, and every file with one byte changed, is read or refused.
TEST(TokenizerSource, damaged_text_never_escapes_the_error_type) {
  const std::string good = kSmall;
  std::size_t refused = 0;
  const auto read = [&refused](const std::string& text) {
    try {
      (void)BpeTokenizer::from_parts(tokenizer_parts_from_json(text, "small.json"));
    } catch (const Error&) {
      ++refused;
    }
  };
  for (std::size_t size = 0; size < good.size(); ++size) read(good.substr(0, size));
  EXPECT_EQ(refused, good.size());
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte : {'\0', '"', '9', '}', '\xFF'}) {
      std::string changed = good;
      changed[at] = byte;
      read(changed);
    }
  }
}

TEST(TokenizerParts, contradictions_are_refused) {
  struct Case {
    std::function<void(TokenizerParts&)> damage;
    ErrorCode code;
    std::string message_part;
  };
  const std::vector<Case> cases = {
      {[](TokenizerParts& p) { p.tokens.clear(); }, ErrorCode::kBadFile, "0 tokens"},
      {[](TokenizerParts& p) { p.token_types.pop_back(); }, ErrorCode::kBadFile,
       "4 token types for 5 tokens"},
      {[](TokenizerParts& p) { p.tokens[1] = "a"; }, ErrorCode::kBadFile, "tokens 0 and 1"},
      {[](TokenizerParts& p) { p.tokens[4].clear(); }, ErrorCode::kBadFile, "token 4 has 0 bytes"},
      {[](TokenizerParts& p) { p.tokens[3].assign(300, 'x'); }, ErrorCode::kBadFile,
       "token 3 has 300 bytes"},
      {[](TokenizerParts& p) { p.token_types[3] = TokenType{6}; }, ErrorCode::kUnsupported,
       "type 6"},
      {[](TokenizerParts& p) { p.bos = 5; }, ErrorCode::kBadFile, "the bos token has id 5"},
      {[](TokenizerParts& p) { p.eos = -1; }, ErrorCode::kBadFile, "the eos token has id -1"},
      {[](TokenizerParts& p) { p.unknown = 1 << 30; }, ErrorCode::kBadFile, "the unknown token"},
      {[](TokenizerParts& p) { p.add_bos = true; }, ErrorCode::kBadFile, "bos is to be added"},
  };
  for (const Case& damaged : cases) {
    SCOPED_TRACE(damaged.message_part);
    TokenizerParts parts = tokenizer_parts_from_json(kSmall, "small.json");
    damaged.damage(parts);
    expect_refused([&] { (void)BpeTokenizer::from_parts(parts); }, damaged.code,
                   damaged.message_part);
  }
  TokenizerParts parts = tokenizer_parts_from_json(kSmall, "small.json");
  parts.pre_tokenizer = "qwen2";
  EXPECT_THROW((void)BpeTokenizer::from_parts(parts), Error);
}

}  // namespace
}  // namespace octavo::llm
