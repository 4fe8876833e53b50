// SPDX-License-Identifier: Apache-2.0
// Cuts text into the words that byte-pair merges never cross. Each pre-tokenizer is a regular
// expression in its model's files; here it is a scanner over Unicode categories, so no regex engine
// is needed and the time is linear. Merging the bytes of a word is in tokenizer_bpe.hpp.
#pragma once

#include <string_view>
#include <vector>

namespace octavo::llm {

enum class PreTokenizer {
  // 's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
  kGpt2,
  // Every \p{N} alone first; then kGpt2 on what lies between them.
  kSmollm,
  // (?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*
  // |\s*[\r\n]+|\s+(?!\S)|\s+
  kLlamaBpe,
};

// The name as GGUF's tokenizer.ggml.pre has it: "gpt-2", "smollm", "llama-bpe". Any other is an
// Error (kUnsupported) that names it: a wrong pre-tokenizer gives a model quietly worse text.
[[nodiscard]] PreTokenizer pre_tokenizer_from_name(std::string_view name);

// The words of `text`, in order; together they are exactly `text`. A byte that is not UTF-8 counts
// as one character that is neither a letter, a number nor a space.
// NOTE: categories are those of utf8proc's Unicode version; a character that Unicode added later
// is none of the three.
[[nodiscard]] std::vector<std::string_view> pre_tokenize(PreTokenizer kind, std::string_view text);

}  // namespace octavo::llm
