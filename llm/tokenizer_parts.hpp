// SPDX-License-Identifier: Apache-2.0
// What a byte-level BPE tokenizer is made of, as plain data, whichever file it came from.
// Nothing here is checked: BpeTokenizer::from_parts (tokenizer_bpe.hpp) does that, and
// tokenizer_source.hpp fills it from a tokenizer.json or a GGUF.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace octavo::llm {

// Numbers as GGUF's tokenizer.ggml.token_type has them.
enum class TokenType : std::int32_t {
  kNormal = 1,       // spelt in GPT-2's printable alphabet for bytes
  kUnknown = 2,      // spelt as it is, like all that follow
  kControl = 3,      // such as <|im_start|>: found in text only when special tokens are parsed
  kUserDefined = 4,  // always found in text
  kUnused = 5,
};

struct TokenizerParts {
  std::string source;                   // names the file in errors
  std::vector<std::string> tokens;      // by id
  std::vector<TokenType> token_types;   // by id
  std::vector<std::string> merges;      // "left right", best first
  std::string pre_tokenizer;            // see pre_tokenizer_from_name
  std::optional<std::int32_t> bos;      // beginning of a text
  std::optional<std::int32_t> eos;      // end of a text or turn
  std::optional<std::int32_t> unknown;  // stands for bytes that have no token
  bool add_bos = false;                 // the model was trained with bos before every text
  bool whole_words_first = false;       // a word that is a token is never merged up from bytes
};

}  // namespace octavo::llm
