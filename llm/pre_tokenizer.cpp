// SPDX-License-Identifier: Apache-2.0
// The scanners. Each `match_*` tries one alternative of the regular expression at a position and
// returns the end of the match, or the position itself when it does not match; alternatives are
// tried in the order of the expression, as a backtracking engine would.
#include "llm/pre_tokenizer.hpp"

#include <utf8proc.h>

#include <array>
#include <cstddef>
#include <cstdint>

#include "llm/file_error.hpp"
#include "llm/utf8.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

enum class CharClass { kLetter, kNumber, kSpace, kOther };

constexpr std::int32_t kNotUtf8 = -1;
constexpr std::int32_t kLongS = 0x17F;  // U+017F folds to "s" when case is ignored
constexpr std::size_t kDigitsPerWord = 3;

bool is_white_space(std::int32_t c) {  // the Unicode property White_Space, which \s means
  if (c <= 0x20) return c == 0x20 || (c >= 0x09 && c <= 0x0D);
  if (c < 0x1680) return c == 0x85 || c == 0xA0;
  return c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F ||
         c == 0x205F || c == 0x3000;
}

CharClass classify(std::int32_t c) {
  if (c == kNotUtf8) return CharClass::kOther;
  if (is_white_space(c)) return CharClass::kSpace;
  switch (utf8proc_category(c)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return CharClass::kLetter;
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO: return CharClass::kNumber;
    default: return CharClass::kOther;
  }
}

struct Char {
  std::int32_t code_point;
  CharClass char_class;
  std::size_t length;  // 0 past the end, where the class is kSpace: nothing continues there
};

// Text with character access by byte position.
class Scanner {
 public:
  explicit Scanner(std::string_view text) : text_(text) {}

  [[nodiscard]] std::size_t size() const { return text_.size(); }
  [[nodiscard]] std::string_view word(std::size_t begin, std::size_t end) const {
    return text_.substr(begin, end - begin);
  }

  [[nodiscard]] Char at(std::size_t position) const {
    if (position >= text_.size()) return {kNotUtf8, CharClass::kSpace, 0};
    const Utf8Step step = read_utf8(text_.substr(position));
    if (step.kind != Utf8Kind::kCodePoint) return {kNotUtf8, CharClass::kOther, 1};
    return {step.code_point, classify(step.code_point), step.length};
  }

  // The end of the longest run of `wanted` characters that begins at `position`.
  [[nodiscard]] std::size_t run(std::size_t position, CharClass wanted) const {
    for (;;) {
      const Char c = at(position);
      if (c.length == 0 || c.char_class != wanted) return position;
      position += c.length;
    }
  }

 private:
  std::string_view text_;
};

bool is_newline(const Char& c) { return c.code_point == '\r' || c.code_point == '\n'; }

enum class Case { kAsWritten, kIgnored };

std::int32_t folded(std::int32_t c, Case letter_case) {
  if (letter_case == Case::kAsWritten) return c;
  if (c >= 'A' && c <= 'Z') return c - 'A' + 'a';
  return c == kLongS ? 's' : c;
}

// 's 't 're 've 'm 'll 'd
std::size_t match_contraction(const Scanner& text, std::size_t at, Case letter_case) {
  static constexpr std::array<std::string_view, 7> kEndings = {"s", "t",  "re", "ve",
                                                               "m", "ll", "d"};
  if (text.at(at).code_point != '\'') return at;
  for (const std::string_view ending : kEndings) {
    std::size_t end = at + 1;
    bool matches = true;
    for (const char letter : ending) {
      const Char c = text.at(end);
      matches = matches && c.length != 0 && folded(c.code_point, letter_case) == letter;
      end += c.length;
    }
    if (matches) return end;
  }
  return at;
}

// ` ?X+` for a character class X
std::size_t match_spaced_run(const Scanner& text, std::size_t at, CharClass wanted) {
  const std::size_t begin = text.at(at).code_point == ' ' ? at + 1 : at;
  const std::size_t end = text.run(begin, wanted);
  return end == begin ? at : end;
}

// `\s+(?!\S)|\s+`: a run of spaces leaves its last one to the word that follows.
std::size_t match_spaces(const Scanner& text, std::size_t at) {
  std::size_t last = at;  // where the last space of the run begins
  std::size_t end = at;
  for (Char c = text.at(at); c.length != 0 && c.char_class == CharClass::kSpace; c = text.at(end)) {
    last = end;
    end += c.length;
  }
  return end == text.size() || last == at ? end : last;
}

std::size_t match_gpt2(const Scanner& text, std::size_t at) {
  std::size_t end = match_contraction(text, at, Case::kAsWritten);
  if (end == at) end = match_spaced_run(text, at, CharClass::kLetter);
  if (end == at) end = match_spaced_run(text, at, CharClass::kNumber);
  if (end == at) end = match_spaced_run(text, at, CharClass::kOther);
  if (end == at) end = match_spaces(text, at);
  return end;
}

// `[^\r\n\p{L}\p{N}]?\p{L}+`
std::size_t match_llama_letters(const Scanner& text, std::size_t at) {
  const Char first = text.at(at);
  const bool joins = first.char_class == CharClass::kSpace || first.char_class == CharClass::kOther;
  const std::size_t begin = joins && !is_newline(first) ? at + first.length : at;
  const std::size_t end = text.run(begin, CharClass::kLetter);
  return end == begin ? at : end;
}

// `\p{N}{1,3}`
std::size_t match_llama_numbers(const Scanner& text, std::size_t at) {
  std::size_t end = at;
  for (std::size_t digits = 0; digits < kDigitsPerWord; ++digits) {
    const Char c = text.at(end);
    if (c.char_class != CharClass::kNumber) break;
    end += c.length;
  }
  return end;
}

// ` ?[^\s\p{L}\p{N}]+[\r\n]*`
std::size_t match_llama_symbols(const Scanner& text, std::size_t at) {
  std::size_t end = match_spaced_run(text, at, CharClass::kOther);
  if (end == at) return at;
  while (is_newline(text.at(end))) ++end;
  return end;
}

// `\s*[\r\n]+`: through the last line break of a run of spaces.
std::size_t match_llama_newlines(const Scanner& text, std::size_t at) {
  std::size_t end = at;
  std::size_t position = at;
  for (Char c = text.at(at); c.length != 0 && c.char_class == CharClass::kSpace;
       c = text.at(position)) {
    position += c.length;
    if (is_newline(c)) end = position;
  }
  return end;
}

std::size_t match_llama(const Scanner& text, std::size_t at) {
  std::size_t end = match_contraction(text, at, Case::kIgnored);
  if (end == at) end = match_llama_letters(text, at);
  if (end == at) end = match_llama_numbers(text, at);
  if (end == at) end = match_llama_symbols(text, at);
  if (end == at) end = match_llama_newlines(text, at);
  if (end == at) end = match_spaces(text, at);
  return end;
}

using Match = std::size_t (*)(const Scanner&, std::size_t);

void append_words(Match match, std::string_view text, std::vector<std::string_view>& words) {
  const Scanner scanner(text);
  std::size_t at = 0;
  while (at < text.size()) {
    const std::size_t end = match(scanner, at);
    // Every character is a letter, a number, a space or another, so some alternative matched.
    if (end <= at) throw Error(ErrorCode::kInternal, "pre_tokenize: no alternative matched");
    words.push_back(scanner.word(at, end));
    at = end;
  }
}

void append_smollm_words(std::string_view text, std::vector<std::string_view>& words) {
  const Scanner scanner(text);
  std::size_t between = 0;  // where the text since the last number begins
  std::size_t at = 0;
  while (at < text.size()) {
    const Char c = scanner.at(at);
    if (c.char_class == CharClass::kNumber) {
      append_words(match_gpt2, scanner.word(between, at), words);
      words.push_back(scanner.word(at, at + c.length));
      between = at + c.length;
    }
    at += c.length;
  }
  append_words(match_gpt2, scanner.word(between, text.size()), words);
}

}  // namespace

PreTokenizer pre_tokenizer_from_name(std::string_view name) {
  if (name == "gpt-2") return PreTokenizer::kGpt2;
  if (name == "smollm") return PreTokenizer::kSmollm;
  if (name == "llama-bpe") return PreTokenizer::kLlamaBpe;
  throw Error(ErrorCode::kUnsupported,
              "tokenizer: pre-tokenizer " + printable(name) +
                  "; only \"gpt-2\", \"smollm\" and \"llama-bpe\" are known, and another would cut "
                  "words where the model does not expect it. Use a model with one of these.");
}

std::vector<std::string_view> pre_tokenize(PreTokenizer kind, std::string_view text) {
  std::vector<std::string_view> words;
  switch (kind) {
    case PreTokenizer::kGpt2: append_words(match_gpt2, text, words); break;
    case PreTokenizer::kSmollm: append_smollm_words(text, words); break;
    case PreTokenizer::kLlamaBpe: append_words(match_llama, text, words); break;
  }
  return words;
}

}  // namespace octavo::llm
