// SPDX-License-Identifier: Apache-2.0
// Metadata access and opening of GGUF files. The parsing itself is in gguf_parser.cpp.
#include "llm/gguf_reader.hpp"

#include <fmt/format.h>

#include <cstring>
#include <limits>
#include <utility>

#include "llm/byte_cursor.hpp"
#include "llm/file_error.hpp"
#include "llm/gguf_parser.hpp"

namespace octavo::llm {
namespace {

template <typename T>
T load(std::span<const std::byte> bytes, std::uint64_t idx) {
  T value;
  std::memcpy(&value, bytes.data() + idx * sizeof(T), sizeof(T));
  return value;
}

bool is_integer(GgufType type) noexcept {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kUint16:
    case GgufType::kInt16:
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kUint64:
    case GgufType::kInt64: return true;
    case GgufType::kFloat32:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
    case GgufType::kFloat64: return false;
  }
  return false;
}

// Integer number idx of a run of integers; absent if it is a u64 above int64's range.
std::optional<std::int64_t> load_integer(GgufType type, std::span<const std::byte> bytes,
                                         std::uint64_t idx) {
  switch (type) {
    case GgufType::kUint8: return load<std::uint8_t>(bytes, idx);
    case GgufType::kInt8: return load<std::int8_t>(bytes, idx);
    case GgufType::kUint16: return load<std::uint16_t>(bytes, idx);
    case GgufType::kInt16: return load<std::int16_t>(bytes, idx);
    case GgufType::kUint32: return load<std::uint32_t>(bytes, idx);
    case GgufType::kInt32: return load<std::int32_t>(bytes, idx);
    case GgufType::kInt64: return load<std::int64_t>(bytes, idx);
    case GgufType::kUint64: {
      const auto value = load<std::uint64_t>(bytes, idx);
      if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
        return std::nullopt;
      }
      return static_cast<std::int64_t>(value);
    }
    case GgufType::kFloat32:
    case GgufType::kBool:
    case GgufType::kString:
    case GgufType::kArray:
    case GgufType::kFloat64: break;
  }
  return std::nullopt;
}

}  // namespace

GgufFile GgufFile::open(const std::filesystem::path& path) {
  auto mapping = std::make_shared<const MappedFile>(path);
  GgufFile file = parse(mapping->bytes(), path.string());
  file.mapping_ = std::move(mapping);
  return file;
}

GgufFile GgufFile::parse(std::span<const std::byte> bytes, std::string name) {
  GgufFile file;
  file.name_ = std::move(name);
  Parser(bytes, file).run();
  return file;
}

std::vector<std::string> GgufFile::keys() const {
  std::vector<std::string> names;
  names.reserve(values_.size());
  for (const auto& [key, value] : values_) names.push_back(key);
  return names;
}

const GgufTensor* GgufFile::find(std::string_view tensor_name) const noexcept {
  const auto found = tensor_index_.find(tensor_name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

const GgufFile::Value* GgufFile::find_value(std::string_view key) const noexcept {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

void GgufFile::throw_type_error(std::string_view key, const Value& value,
                                std::string_view wanted) const {
  const std::string given =
      value.type == GgufType::kArray
          ? fmt::format("an array of {} {}", value.count, gguf_type_name(value.element_type))
          : std::string(gguf_type_name(value.type));
  throw bad_file(
      name_, fmt::format("metadata key {} holds {}", printable(key), given),
      fmt::format("it must hold {}", wanted),
      "The file was written by a tool that uses the key otherwise; convert the model again");
}

std::optional<std::string> GgufFile::string(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kString) throw_type_error(key, *value, "a string");
  ByteCursor cursor(value->bytes, name_);
  return std::string(cursor.read_string(key));
}

std::optional<std::uint64_t> GgufFile::uint(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kUint64) return load<std::uint64_t>(value->bytes, 0);
  if (!is_integer(value->type)) throw_type_error(key, *value, "an integer");
  const std::optional<std::int64_t> loaded = load_integer(value->type, value->bytes, 0);
  if (!loaded || *loaded < 0) throw_type_error(key, *value, "an integer that is not negative");
  return static_cast<std::uint64_t>(*loaded);
}

std::optional<double> GgufFile::number(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type == GgufType::kFloat32) return load<float>(value->bytes, 0);
  if (value->type == GgufType::kFloat64) return load<double>(value->bytes, 0);
  if (value->type == GgufType::kUint64) {
    return static_cast<double>(load<std::uint64_t>(value->bytes, 0));
  }
  if (!is_integer(value->type)) throw_type_error(key, *value, "a number");
  return static_cast<double>(*load_integer(value->type, value->bytes, 0));
}

std::optional<bool> GgufFile::boolean(std::string_view key) const {
  const Value* value = find_value(key);
  if (value == nullptr) return std::nullopt;
  if (value->type != GgufType::kBool) throw_type_error(key, *value, "a bool");
  return load<std::uint8_t>(value->bytes, 0) != 0;
}

const GgufFile::Value* GgufFile::find_array(std::string_view key) const {
  const Value* value = find_value(key);
  if (value != nullptr && value->type != GgufType::kArray) {
    throw_type_error(key, *value, "an array");
  }
  return value;
}

std::optional<std::vector<std::string>> GgufFile::string_array(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (value->element_type != GgufType::kString)
    throw_type_error(key, *value, "an array of strings");
  std::vector<std::string> strings;
  strings.reserve(value->count);  // bounded: each string was found in the file when it was opened
  ByteCursor cursor(value->bytes, name_);
  for (std::uint64_t i = 0; i < value->count; ++i) strings.emplace_back(cursor.read_string(key));
  return strings;
}

std::optional<std::vector<std::int64_t>> GgufFile::int_array(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (!is_integer(value->element_type)) throw_type_error(key, *value, "an array of integers");
  std::vector<std::int64_t> integers;
  integers.reserve(value->count);
  for (std::uint64_t i = 0; i < value->count; ++i) {
    const std::optional<std::int64_t> loaded = load_integer(value->element_type, value->bytes, i);
    if (!loaded) throw_type_error(key, *value, "integers below 2^63");
    integers.push_back(*loaded);
  }
  return integers;
}

std::optional<std::vector<float>> GgufFile::float_array(std::string_view key) const {
  const Value* value = find_array(key);
  if (value == nullptr) return std::nullopt;
  if (value->element_type != GgufType::kFloat32)
    throw_type_error(key, *value, "an array of float32");
  std::vector<float> floats(value->count);
  if (!floats.empty()) std::memcpy(floats.data(), value->bytes.data(), value->bytes.size());
  return floats;
}

}  // namespace octavo::llm
