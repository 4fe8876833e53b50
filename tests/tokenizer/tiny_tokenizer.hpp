// SPDX-License-Identifier: Apache-2.0
// The repository's own vocabulary of 768 tokens, under any of the pre-tokenizers.
#pragma once

#include <string>
#include <string_view>

#include "llm/tokenizer_bpe.hpp"
#include "llm/tokenizer_source.hpp"

namespace octavo::llm {

inline const std::string kTinyTokenizerJson = OCTAVO_TEST_DATA "/tiny_llama/tokenizer.json";

inline TokenizerParts tiny_parts() { return tokenizer_parts_from_json_file(kTinyTokenizerJson); }

inline BpeTokenizer tiny_tokenizer(std::string_view pre_tokenizer = "smollm") {
  TokenizerParts parts = tiny_parts();
  parts.pre_tokenizer = pre_tokenizer;
  return BpeTokenizer::from_parts(parts);
}

}  // namespace octavo::llm
