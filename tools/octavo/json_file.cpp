// SPDX-License-Identifier: Apache-2.0
#include "json_file.hpp"

#include <fmt/format.h>

#include <fstream>
#include <limits>

#include "octavo/error.hpp"

namespace octavo::cli {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{1} << 20U;

}  // namespace

void JsonFile::fail(const std::string& where, const std::string& what,
                    const std::string& rule) const {
  throw Error(ErrorCode::kBadFile, fmt::format("{}: {} {}; it must be {}. Correct the {}.", path_,
                                               where, what, rule, noun_));
}

std::string JsonFile::text() const {
  std::ifstream file(path_, std::ios::binary);
  if (!file) {
    throw Error(ErrorCode::kIo, fmt::format("{}: the {} could not be opened; it must be a readable "
                                            "file. Check the path.",
                                            path_, noun_));
  }
  std::string text(kMaxFileBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxFileBytes) {
    fail("the file", "is too long", fmt::format("at most {} bytes", kMaxFileBytes));
  }
  return text;
}

// nlohmann's message holds line and column of the first fault.
nlohmann::json JsonFile::parse() const {
  // A depth limit: the parser recurses for destruction of nested arrays.
  constexpr int kMaxDepth = 16;
  try {
    return nlohmann::json::parse(text(),
                                 [this](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
                                   if (depth > kMaxDepth)
                                     fail("the file", "is nested too deeply", "at most 16 levels");
                                   return true;
                                 });
  } catch (const nlohmann::json::exception& error) {
    throw Error(ErrorCode::kBadFile, fmt::format("{}: {}. Correct the JSON.", path_, error.what()));
  }
}

void JsonFile::read_integer(const nlohmann::json& value, const std::string& where,
                            std::int64_t& target, Bounds<std::int64_t> bounds) const {
  const bool whole = value.is_number_integer() &&
                     !(value.is_number_unsigned() &&
                       value.get<std::uint64_t>() >
                           static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
  if (!whole || value.get<std::int64_t>() < bounds.low || value.get<std::int64_t>() > bounds.high) {
    fail(where, "is " + value.dump(),
         fmt::format("a whole number from {} to {}", bounds.low, bounds.high));
  }
  target = value.get<std::int64_t>();
}

void JsonFile::read_bool(const nlohmann::json& value, const std::string& where,
                         bool& target) const {
  if (!value.is_boolean()) fail(where, "is " + value.dump(), "true or false");
  target = value.get<bool>();
}

void JsonFile::read_string(const nlohmann::json& value, const std::string& where,
                           std::string& target) const {
  constexpr std::size_t kMaxLength = 200;
  if (!value.is_string() || value.get_ref<const std::string&>().size() > kMaxLength) {
    fail(where, "is no string or too long", fmt::format("text of at most {} bytes", kMaxLength));
  }
  target = value.get<std::string>();
}

}  // namespace octavo::cli
