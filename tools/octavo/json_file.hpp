// SPDX-License-Identifier: Apache-2.0
// A JSON file that somebody else may have written: bounded in size and depth, every value checked
// before it is used, every message with the file, the place, the rule and the fix.
#pragma once

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "options.hpp"

namespace octavo::cli {

class JsonFile {
 public:
  // `noun` names the file in messages: "suite".
  JsonFile(std::string path, std::string noun) : path_(std::move(path)), noun_(std::move(noun)) {}

  // Throws Error: kIo if the file cannot be read, kBadFile if it is too long, nested too deeply or
  // not JSON (naming line and column).
  [[nodiscard]] nlohmann::json parse() const;

  // Throws Error kBadFile: "<path>: <where> <what>; it must be <rule>. Correct the <noun>."
  [[noreturn]] void fail(const std::string& where, const std::string& what,
                         const std::string& rule) const;

  void read_integer(const nlohmann::json& value, const std::string& where, std::int64_t& target,
                    Bounds<std::int64_t> bounds) const;
  void read_bool(const nlohmann::json& value, const std::string& where, bool& target) const;
  void read_string(const nlohmann::json& value, const std::string& where,
                   std::string& target) const;

  template <typename Enum, std::size_t kNumValues>
  void read_enum(const nlohmann::json& value, const std::string& where, Enum& target,
                 const std::array<Enum, kNumValues>& values) const {
    std::string known;
    for (const Enum candidate : values) {
      if (value.is_string() && value.get<std::string>() == to_string(candidate)) {
        target = candidate;
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(to_string(candidate));
    }
    fail(where, "is " + value.dump(), "one of " + known);
  }

 private:
  [[nodiscard]] std::string text() const;

  std::string path_;
  std::string noun_;
};

}  // namespace octavo::cli
