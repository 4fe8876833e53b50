// SPDX-License-Identifier: Apache-2.0
#include "name_effect/ptx_tokens.hpp"

#include <fmt/format.h>

#include <optional>
#include <string>

namespace octavo {
namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 30U;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); }
bool is_follow(char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '$'; }
bool is_space(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }
bool is_punctuation(char c) {
  return std::string_view("()[]{},;:@!+-*/%<>=&|^~?").find(c) != std::string_view::npos;
}

std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return byte > ' ' && byte < 0x7F ? fmt::format("'{}'", c) : fmt::format("byte 0x{:02x}", byte);
}

class Tokenizer {
 public:
  Tokenizer(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Result<std::vector<PtxToken>> run() {
    while (at_ < text_.size()) {
      if (const std::optional<Error> error = step()) return *error;
    }
    return std::move(tokens_);
  }

 private:
  [[nodiscard]] char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }

  void advance(std::size_t count) {
    for (; count > 0; --count, ++at_) {
      if (text_[at_] != '\n') continue;
      ++line_;
      line_begin_ = at_ + 1;
    }
  }

  [[nodiscard]] std::uint32_t column() const {
    return static_cast<std::uint32_t>(at_ - line_begin_ + 1);
  }
  [[nodiscard]] Error fail(std::string_view what) const {
    return ptx_error(file_, line_, column(), what);
  }

  void add(PtxTokenKind kind, std::size_t length) {
    tokens_.push_back({kind, line_, column(), text_.substr(at_, length)});
    advance(length);
  }

  // How many of the next characters belong to a word, from `length` of them on.
  [[nodiscard]] std::size_t word_length(std::size_t length) const {
    while (at_ + length < text_.size() && is_follow(text_[at_ + length])) ++length;
    return length;
  }

  std::optional<Error> step() {
    const char c = peek();
    if (is_space(c)) {
      advance(1);
    } else if ((c == '/' && peek(1) == '/') || (c == '#' && begins_line())) {
      skip_line();
    } else if (c == '/' && peek(1) == '*') {
      const std::size_t end = text_.find("*/", at_ + 2);
      if (end == std::string_view::npos) return fail("this comment has no end");
      advance(end + 2 - at_);
    } else if (c == '"') {
      return string();
    } else if (is_digit(c)) {
      add(PtxTokenKind::kNumber, number_length());
    } else if (is_letter(c) || c == '_' || ((c == '$' || c == '%') && is_follow(peek(1)))) {
      add(PtxTokenKind::kIdentifier, word_length(1));
    } else if (c == '.' && is_follow(peek(1))) {
      add(PtxTokenKind::kDirective, word_length(1));
    } else if (is_punctuation(c)) {
      add(PtxTokenKind::kPunctuation, 1);
    } else {
      return fail(fmt::format("{} is no part of PTX", shown(c)));
    }
    return std::nullopt;
  }

  [[nodiscard]] bool begins_line() const {
    return text_.substr(line_begin_, at_ - line_begin_).find_first_not_of(" \t") ==
           std::string_view::npos;
  }

  void skip_line() {
    const std::size_t end = text_.find('\n', at_);
    advance((end == std::string_view::npos ? text_.size() : end) - at_);
  }

  std::optional<Error> string() {
    std::size_t length = 1;
    while (at_ + length < text_.size() && text_[at_ + length] != '"') {
      if (text_[at_ + length] == '\n') break;
      length += text_[at_ + length] == '\\' ? 2 : 1;
    }
    if (at_ + length >= text_.size() || text_[at_ + length] != '"') {
      return fail("this string has no end in its line");
    }
    add(PtxTokenKind::kString, length + 1);
    return std::nullopt;
  }

  // Decimal, hexadecimal, octal, binary with a U at the end; 0f and 0d with hexadecimal digits;
  // 1.5e-3.
  [[nodiscard]] std::size_t number_length() const {
    std::size_t length = word_length(1);
    if (peek() == '0' && is_letter(peek(1))) return length;
    if (peek(length) == '.' && is_digit(peek(length + 1))) length = word_length(length + 1);
    const char last = peek(length - 1);
    if ((last == 'e' || last == 'E') && (peek(length) == '-' || peek(length) == '+') &&
        is_digit(peek(length + 1))) {
      length = word_length(length + 1);
    }
    return length;
  }

  std::string_view text_;
  std::string_view file_;
  std::vector<PtxToken> tokens_;
  std::size_t at_ = 0;
  std::size_t line_begin_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace

Error ptx_error(std::string_view file, std::uint32_t line, std::uint32_t column,
                std::string_view what) {
  return {ErrorCode::kBadFile,
          fmt::format("{}:{}:{}: {}. Give PTX as a compiler wrote it.", file, line, column, what)};
}

Result<std::vector<PtxToken>> tokenize_ptx(std::string_view text, std::string_view file) {
  if (text.size() > kMaxBytes) {
    return Error(ErrorCode::kBadFile,
                 fmt::format("{}: {} bytes; PTX of at most {} is read. Give smaller modules.", file,
                             text.size(), kMaxBytes));
  }
  return Tokenizer(text, file).run();
}

}  // namespace octavo
