// SPDX-License-Identifier: Apache-2.0
#include "llm/token_trie.hpp"

namespace octavo::llm {
namespace {

constexpr std::uint64_t kBytesPerNode = 256;

std::uint64_t edge(std::uint32_t node, char byte) {
  return node * kBytesPerNode + static_cast<unsigned char>(byte);
}

}  // namespace

void TokenTrie::add(std::string_view token, std::int32_t id) {
  std::uint32_t node = 0;
  for (const char byte : token) {
    const auto next = static_cast<std::uint32_t>(node_ids_.size());
    const auto [child, added] = children_.try_emplace(edge(node, byte), next);
    if (added) node_ids_.push_back(kNoId);
    node = child->second;
  }
  node_ids_[node] = id;
}

std::optional<TokenTrie::Found> TokenTrie::find_next(std::string_view text,
                                                     std::size_t from) const {
  if (children_.empty()) return std::nullopt;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    std::optional<Found> longest;
    std::uint32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      const auto child = children_.find(edge(node, text[at]));
      if (child == children_.end()) break;
      node = child->second;
      if (node_ids_[node] != kNoId) longest = Found{begin, at + 1 - begin, node_ids_[node]};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

}  // namespace octavo::llm
