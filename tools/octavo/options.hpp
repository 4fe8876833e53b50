// SPDX-License-Identifier: Apache-2.0
// Options parsed strictly: whole numbers and decimals within stated bounds, and words from a list.
// Anything else is a usage error (exit 2) that names the option, what was given and the rule.
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

// `value` holds the default, which the help shows.
CLI::Option* add_integer(CLI::App& verb, const std::string& names, std::int64_t& value,
                         Bounds<std::int64_t> bounds, const std::string& description);
CLI::Option* add_decimal(CLI::App& verb, const std::string& names, double& value,
                         Bounds<double> bounds, const std::string& description);

// One of a list of words; `set` receives the position of the one given.
CLI::Option* add_choice(CLI::App& verb, const std::string& names, std::vector<std::string> words,
                        std::size_t default_position, std::function<void(std::size_t)> set,
                        const std::string& description);

// `value` receives the word itself and holds the default.
CLI::Option* add_word(CLI::App& verb, const std::string& names, std::string& value,
                      std::span<const std::string_view> words, const std::string& description);

// One of a list of enumerators, by their to_string(). `value` holds the default.
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
