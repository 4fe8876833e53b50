// SPDX-License-Identifier: Apache-2.0
// Ids against those of PyPI's `tokenizers` on multilingual text; scripts/make_tokenizer_vectors.py
// wrote them. SmolLM2's vocabulary is too large to commit: its vectors need OCTAVO_MODEL, the path
// of SmolLM2-135M-Instruct as GGUF.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llm/gguf_reader.hpp"
#include "tokenizer/tiny_tokenizer.hpp"

namespace octavo::llm {
namespace {

using Ids = std::vector<std::int32_t>;

nlohmann::json read_json(const std::string& name) {
  std::ifstream file(OCTAVO_TEST_DATA "/tokenizer/" + name);
  EXPECT_TRUE(file.is_open()) << name;
  return nlohmann::json::parse(file);
}

std::map<std::string, std::string> read_texts() {
  std::map<std::string, std::string> texts;
  const nlohmann::json file = read_json("texts.json");
  for (const auto& entry : file["texts"]) texts[entry["name"]] = entry["text"];
  return texts;
}

void expect_vectors(const BpeTokenizer& tokenizer, const nlohmann::json& vectors) {
  const std::map<std::string, std::string> texts = read_texts();
  ASSERT_EQ(vectors.size(), texts.size());
  ASSERT_GE(vectors.size(), 70U);
  for (const auto& vector : vectors) {
    const std::string& text = texts.at(vector["name"]);
    const Ids ids = tokenizer.encode(text, SpecialTokens::kParse);
    EXPECT_EQ(ids, vector["ids"].get<Ids>()) << vector["name"];
  }
}

void expect_words(PreTokenizer kind, const nlohmann::json& vectors) {
  const std::map<std::string, std::string> texts = read_texts();
  ASSERT_EQ(vectors.size(), texts.size());
  for (const auto& vector : vectors) {
    std::vector<std::size_t> lengths;
    for (const std::string_view word : pre_tokenize(kind, texts.at(vector["name"]))) {
      lengths.push_back(word.size());
    }
    EXPECT_EQ(lengths, vector["words"].get<std::vector<std::size_t>>()) << vector["name"];
  }
}

class TinyVectors : public testing::TestWithParam<const char*> {};

TEST_P(TinyVectors, ids_and_words_match_the_tokenizers_package) {
  const std::string name = GetParam();
  const nlohmann::json file = read_json("tiny_" + name + ".json");
  expect_vectors(tiny_tokenizer(name), file["vectors"]);
  expect_words(pre_tokenizer_from_name(name), file["vectors"]);
}

INSTANTIATE_TEST_SUITE_P(AllPreTokenizers, TinyVectors,
                         testing::Values("gpt-2", "smollm", "llama-bpe"));

TEST(SmolLm2Vectors, ids_match_the_tokenizers_package) {
  const char* model = std::getenv("OCTAVO_MODEL");
  if (model == nullptr) {
    GTEST_SKIP() << "set OCTAVO_MODEL to the path of SmolLM2-135M-Instruct as GGUF";
  }
  const GgufFile file = GgufFile::open(model);
  const BpeTokenizer tokenizer = BpeTokenizer::from_parts(tokenizer_parts_from_gguf(file));
  EXPECT_EQ(tokenizer.vocab_size(), 49152);
  EXPECT_EQ(tokenizer.bos(), 1);
  EXPECT_EQ(tokenizer.eos(), 2);
  EXPECT_FALSE(tokenizer.add_bos());
  expect_vectors(tokenizer, read_json("smollm2_smollm.json")["vectors"]);
}

}  // namespace
}  // namespace octavo::llm
