// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <system_error>

namespace octavo::cli {
namespace {

// How messages name an option that may have several names.
std::string shown_name(const std::string& names) { return names.substr(0, names.find(',')); }

template <typename Number, typename Parse>
CLI::Option* add_number(CLI::App& verb, const std::string& names, Number& value,
                        Bounds<Number> bounds, const std::string& description, Parse parse) {
  const std::string shown = shown_name(names);
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

CLI::App& add_verb(CLI::App& parent, const std::string& name, const std::string& description) {
  return *parent.add_subcommand(name, description);
}

void on_run(CLI::App& verb, std::function<void()> run) { verb.callback(std::move(run)); }

void require_part(CLI::App& verb) { verb.require_subcommand(1); }

void set_footer(CLI::App& verb, const std::string& text) { verb.footer(text); }

CLI::Option* require(CLI::Option* option) { return option->required(); }

void exclude(CLI::Option* one, CLI::Option* other) { one->excludes(other); }

CLI::Option* option_of(CLI::App& verb, const std::string& name) { return verb.get_option(name); }

bool is_given(const CLI::Option* option) { return option->count() != 0; }

std::string option_name(const CLI::Option* option) { return option->get_name(); }

CLI::Option* add_flag(CLI::App& verb, const std::string& names, bool& value,
                      const std::string& description) {
  return verb.add_flag(names, value, description);
}

void add_json_flag(CLI::App& verb) {
  verb.add_flag("--json")->description("Print one JSON document on stdout and nothing else");
}

CLI::Option* add_text(CLI::App& verb, const std::string& names, std::string& value,
                      const std::string& description) {
  CLI::Option* option = verb.add_option(names, value, description);
  return value.empty() ? option : option->capture_default_str();
}

CLI::Option* add_texts(CLI::App& verb, const std::string& names, std::vector<std::string>& values,
                       const std::string& description, char separator) {
  CLI::Option* option = verb.add_option(names, values, description);
  if (!values.empty()) option->capture_default_str();
  if (separator != 0) option->delimiter(separator);
  return option;
}

CLI::Option* add_integer(CLI::App& verb, const std::string& names, std::int64_t& value,
                         Bounds<std::int64_t> bounds, const std::string& description) {
  return add_number(verb, names, value, bounds, description, &parse_integer);
}

CLI::Option* add_decimal(CLI::App& verb, const std::string& names, double& value,
                         Bounds<double> bounds, const std::string& description) {
  return add_number(verb, names, value, bounds, description, &parse_decimal);
}

CLI::Option* add_choice(CLI::App& verb, const std::string& names, std::vector<std::string> words,
                        std::size_t default_position, std::function<void(std::size_t)> set,
                        const std::string& description) {
  const std::string known = fmt::format("{}", fmt::join(words, "|"));
  const std::string default_word = words.at(default_position);
  CLI::Option* option = verb.add_option_function<std::string>(
      names,
      [words = std::move(words), set = std::move(set), shown = shown_name(names),
       known](const std::string& text) {
        const auto found = std::find(words.begin(), words.end(), text);
        if (found == words.end()) {
          throw UsageError(
              fmt::format("{}: \"{}\" was given; it must be one of {}. Give one of these.", shown,
                          text, known));
        }
        set(static_cast<std::size_t>(found - words.begin()));
      },
      description);
  option->type_name(known);
  option->default_str(default_word);
  return option;
}

CLI::Option* add_word(CLI::App& verb, const std::string& names, std::string& value,
                      std::span<const std::string_view> words, const std::string& description) {
  std::vector<std::string> copies(words.begin(), words.end());
  const auto found = std::find(copies.begin(), copies.end(), value);
  const std::size_t position =
      found == copies.end() ? 0 : static_cast<std::size_t>(found - copies.begin());
  return add_choice(
      verb, names, copies, position,
      [&value, copies](std::size_t chosen) { value = copies[chosen]; }, description);
}

}  // namespace octavo::cli
