// SPDX-License-Identifier: Apache-2.0
// Byte-level byte-pair encoding: text to token ids and back. Words come from pre_tokenizer.hpp,
// the vocabulary from tokenizer_source.hpp; chat markup is in chat_template.hpp.
// Immutable after construction, so one object serves any number of threads.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "llm/pre_tokenizer.hpp"
#include "llm/token_trie.hpp"
#include "llm/tokenizer_parts.hpp"

namespace octavo::llm {

enum class SpecialTokens {
  kParse,   // "<|im_end|>" in the text becomes the control token: for text of one's own making
  kAsText,  // it becomes the letters it is made of: for text of others
};

class BpeTokenizer {
 public:
  // Throws Error: kBadFile if the parts contradict each other, kUnsupported for a pre-tokenizer or
  // token type that is not known.
  [[nodiscard]] static BpeTokenizer from_parts(const TokenizerParts& parts);

  // Any bytes are allowed; those that are not UTF-8 are encoded one by one. bos is never added: see
  // add_bos(). Throws Error (kInvalidArgument) for a byte that has no token in a vocabulary without
  // an unknown token.
  [[nodiscard]] std::vector<std::int32_t> encode(std::string_view text,
                                                 SpecialTokens special) const;

  // The bytes of the tokens one after another, special ones as they are spelt; not always UTF-8
  // (see utf8_stream.hpp). decode(encode(x)) is x, unless x has bytes that became `unknown`.
  [[nodiscard]] std::string decode(std::span<const std::int32_t> ids) const;

  // Throws Error (kInvalidArgument) if `id` is not in [0, vocab_size()).
  [[nodiscard]] std::string_view token_bytes(std::int32_t id) const;
  [[nodiscard]] TokenType token_type(std::int32_t id) const;

  // The id of a token as the vocabulary spells it: "\u0120the" rather than " the".
  [[nodiscard]] std::optional<std::int32_t> find(std::string_view token) const;

  [[nodiscard]] std::int32_t vocab_size() const noexcept {
    return static_cast<std::int32_t>(bytes_.size());
  }
  [[nodiscard]] std::optional<std::int32_t> bos() const noexcept { return bos_; }
  [[nodiscard]] std::optional<std::int32_t> eos() const noexcept { return eos_; }
  [[nodiscard]] bool add_bos() const noexcept { return add_bos_; }
  [[nodiscard]] PreTokenizer pre_tokenizer() const noexcept { return pre_tokenizer_; }

 private:
  struct Merge {
    std::int32_t rank;
    std::int32_t merged;  // the token that the pair becomes
  };

  BpeTokenizer() = default;
  void add_tokens(const TokenizerParts& parts);
  void add_merges(const TokenizerParts& parts);
  [[nodiscard]] const Merge* find_merge(std::int32_t left, std::int32_t right) const;
  [[nodiscard]] std::int32_t byte_token(char byte) const;
  void encode_words(std::string_view text, std::vector<std::int32_t>& ids) const;
  void encode_word(std::string_view word, std::vector<std::int32_t>& ids) const;

  std::vector<std::string> bytes_;  // by id: what the token stands for
  std::vector<TokenType> types_;
  std::unordered_map<std::string, std::int32_t> ids_;    // by the vocabulary's spelling
  std::unordered_map<std::string, std::int32_t> words_;  // by bytes; only with whole_words_first
  std::unordered_map<std::uint64_t, Merge> merges_;      // by left id and right id
  std::array<std::int32_t, 256> byte_tokens_{};          // kNoToken where the vocabulary has none
  TokenTrie user_defined_;                               // found in every text
  TokenTrie special_;                                    // those and the control tokens
  PreTokenizer pre_tokenizer_ = PreTokenizer::kGpt2;
  std::optional<std::int32_t> bos_;
  std::optional<std::int32_t> eos_;
  std::optional<std::int32_t> unknown_;
  bool add_bos_ = false;
};

}  // namespace octavo::llm
