// SPDX-License-Identifier: Apache-2.0
// Verbs and their options. Options are parsed strictly: whole numbers and decimals within stated
// bounds, and words from a list. Anything else is a usage error (exit 2) that names the option,
// what was given and the rule.
//
// Verbs and options belong to the parser (CLI11), which only options.cpp and main.cpp include: its
// headers take seconds to compile.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "session.hpp"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace octavo::cli {

// Thrown for a wrong option or value; main prints it and exits with kBadUsage.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

template <typename Number>
struct Bounds {
  Number low;
  Number high;
};

// Whole text or nothing: no leading space, no trailing rest, no "1e3" for a whole number.
// `option` is the name used in the message.
[[nodiscard]] std::int64_t parse_integer(std::string_view option, const std::string& text,
                                         Bounds<std::int64_t> bounds);
[[nodiscard]] double parse_decimal(std::string_view option, const std::string& text,
                                   Bounds<double> bounds);

// A verb below `parent`, which is the command or a verb that has parts.
CLI::App& add_verb(CLI::App& parent, const std::string& name, const std::string& description);
// What a verb does once its options are parsed.
void on_run(CLI::App& verb, std::function<void()> run);
// The verb has parts, and one of them has to be given.
void require_part(CLI::App& verb);
// Shown at the end of the verb's help.
void set_footer(CLI::App& verb, const std::string& text);

// It has to be given. Returns the option.
CLI::Option* require(CLI::Option* option);
// Giving both is a usage error.
void exclude(CLI::Option* one, CLI::Option* other);
// An option that the verb has, by one of its names.
CLI::Option* option_of(CLI::App& verb, const std::string& name);
[[nodiscard]] bool is_given(const CLI::Option* option);
[[nodiscard]] std::string option_name(const CLI::Option* option);

// All below: `value` holds the default, which the help shows. A name without "-" is a positional.
CLI::Option* add_flag(CLI::App& verb, const std::string& names, bool& value,
                      const std::string& description);
// --json. Its value is known before parsing (so that usage errors can obey it).
void add_json_flag(CLI::App& verb);
CLI::Option* add_text(CLI::App& verb, const std::string& names, std::string& value,
                      const std::string& description);
// As many as are given. `separator`, if not 0, also stands between texts of one argument.
CLI::Option* add_texts(CLI::App& verb, const std::string& names, std::vector<std::string>& values,
                       const std::string& description, char separator = 0);
CLI::Option* add_integer(CLI::App& verb, const std::string& names, std::int64_t& value,
                         Bounds<std::int64_t> bounds, const std::string& description);
CLI::Option* add_decimal(CLI::App& verb, const std::string& names, double& value,
                         Bounds<double> bounds, const std::string& description);

// One of a list of words; `set` receives the position of the one given.
CLI::Option* add_choice(CLI::App& verb, const std::string& names, std::vector<std::string> words,
                        std::size_t default_position, std::function<void(std::size_t)> set,
                        const std::string& description);

// `value` receives the word itself.
CLI::Option* add_word(CLI::App& verb, const std::string& names, std::string& value,
                      std::span<const std::string_view> words, const std::string& description);

// One of a list of enumerators, by their to_string().
template <typename Enum, std::size_t kNumValues>
CLI::Option* add_enum(CLI::App& verb, const std::string& names, Enum& value,
                      const std::array<Enum, kNumValues>& values, const std::string& description) {
  std::vector<std::string> words;
  std::size_t default_position = 0;
  for (std::size_t i = 0; i < kNumValues; ++i) {
    words.emplace_back(to_string(values[i]));
    if (values[i] == value) default_position = i;
  }
  return add_choice(
      verb, names, std::move(words), default_position,
      [&value, values](std::size_t position) { value = values[position]; }, description);
}

}  // namespace octavo::cli
