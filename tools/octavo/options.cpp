// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <charconv>
#include <system_error>

namespace octavo::cli {
namespace {

// CLI11 calls this for every value; what it throws must be one of its own errors to be reported
// with the verb's name.
template <typename Number, typename Parse>
CLI::Option* add_number(CLI::App& verb, const std::string& names, Number& value,
                        Bounds<Number> bounds, const std::string& description, Parse parse) {
  const std::string shown = names.substr(0, names.find(','));
  CLI::Option* option = verb.add_option_function<std::string>(
      names,
      [&value, bounds, shown, parse](const std::string& text) {
        value = parse(shown, text, bounds);
      },
      description);
  option->type_name(fmt::format("[{}..{}]", bounds.low, bounds.high));
  option->default_str(fmt::format("{}", value));
  return option;
}

}  // namespace

std::int64_t parse_integer(std::string_view option, const std::string& text,
                           Bounds<std::int64_t> bounds) {
  std::int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error == std::errc::invalid_argument || rest != end || error != std::errc{} ||
      value < bounds.low || value > bounds.high) {
    throw UsageError(
        fmt::format("{}: \"{}\" was given; it must be a whole number from {} to {}, "
                    "written in plain digits. Give a number in this range.",
                    option, text, bounds.low, bounds.high));
  }
  return value;
}

double parse_decimal(std::string_view option, const std::string& text, Bounds<double> bounds) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc{} || rest != end || !(value >= bounds.low && value <= bounds.high)) {
    throw UsageError(
        fmt::format("{}: \"{}\" was given; it must be a number from {} to {}. Give a "
                    "number in this range.",
                    option, text, bounds.low, bounds.high));
  }
  return value;
}

CLI::Option* add_integer(CLI::App& verb, const std::string& names, std::int64_t& value,
                         Bounds<std::int64_t> bounds, const std::string& description) {
  return add_number(verb, names, value, bounds, description, &parse_integer);
}

CLI::Option* add_decimal(CLI::App& verb, const std::string& names, double& value,
                         Bounds<double> bounds, const std::string& description) {
  return add_number(verb, names, value, bounds, description, &parse_decimal);
}

CLI::Option* add_word(CLI::App& verb, const std::string& names, std::string& value,
                      std::span<const std::string_view> words, const std::string& description) {
  const std::string shown = names.substr(0, names.find(','));
  std::string known;
  for (const std::string_view word : words) known += (known.empty() ? "" : "|") + std::string(word);
  CLI::Option* option = verb.add_option_function<std::string>(
      names,
      [&value, words, shown, known](const std::string& text) {
        for (const std::string_view word : words) {
          if (text == word) {
            value = text;
            return;
          }
        }
        throw UsageError(
            fmt::format("{}: \"{}\" was given; it must be one of {}. Give one of "
                        "these.",
                        shown, text, known));
      },
      description);
  option->type_name(known);
  option->default_str(value);
  return option;
}

}  // namespace octavo::cli
