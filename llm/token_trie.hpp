// SPDX-License-Identifier: Apache-2.0
// Finds the tokens that are matched in raw text, before any word is cut: the longest one that
// begins at a position. A trie of bytes, so the time per position is bounded by the longest token.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace octavo::llm {

class TokenTrie {
 public:
  struct Found {
    std::size_t position;
    std::size_t length;
    std::int32_t id;
  };

  // `token` must not be empty.
  void add(std::string_view token, std::int32_t id);

  // The first position at or after `from` where a token begins, and the longest token there.
  [[nodiscard]] std::optional<Found> find_next(std::string_view text, std::size_t from) const;

 private:
  std::unordered_map<std::uint64_t, std::uint32_t> children_;  // by node * 256 + byte
  std::vector<std::int32_t> node_ids_{kNoId};                  // by node; the root is 0
  static constexpr std::int32_t kNoId = -1;
};

}  // namespace octavo::llm
