// SPDX-License-Identifier: Apache-2.0
// The keys tokenizer.ggml.* of a GGUF.
#include <fmt/format.h>

#include <limits>
#include <optional>

#include "llm/file_error.hpp"
#include "llm/gguf_reader.hpp"
#include "llm/tokenizer_source.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

template <typename T>
T require(const GgufFile& file, std::string_view key, std::optional<T> value) {
  if (value) return std::move(*value);
  throw bad_file(file.name(), fmt::format("the key {} is missing", key),
                 "a model with a tokenizer has it", "Convert the model again with its tokenizer");
}

std::optional<std::int32_t> token_id(const GgufFile& file, std::string_view key) {
  const std::optional<std::uint64_t> id = file.uint(key);
  if (!id) return std::nullopt;
  constexpr auto kLargest = static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max());
  if (*id > kLargest) {
    throw bad_file(file.name(), fmt::format("{} is {}", key, *id),
                   fmt::format("token ids are at most {}", kLargest), "Convert the model again");
  }
  return static_cast<std::int32_t>(*id);
}

}  // namespace

TokenizerParts tokenizer_parts_from_gguf(const GgufFile& file) {
  constexpr std::string_view kModel = "tokenizer.ggml.model";
  const std::string model = require(file, kModel, file.string(kModel));
  if (model != "gpt2") {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: {} is {}; only gpt2, byte-level BPE, is known. Use a model with "
                            "such a tokenizer.",
                            file.name(), kModel, printable(model)));
  }
  constexpr std::string_view kTokens = "tokenizer.ggml.tokens";
  constexpr std::string_view kTypes = "tokenizer.ggml.token_type";
  constexpr std::string_view kMerges = "tokenizer.ggml.merges";
  constexpr std::string_view kPre = "tokenizer.ggml.pre";
  TokenizerParts parts;
  parts.source = file.name();
  parts.tokens = require(file, kTokens, file.string_array(kTokens));
  parts.merges = require(file, kMerges, file.string_array(kMerges));
  parts.pre_tokenizer = require(file, kPre, file.string(kPre));
  for (const std::int64_t type : require(file, kTypes, file.int_array(kTypes))) {
    // A type that does not fit becomes 0, which from_parts refuses.
    const bool fits = type > 0 && type <= std::numeric_limits<std::int32_t>::max();
    parts.token_types.push_back(fits ? static_cast<TokenType>(type) : TokenType{0});
  }
  parts.bos = token_id(file, "tokenizer.ggml.bos_token_id");
  parts.eos = token_id(file, "tokenizer.ggml.eos_token_id");
  parts.unknown = token_id(file, "tokenizer.ggml.unknown_token_id");
  parts.add_bos = file.boolean("tokenizer.ggml.add_bos_token").value_or(false);
  // GGUF has no key for it; the only published tokenizers with this rule are Llama 3's.
  parts.whole_words_first = parts.pre_tokenizer == "llama-bpe";
  return parts;
}

}  // namespace octavo::llm
