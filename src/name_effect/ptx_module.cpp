// SPDX-License-Identifier: Apache-2.0
#include "name_effect/ptx_module.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace octavo {
namespace {

bool is(const PtxToken& token, std::string_view text) { return token.text == text; }

// A token's text as a message quotes it.
std::string quoted(const PtxToken& token) {
  constexpr std::size_t kMost = 40;
  std::string text(token.text.substr(0, kMost));
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return fmt::format("\"{}{}\"", text, token.text.size() > kMost ? "..." : "");
}

// Of the types that a parameter can have; 0 for other directives.
std::size_t bytes_of_type(std::string_view type) {
  for (const auto& [name, bytes] : {std::pair<std::string_view, std::size_t>{".b8", 1},
                                    {".u8", 1},
                                    {".s8", 1},
                                    {".b16", 2},
                                    {".u16", 2},
                                    {".s16", 2},
                                    {".f16", 2},
                                    {".bf16", 2},
                                    {".b32", 4},
                                    {".u32", 4},
                                    {".s32", 4},
                                    {".f32", 4},
                                    {".f16x2", 4},
                                    {".bf16x2", 4},
                                    {".b64", 8},
                                    {".u64", 8},
                                    {".s64", 8},
                                    {".f64", 8},
                                    {".b128", 16},
                                    {".texref", 8},
                                    {".samplerref", 8},
                                    {".surfref", 8}}) {
    if (type == name) return bytes;
  }
  return 0;
}

char closing_of(char open) { return open == '(' ? ')' : open == '[' ? ']' : '}'; }

class ModuleReader {
 public:
  ModuleReader(std::span<const PtxToken> tokens, std::string_view file)
      : tokens_(tokens), file_(file) {}

  Result<PtxModule> run() {
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      if (std::optional<Error> error = take(i)) return *error;
    }
    if (!open_.empty()) {
      return fail(*open_.back(), fmt::format("this {} is never closed", open_.back()->text));
    }
    if (entry_ != nullptr) return fail(*entry_, "this entry has no body");
    if (module_.target.empty()) return end_error("the module has no .version and .target");
    return std::move(module_);
  }

 private:
  [[nodiscard]] Error fail(const PtxToken& token, std::string_view what) const {
    return ptx_error(file_, token.line, token.column, what);
  }
  [[nodiscard]] Error end_error(std::string_view what) const {
    return tokens_.empty() ? ptx_error(file_, 1, 1, what) : fail(tokens_.back(), what);
  }

  // The token behind this one, of that kind.
  Result<const PtxToken*> after(std::size_t i, PtxTokenKind kind, std::string_view what) const {
    if (i + 1 >= tokens_.size()) {
      return fail(tokens_[i], fmt::format("{} must follow, and the file ends", what));
    }
    if (tokens_[i + 1].kind != kind) {
      return fail(tokens_[i + 1], fmt::format("{} follows {}; {} must", quoted(tokens_[i + 1]),
                                              tokens_[i].text, what));
    }
    return &tokens_[i + 1];
  }

  std::optional<Error> take(std::size_t i) {
    const PtxToken& token = tokens_[i];
    if (token.kind == PtxTokenKind::kPunctuation) return take_bracket(token);
    if (!open_.empty()) {
      if (entry_ != nullptr && is(*open_.front(), "(")) take_parameter(token);
      return std::nullopt;
    }
    if (is(token, ".pragma")) in_pragma_ = true;
    if (module_.version.empty()) {
      if (!is(token, ".version")) return fail(token, "a module begins with .version");
      const auto version = after(i, PtxTokenKind::kNumber, "a number");
      if (!version.ok()) return version.error();
      module_.version = version.value()->text;
    } else if (is(token, ".target") && module_.target.empty()) {
      const auto target = after(i, PtxTokenKind::kIdentifier, "an architecture such as sm_90a");
      if (!target.ok()) return target.error();
      module_.target = target.value()->text;
    } else if (is(token, ".entry")) {
      if (module_.target.empty()) return fail(token, ".target must come before the first entry");
      if (entry_ != nullptr) return fail(*entry_, "this entry has no body");
      const auto name = after(i, PtxTokenKind::kIdentifier, "a name");
      if (!name.ok()) return name.error();
      if (name.value()->text.front() == '%') {
        return fail(*name.value(), "names with a % are of registers, not of entries");
      }
      entry_ = name.value();
      parameter_bytes_.clear();
    }
    return std::nullopt;
  }

  std::optional<Error> take_bracket(const PtxToken& token) {
    const char c = token.text.front();
    if (c == '(' || c == '[' || c == '{') {
      // A body, of the entry whose head has just ended.
      if (c == '{' && open_.empty() && entry_ != nullptr) {
        if (std::optional<Error> error = add_entry()) return error;
      }
      open_.push_back(&token);
    } else if (c == ')' || c == ']' || c == '}') {
      if (open_.empty()) return fail(token, fmt::format("this {} closes nothing", c));
      const char wanted = closing_of(open_.back()->text.front());
      if (c != wanted) {
        return fail(token, fmt::format("{} stands here where {} would close line {}", c, wanted,
                                       open_.back()->line));
      }
      open_.pop_back();
    } else if (c == ';' && open_.empty()) {
      if (!in_pragma_) entry_ = nullptr;  // it was declared only
      in_pragma_ = false;
    }
    return std::nullopt;
  }

  // ".param .align 64 .b8 name[128]", word by word.
  void take_parameter(const PtxToken& token) {
    if (open_.size() == 1 && is(token, ".param")) {
      parameter_bytes_.push_back(0);
    } else if (parameter_bytes_.empty()) {
      return;
    } else if (open_.size() == 1 && token.kind == PtxTokenKind::kDirective) {
      if (const std::size_t bytes = bytes_of_type(token.text)) parameter_bytes_.back() = bytes;
    } else if (open_.size() == 2 && token.kind == PtxTokenKind::kNumber) {
      std::uint32_t count = 0;
      const char* end = token.text.data() + token.text.size();
      const auto [stop, status] = std::from_chars(token.text.data(), end, count);
      parameter_bytes_.back() *= status == std::errc() && stop == end ? count : 0;
    }
  }

  std::optional<Error> add_entry() {
    if (!defined_.insert(entry_->text).second) {
      return fail(*entry_, fmt::format("entry {} is defined a second time", quoted(*entry_)));
    }
    module_.entries.push_back(
        {std::string(entry_->text), entry_->line, entry_->column, parameter_bytes_});
    entry_ = nullptr;
    return std::nullopt;
  }

  std::span<const PtxToken> tokens_;
  std::string_view file_;
  PtxModule module_;
  std::vector<const PtxToken*> open_;
  const PtxToken* entry_ = nullptr;  // whose body has not begun
  std::vector<std::size_t> parameter_bytes_;
  bool in_pragma_ = false;
  std::set<std::string_view> defined_;
};

std::set<std::string_view> identifiers_of(std::span<const PtxToken> tokens) {
  std::set<std::string_view> names;
  for (const PtxToken& token : tokens) {
    if (token.kind == PtxTokenKind::kIdentifier) names.insert(token.text);
  }
  return names;
}

template <typename Candidate>
std::vector<Renaming> rename_entries(const PtxModule& module, std::span<const PtxToken> tokens,
                                     bool of_those_with_word, const Candidate& candidate) {
  const std::set<std::string_view> taken = identifiers_of(tokens);
  std::set<std::string> given;
  std::vector<Renaming> renamings;
  for (const PtxEntry& entry : module.entries) {
    if (has_name_word(entry.name) != of_those_with_word) continue;
    for (std::size_t i = 0;; ++i) {
      std::string name = candidate(entry.name, i);
      if (taken.count(name) != 0 || !given.insert(name).second) continue;
      renamings.push_back({entry.name, std::move(name)});
      break;
    }
  }
  return renamings;
}

// Follows a module's statements and says which tokens are no symbols, whatever they are spelled
// like: instructions, what .target names, and what .pragma and .file say to others.
class SymbolFilter {
 public:
  // Of every token in turn; `next`: the one behind it, or null.
  bool may_be_symbol(const PtxToken& token, const PtxToken* next) {
    if (token.kind == PtxTokenKind::kDirective) {
      directive_ = token.text;
      begins_ = is_guard_ = false;
      return false;
    }
    if (token.kind == PtxTokenKind::kPunctuation) {
      take(token.text.front());
      return false;
    }
    const bool is_label = next != nullptr && is(*next, ":");
    const bool is_instruction = begins_ && in_body_ > 0 && !is_label;
    if (is_guard_) {  // its predicate; the instruction follows
      is_guard_ = false;
      return false;
    }
    begins_ = false;
    if (is_instruction) return false;
    return directive_ != ".target" && !(token.kind == PtxTokenKind::kString &&
                                        (directive_ == ".pragma" || directive_ == ".file"));
  }

 private:
  void take(char c) {
    if (c == '{') ++in_body_;
    if (c == '}' && in_body_ > 0) --in_body_;
    if (c == '{' || c == '}' || c == ';' || c == ':') {
      begins_ = true;
      directive_ = {};
    } else if (c == '@' && begins_) {
      is_guard_ = true;
    } else if (c != '!') {
      begins_ = false;
    }
  }

  std::string_view directive_;  // the last one of the statement
  int in_body_ = 0;
  bool begins_ = true;
  bool is_guard_ = false;
};

// Whole debug strings, which end in a zero byte, in lists of .b8.
class DebugBytes {
 public:
  explicit DebugBytes(const std::map<std::string_view, std::string_view>& names) : names_(names) {}

  // New texts of number tokens, by their place.
  std::map<std::size_t, std::string> renamed(std::span<const PtxToken> tokens) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (is(tokens[i], ".b8")) {
        while (i + 1 < tokens.size() && (tokens[i + 1].kind == PtxTokenKind::kNumber ||
                                         is(tokens[i + 1], ",") || is(tokens[i + 1], "-"))) {
          ++i;
          if (tokens[i].kind == PtxTokenKind::kNumber) take_byte(tokens[i].text, i);
        }
      } else if (tokens[i].kind == PtxTokenKind::kDirective ||
                 is(tokens[i], "}")) {  // something else than bytes
        string_.clear();
        places_.clear();
      }
    }
    return std::move(renamed_);
  }

 private:
  void take_byte(std::string_view digits, std::size_t place) {
    unsigned value = 0;
    const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
    const bool is_byte =
        status == std::errc() && end == digits.data() + digits.size() && value <= 0xFF;
    if (is_byte && value != 0) {
      string_.push_back(static_cast<char>(value));
      places_.push_back(place);
      return;
    }
    const auto found = is_byte ? names_.find(string_) : names_.end();
    if (found != names_.end() && found->second.size() == string_.size()) {
      for (std::size_t i = 0; i < places_.size(); ++i) {
        renamed_[places_[i]] =
            std::to_string(static_cast<unsigned>(static_cast<unsigned char>(found->second[i])));
      }
    }
    string_.clear();
    places_.clear();
  }

  const std::map<std::string_view, std::string_view>& names_;
  std::string string_;
  std::vector<std::size_t> places_;
  std::map<std::size_t, std::string> renamed_;
};

}  // namespace

Result<PtxModule> read_ptx_module(std::span<const PtxToken> tokens, std::string_view file) {
  return ModuleReader(tokens, file).run();
}

bool has_name_word(std::string_view name) { return name.find(kNameWord) != std::string_view::npos; }

std::vector<Renaming> names_with_word(const PtxModule& module, std::span<const PtxToken> tokens) {
  return rename_entries(module, tokens, false, [](const std::string& name, std::size_t attempt) {
    std::string changed = name;
    if (attempt + kNameWord.size() <= name.size()) {
      return changed.replace(attempt, kNameWord.size(), kNameWord);
    }
    return fmt::format("{}{}_{}", kNameWord, attempt > 0 ? std::to_string(attempt) : "", name);
  });
}

std::vector<Renaming> names_without_word(const PtxModule& module,
                                         std::span<const PtxToken> tokens) {
  return rename_entries(module, tokens, true, [](const std::string& name, std::size_t attempt) {
    // Any other letter in place of the first will do.
    constexpr std::string_view kLetters = "kxqzjwvbdfghmnprty";
    std::string changed = name;
    for (std::size_t at = changed.find(kNameWord); at != std::string::npos;
         at = changed.find(kNameWord)) {
      changed[at] = kLetters[attempt % kLetters.size()];
    }
    return attempt < kLetters.size() ? changed : fmt::format("{}_{}", changed, attempt);
  });
}

std::string rename_in_ptx(std::string_view text, std::span<const PtxToken> tokens,
                          std::span<const Renaming> renamings) {
  std::map<std::string_view, std::string_view> names;
  for (const Renaming& renaming : renamings) names.emplace(renaming.from, renaming.to);
  const std::map<std::size_t, std::string> bytes = DebugBytes(names).renamed(tokens);
  std::string result;
  result.reserve(text.size());
  const char* at = text.data();
  const auto replace = [&](std::string_view old, std::string_view by) {
    result.append(at, old.data());
    result += by;
    at = old.data() + old.size();
  };
  SymbolFilter filter;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const PtxToken& token = tokens[i];
    const bool may_be_symbol =
        filter.may_be_symbol(token, i + 1 < tokens.size() ? &tokens[i + 1] : nullptr);
    if (may_be_symbol && token.kind == PtxTokenKind::kIdentifier) {
      const auto found = names.find(token.text);
      if (found != names.end()) replace(token.text, found->second);
    } else if (may_be_symbol && token.kind == PtxTokenKind::kString) {
      const std::string_view inside = token.text.substr(1, token.text.size() - 2);
      const auto found = names.find(inside);
      if (found != names.end()) replace(inside, found->second);
    } else if (const auto byte = bytes.find(i); byte != bytes.end()) {
      replace(token.text, byte->second);
    }
  }
  result.append(at, text.data() + text.size());
  return result;
}

}  // namespace octavo
