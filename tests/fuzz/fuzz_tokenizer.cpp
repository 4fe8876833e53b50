// SPDX-License-Identifier: Apache-2.0
// Feeds bytes to the tokenizer in both of its untrusted roles: as a tokenizer.json, and as text for
// a small fixed vocabulary. Anything but octavo::Error, or a text that does not come back from
// decode(encode(text)), is a defect.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "llm/tokenizer_bpe.hpp"
#include "llm/tokenizer_source.hpp"
#include "llm/utf8_stream.hpp"
#include "octavo/error.hpp"

namespace {

using octavo::llm::BpeTokenizer;
using octavo::llm::SpecialTokens;
using octavo::llm::TokenizerParts;
using octavo::llm::TokenType;

constexpr int kNumBytes = 256;
constexpr std::size_t kMostTextBytes = 4096;  // of a vocabulary that was just read

// The character of GPT-2's alphabet for a byte, written here from its definition.
std::string alphabet_character(int byte, int& moved) {
  const bool itself = (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte != 0xAD);
  const int code_point = itself ? byte : kNumBytes + moved++;
  if (code_point < 0x80) return {static_cast<char>(code_point)};
  return {static_cast<char>(0xC0 | (code_point >> 6)),
          static_cast<char>(0x80 | (code_point & 0x3F))};
}

BpeTokenizer small_tokenizer(std::string_view pre_tokenizer) {
  TokenizerParts parts;
  parts.source = "fuzz";
  parts.pre_tokenizer = pre_tokenizer;
  int moved = 0;
  for (int byte = 0; byte < kNumBytes; ++byte) {
    parts.tokens.push_back(alphabet_character(byte, moved));
  }
  for (const char* merge : {"a b", "ab ab", "e r", "\u0120 a", "1 1", "\u0120 \u0120"}) {
    const std::string text = merge;
    const std::size_t space = text.find(' ');
    parts.merges.push_back(text);
    parts.tokens.push_back(text.substr(0, space) + text.substr(space + 1));
  }
  parts.token_types.assign(parts.tokens.size(), TokenType::kNormal);
  for (const char* token : {"<|im_start|>", "<|im_end|>", "<|im"}) {
    parts.tokens.emplace_back(token);
    parts.token_types.push_back(TokenType::kControl);
  }
  return BpeTokenizer::from_parts(parts);
}

void encode_and_back(const BpeTokenizer& tokenizer, std::string_view text) {
  for (const SpecialTokens special : {SpecialTokens::kParse, SpecialTokens::kAsText}) {
    const std::vector<std::int32_t> ids = tokenizer.encode(text, special);
    if (tokenizer.decode(ids) != text) std::abort();
    octavo::llm::Utf8Stream stream;
    std::string streamed;
    for (const std::int32_t id : ids) streamed += stream.push(tokenizer.token_bytes(id));
    streamed += stream.finish();
    octavo::llm::Utf8Stream whole;
    std::string expected = whole.push(text);
    expected += whole.finish();
    if (streamed != expected) std::abort();
  }
}

void read_as_json(std::string_view bytes) {
  try {
    const BpeTokenizer tokenizer =
        BpeTokenizer::from_parts(octavo::llm::tokenizer_parts_from_json(bytes, "fuzz"));
    // Any text is encoded or refused; what became the unknown token does not come back.
    (void)tokenizer.decode(
        tokenizer.encode(bytes.substr(0, kMostTextBytes), SpecialTokens::kParse));
  } catch (const octavo::Error&) {
    return;
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  static const std::vector<BpeTokenizer> kTokenizers = {
      small_tokenizer("gpt-2"), small_tokenizer("smollm"), small_tokenizer("llama-bpe")};
  encode_and_back(kTokenizers[size % kTokenizers.size()],
                  bytes);  // one in turn: three times the runs
  read_as_json(bytes);
  return 0;
}
