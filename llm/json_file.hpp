// SPDX-License-Identifier: Apache-2.0
// Parsing of untrusted JSON (config.json, tokenizer.json, safetensors headers): bounded in size,
// depth and number of values, duplicate keys refused, errors with line and column.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>

namespace octavo::llm {

inline constexpr std::uint64_t kMaxJsonFileBytes = std::uint64_t{256} << 20;

// `file` names the text in errors. Throws Error (kBadFile).
[[nodiscard]] nlohmann::json parse_json(std::string_view text, std::string_view file);

// Throws Error: kIo if the file cannot be read, kBadFile if it is too large or not JSON.
[[nodiscard]] nlohmann::json read_json_file(const std::filesystem::path& path,
                                            std::uint64_t max_bytes = kMaxJsonFileBytes);

// Typed access to the members of an object. A member that is null counts as absent; one of another
// type throws Error (kBadFile) with the path of the key.
class JsonFields {
 public:
  // `path` is what leads to the object, "" for the top. All arguments must outlive this.
  JsonFields(const nlohmann::json& object, std::string_view file, std::string_view path);

  [[nodiscard]] const nlohmann::json* find(const char* key) const;
  [[nodiscard]] std::optional<std::int64_t> integer(const char* key) const;
  [[nodiscard]] std::optional<double> number(const char* key) const;
  [[nodiscard]] std::optional<bool> boolean(const char* key) const;
  [[nodiscard]] std::optional<std::string> string(const char* key) const;

  [[nodiscard]] std::string_view file() const noexcept { return file_; }
  [[nodiscard]] std::string path_of(std::string_view key) const;
  [[noreturn]] void throw_missing(const char* key) const;
  [[noreturn]] void throw_type_error(const char* key, const nlohmann::json& found,
                                     std::string_view wanted) const;

 private:
  const nlohmann::json& object_;
  std::string_view file_;
  std::string_view path_;
};

}  // namespace octavo::llm
