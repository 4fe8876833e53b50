// SPDX-License-Identifier: Apache-2.0
// Building the tables from untrusted parts is in the first half, encoding in the second. A word is
// merged with a priority queue over a linked list, so a word of n bytes costs O(n log n): text
// without spaces must not take quadratic time.
#include "llm/tokenizer_bpe.hpp"

#include <fmt/format.h>

#include <limits>
#include <queue>
#include <unordered_set>
#include <utility>

#include "llm/byte_alphabet.hpp"
#include "llm/file_error.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

constexpr std::int32_t kNoToken = -1;
// Bounds far above any published vocabulary (about 260,000 tokens), so that ids fit in 32 bits and
// a file of nonsense is refused before memory is spent on it.
constexpr std::size_t kMostTokens = std::size_t{1} << 22;
constexpr std::size_t kMostMerges = std::size_t{1} << 23;
constexpr std::size_t kLongestToken = 4096;
// Tokens matched in raw text are tried at every position, so their length bounds the time.
constexpr std::size_t kLongestSpecialToken = 256;

std::uint64_t pair_key(std::int32_t left, std::int32_t right) {
  constexpr unsigned kIdBits = 32;
  return (static_cast<std::uint64_t>(left) << kIdBits) | static_cast<std::uint32_t>(right);
}

void check_counts(const TokenizerParts& parts) {
  if (parts.tokens.empty() || parts.tokens.size() > kMostTokens) {
    throw bad_file(parts.source, fmt::format("the vocabulary has {} tokens", parts.tokens.size()),
                   fmt::format("between 1 and {} are allowed", kMostTokens),
                   "Use a complete tokenizer file");
  }
  if (parts.token_types.size() != parts.tokens.size()) {
    throw bad_file(parts.source,
                   fmt::format("there are {} token types for {} tokens", parts.token_types.size(),
                               parts.tokens.size()),
                   "every token has one type", "Convert the model again");
  }
  if (parts.merges.size() > kMostMerges) {
    throw bad_file(parts.source, fmt::format("there are {} merges", parts.merges.size()),
                   fmt::format("at most {} are allowed", kMostMerges),
                   "Use a complete tokenizer file");
  }
}

void check_special_id(const TokenizerParts& parts, std::string_view role,
                      std::optional<std::int32_t> id) {
  if (!id || (*id >= 0 && static_cast<std::size_t>(*id) < parts.tokens.size())) return;
  throw bad_file(parts.source, fmt::format("the {} token has id {}", role, *id),
                 fmt::format("ids lie in [0, {})", parts.tokens.size()), "Convert the model again");
}

void check_token(const TokenizerParts& parts, std::size_t id, TokenType type) {
  const std::string& token = parts.tokens[id];
  const bool in_raw_text = type == TokenType::kControl || type == TokenType::kUserDefined;
  const std::size_t longest = in_raw_text ? kLongestSpecialToken : kLongestToken;
  if (token.empty() || token.size() > longest) {
    throw bad_file(parts.source, fmt::format("token {} has {} bytes", id, token.size()),
                   fmt::format("a token of its type has between 1 and {} bytes", longest),
                   "Convert the model again");
  }
  if (type < TokenType::kNormal || type > TokenType::kUnused) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("{}: token {} ({}) has type {}; a byte-level BPE vocabulary has the "
                            "types 1 to 5. Use a model whose tokenizer.ggml.model is gpt2.",
                            parts.source, id, printable(token), static_cast<std::int32_t>(type)));
  }
}

}  // namespace

BpeTokenizer BpeTokenizer::from_parts(const TokenizerParts& parts) {
  check_counts(parts);
  check_special_id(parts, "bos", parts.bos);
  check_special_id(parts, "eos", parts.eos);
  check_special_id(parts, "unknown", parts.unknown);
  if (parts.add_bos && !parts.bos) {
    throw bad_file(parts.source, "bos is to be added but has no id",
                   "a tokenizer that adds a token names it", "Convert the model again");
  }
  BpeTokenizer tokenizer;
  tokenizer.pre_tokenizer_ = pre_tokenizer_from_name(parts.pre_tokenizer);
  tokenizer.bos_ = parts.bos;
  tokenizer.eos_ = parts.eos;
  tokenizer.unknown_ = parts.unknown;
  tokenizer.add_bos_ = parts.add_bos;
  tokenizer.add_tokens(parts);
  tokenizer.add_merges(parts);
  return tokenizer;
}

void BpeTokenizer::add_tokens(const TokenizerParts& parts) {
  byte_tokens_.fill(kNoToken);
  bytes_.reserve(parts.tokens.size());
  ids_.reserve(parts.tokens.size());
  types_ = parts.token_types;
  for (std::size_t index = 0; index < parts.tokens.size(); ++index) {
    const std::string& token = parts.tokens[index];
    const TokenType type = types_[index];
    check_token(parts, index, type);
    const auto id = static_cast<std::int32_t>(index);
    const auto [known, added] = ids_.emplace(token, id);
    if (!added) {
      throw bad_file(
          parts.source,
          fmt::format("tokens {} and {} are both {}", known->second, id, printable(token)),
          "a token has one id", "Convert the model again");
    }
    // A token outside the alphabet stands for its own bytes; no merge can ever make it.
    const std::optional<std::string> mapped =
        type == TokenType::kNormal ? bytes_from_alphabet(token) : std::nullopt;
    bytes_.push_back(mapped.value_or(token));
    if (mapped && mapped->size() == 1)
      byte_tokens_[static_cast<unsigned char>(mapped->front())] = id;
    if (mapped && parts.whole_words_first) words_.emplace(*mapped, id);
    if (type == TokenType::kUserDefined) user_defined_.add(token, id);
    if (type == TokenType::kUserDefined || type == TokenType::kControl) special_.add(token, id);
  }
}

void BpeTokenizer::add_merges(const TokenizerParts& parts) {
  merges_.reserve(parts.merges.size());
  for (std::size_t rank = 0; rank < parts.merges.size(); ++rank) {
    const std::string& merge = parts.merges[rank];
    const std::size_t space = merge.find(' ');
    if (space == std::string::npos || merge.find(' ', space + 1) != std::string::npos) {
      throw bad_file(parts.source, fmt::format("merge {} is {}", rank, printable(merge)),
                     "a merge is two tokens with one space between", "Convert the model again");
    }
    const std::string left = merge.substr(0, space);
    const std::string right = merge.substr(space + 1);
    const std::optional<std::int32_t> left_id = find(left);
    const std::optional<std::int32_t> right_id = find(right);
    const std::optional<std::int32_t> merged_id = find(left + right);
    if (!left_id || !right_id || !merged_id) {
      const std::string& missing = !left_id ? left : !right_id ? right : left + right;
      throw bad_file(parts.source,
                     fmt::format("merge {} is {}, but {} is not in the vocabulary", rank,
                                 printable(merge), printable(missing)),
                     "both tokens of a merge and what they make are tokens",
                     "Convert the model again");
    }
    const auto [known, added] = merges_.emplace(pair_key(*left_id, *right_id),
                                                Merge{static_cast<std::int32_t>(rank), *merged_id});
    if (!added) {
      throw bad_file(
          parts.source,
          fmt::format("merges {} and {} are both {}", known->second.rank, rank, printable(merge)),
          "a merge has one rank", "Convert the model again");
    }
  }
}

std::vector<std::int32_t> BpeTokenizer::encode(std::string_view text, SpecialTokens special) const {
  const TokenTrie& raw_tokens = special == SpecialTokens::kParse ? special_ : user_defined_;
  std::vector<std::int32_t> ids;
  std::size_t at = 0;
  while (const std::optional<TokenTrie::Found> found = raw_tokens.find_next(text, at)) {
    encode_words(text.substr(at, found->position - at), ids);
    ids.push_back(found->id);
    at = found->position + found->length;
  }
  encode_words(text.substr(at), ids);
  return ids;
}

void BpeTokenizer::encode_words(std::string_view text, std::vector<std::int32_t>& ids) const {
  for (const std::string_view word : pre_tokenize(pre_tokenizer_, text)) encode_word(word, ids);
}

void BpeTokenizer::encode_word(std::string_view word, std::vector<std::int32_t>& ids) const {
  if (!words_.empty()) {
    const auto whole = words_.find(std::string(word));
    if (whole != words_.end()) {
      ids.push_back(whole->second);
      return;
    }
  }
  // A symbol is a token so far; merging a pair keeps the left symbol and unlinks the right one.
  struct Symbol {
    std::int32_t id;
    std::size_t previous;
    std::size_t next;
  };
  struct Candidate {
    std::int32_t rank;
    std::size_t left;
    std::size_t right;
    std::int32_t left_id;  // as they were when the pair was seen: it is stale if they changed
    std::int32_t right_id;
    std::int32_t merged;

    bool operator<(const Candidate& other) const {  // the lowest rank, then the leftmost, on top
      return std::pair(rank, left) > std::pair(other.rank, other.left);
    }
  };
  constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();

  std::vector<Symbol> symbols;
  symbols.reserve(word.size());
  for (std::size_t i = 0; i < word.size(); ++i) {
    symbols.push_back(
        {byte_token(word[i]), i == 0 ? kNone : i - 1, i + 1 == word.size() ? kNone : i + 1});
  }
  std::priority_queue<Candidate> candidates;
  const auto consider = [&](std::size_t left, std::size_t right) {
    if (left == kNone || right == kNone) return;
    const std::int32_t left_id = symbols[left].id;
    const std::int32_t right_id = symbols[right].id;
    if (const Merge* merge = find_merge(left_id, right_id)) {
      candidates.push({merge->rank, left, right, left_id, right_id, merge->merged});
    }
  };
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) consider(i, i + 1);

  while (!candidates.empty()) {
    const Candidate best = candidates.top();
    candidates.pop();
    Symbol& left = symbols[best.left];
    Symbol& right = symbols[best.right];
    if (left.id != best.left_id || right.id != best.right_id || left.next != best.right) continue;
    left.id = best.merged;
    left.next = right.next;
    right.id = kNoToken;
    if (left.next != kNone) symbols[left.next].previous = best.left;
    consider(left.previous, best.left);
    consider(best.left, left.next);
  }
  for (std::size_t i = symbols.empty() ? kNone : 0; i != kNone; i = symbols[i].next) {
    ids.push_back(symbols[i].id);
  }
}

const BpeTokenizer::Merge* BpeTokenizer::find_merge(std::int32_t left, std::int32_t right) const {
  const auto found = merges_.find(pair_key(left, right));
  return found == merges_.end() ? nullptr : &found->second;
}

std::int32_t BpeTokenizer::byte_token(char byte) const {
  const auto value = static_cast<unsigned char>(byte);
  if (byte_tokens_[value] != kNoToken) return byte_tokens_[value];
  if (unknown_) return *unknown_;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("encode: text has the byte 0x{:02X}; this vocabulary has no token for it "
                          "and no unknown token. Remove the byte from the text.",
                          value));
}

std::string BpeTokenizer::decode(std::span<const std::int32_t> ids) const {
  std::string text;
  for (const std::int32_t id : ids) text.append(token_bytes(id));
  return text;
}

std::string_view BpeTokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("decode: token id {}; ids of this vocabulary lie in [0, {}). Use the "
                            "tokenizer that belongs to the model.",
                            id, vocab_size()));
  }
  return bytes_[static_cast<std::size_t>(id)];
}

TokenType BpeTokenizer::token_type(std::int32_t id) const {
  (void)token_bytes(id);  // checks the id
  return types_[static_cast<std::size_t>(id)];
}

std::optional<std::int32_t> BpeTokenizer::find(std::string_view token) const {
  const auto found = ids_.find(std::string(token));
  if (found == ids_.end()) return std::nullopt;
  return found->second;
}

}  // namespace octavo::llm
