// SPDX-License-Identifier: Apache-2.0
// A JSON document builder with limits, on nlohmann's event parser (which does not recurse).
// See json_file.hpp.
#include "llm/json_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "llm/file_error.hpp"
#include "llm/mapped_file.hpp"

namespace octavo::llm {
namespace {

using nlohmann::json;

// Real files nest less than ten deep; the largest tokenizers hold about two million values.
constexpr std::size_t kMaxDepth = 64;
constexpr std::size_t kMaxValues = std::size_t{1} << 23;

struct Place {
  std::size_t line;
  std::size_t column;
};

Place place_of(std::string_view text, std::size_t position) {
  const std::string_view before = text.substr(0, std::min(position, text.size()));
  const auto line = static_cast<std::size_t>(std::count(before.begin(), before.end(), '\n')) + 1;
  const std::size_t last_break = before.rfind('\n');
  const std::size_t column =
      last_break == std::string_view::npos ? before.size() : before.size() - last_break - 1;
  return {line, std::max<std::size_t>(column, 1)};
}

class DocumentBuilder : public nlohmann::json_sax<json> {
 public:
  DocumentBuilder(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  [[nodiscard]] json take() { return std::move(root_); }

  bool null() override { return add(json()); }
  bool boolean(bool value) override { return add(json(value)); }
  bool number_integer(number_integer_t value) override { return add(json(value)); }
  bool number_unsigned(number_unsigned_t value) override { return add(json(value)); }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    return add(json(value));
  }
  bool string(string_t& value) override { return add(json(std::move(value))); }
  bool binary(binary_t& value) override { return add(json(std::move(value))); }

  bool start_object(std::size_t /*count*/) override { return open(json::object()); }
  bool start_array(std::size_t /*count*/) override { return open(json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }

  bool key(string_t& value) override {
    if (stack_.back()->contains(value)) {
      throw bad_file(file_, fmt::format("the key {} occurs twice in one object", printable(value)),
                     "the keys of an object are unique", "Remove one of the two");
    }
    key_ = std::move(value);
    return true;
  }

  bool parse_error(std::size_t position, const std::string& last_token,
                   const json::exception& error) override {
    const Place place = place_of(text_, position);
    // "[json.exception...] parse error at line 1, column 2: syntax error while parsing value -
    // invalid literal; last read: '...'": the place and the token are told below, bounded and
    // escaped.
    std::string_view reason = error.what();
    constexpr std::string_view kSyntaxError = "syntax error ";
    if (const std::size_t at = reason.find(kSyntaxError); at != std::string_view::npos) {
      reason.remove_prefix(at + kSyntaxError.size());
    } else if (const std::size_t bracket = reason.find("] "); bracket != std::string_view::npos) {
      reason.remove_prefix(bracket + 2);
    }
    reason = reason.substr(0, reason.find("; last read"));
    throw bad_file(file_,
                   fmt::format("line {}, column {}: not JSON at {}: {}", place.line, place.column,
                               printable(last_token), printable(reason)),
                   "the text must be JSON (RFC 8259) in UTF-8", "Fetch or write the file again");
  }

 private:
  json* insert(json value) {
    if (++num_values_ > kMaxValues) {
      throw bad_file(file_, fmt::format("there are more than {} values", kMaxValues),
                     "the number of JSON values is bounded", "Check that this is the file meant");
    }
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& parent = *stack_.back();
    if (parent.is_array()) {
      parent.push_back(std::move(value));
      return &parent.back();
    }
    return &(parent[key_] = std::move(value));
  }

  bool add(json value) {
    insert(std::move(value));
    return true;
  }

  bool open(json container) {
    if (stack_.size() >= kMaxDepth) {
      throw bad_file(file_, fmt::format("objects and arrays nest more than {} deep", kMaxDepth),
                     "the depth of JSON is bounded", "Check that this is the file meant");
    }
    // NOTE: the pointer stays valid, since nothing is added to the parent until this one closes.
    stack_.push_back(insert(std::move(container)));
    return true;
  }

  bool close() {
    stack_.pop_back();
    return true;
  }

  std::string_view text_;
  std::string_view file_;
  json root_;
  std::vector<json*> stack_;
  std::string key_;
  std::size_t num_values_ = 0;
};

}  // namespace

json parse_json(std::string_view text, std::string_view file) {
  DocumentBuilder builder(text, file);
  json::sax_parse(text.begin(), text.end(), &builder);
  return builder.take();
}

json read_json_file(const std::filesystem::path& path, std::uint64_t max_bytes) {
  const MappedFile mapping(path);
  const std::span<const std::byte> bytes = mapping.bytes();
  if (bytes.size() > max_bytes) {
    throw bad_file(path.string(), fmt::format("the file has {} bytes", bytes.size()),
                   fmt::format("JSON of this kind has at most {} bytes", max_bytes),
                   "Check that this is the file meant");
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, path.string());
}

JsonFields::JsonFields(const json& object, std::string_view file, std::string_view path)
    : object_(object), file_(file), path_(path) {
  if (!object.is_object()) {
    throw bad_file(
        file,
        fmt::format("{} is of JSON type {}", path.empty() ? "the text" : path, object.type_name()),
        "it must be an object", "Fetch or write the file again");
  }
}

const json* JsonFields::find(const char* key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

std::string JsonFields::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void JsonFields::throw_missing(const char* key) const {
  throw bad_file(file_, fmt::format("{} is missing or null", path_of(key)), "the key is required",
                 "Fetch the file again, or add the key");
}

void JsonFields::throw_type_error(const char* key, const json& found,
                                  std::string_view wanted) const {
  // dump() could be as long as the file; the type says enough for containers.
  const std::string shown =
      found.is_structured() ? found.type_name()
                            : printable(found.dump(-1, ' ', true, json::error_handler_t::replace));
  throw bad_file(file_, fmt::format("{} is {}", path_of(key), shown),
                 fmt::format("it must be {}", wanted),
                 "Fetch the file again, or correct the value");
}

std::optional<std::int64_t> JsonFields::integer(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  const bool fits = found->is_number_integer() &&
                    (!found->is_number_unsigned() ||
                     found->get<std::uint64_t>() <= static_cast<std::uint64_t>(INT64_MAX));
  if (!fits) throw_type_error(key, *found, "an integer below 2^63");
  return found->get<std::int64_t>();
}

std::optional<double> JsonFields::number(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_number()) throw_type_error(key, *found, "a number");
  return found->get<double>();
}

std::optional<bool> JsonFields::boolean(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_boolean()) throw_type_error(key, *found, "true or false");
  return found->get<bool>();
}

std::optional<std::string> JsonFields::string(const char* key) const {
  const json* found = find(key);
  if (found == nullptr) return std::nullopt;
  if (!found->is_string()) throw_type_error(key, *found, "a string");
  return found->get<std::string>();
}

}  // namespace octavo::llm
