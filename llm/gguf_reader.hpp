// SPDX-License-Identifier: Apache-2.0
// Reader of GGUF files, versions 2 and 3, little-endian: typed metadata and tensor infos.
// Knows the container only; what the keys and tensors of a Llama mean is in llama_config.hpp and
// checkpoint.hpp, how blocks decode in ggml_blocks.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "llm/ggml_blocks.hpp"
#include "llm/mapped_file.hpp"

namespace octavo::llm {

// Numbers as stored in the file (enum gguf_metadata_value_type of the GGUF specification).
enum class GgufType : std::uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// shape is row-major (slowest dimension first), the reverse of the file's order. The bytes lie in
// the file and are empty for a type that ggml_block_size() does not know; such a tensor may stand
// in a file, it just cannot be decoded.
struct GgufTensor {
  std::string name;
  GgmlType type = GgmlType::kF32;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

class GgufFile {
 public:
  // Maps the file. Throws Error: kIo if it cannot be read, kBadFile if it breaks the format.
  [[nodiscard]] static GgufFile open(const std::filesystem::path& path);

  // Reads bytes that the caller keeps alive; `name` stands for the file in errors.
  [[nodiscard]] static GgufFile parse(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }

  // Metadata. Absent keys give nullopt; a key of another type throws Error (kBadFile).
  [[nodiscard]] bool has(std::string_view key) const noexcept { return values_.contains(key); }
  [[nodiscard]] std::vector<std::string> keys() const;
  [[nodiscard]] std::optional<std::string> string(std::string_view key) const;
  [[nodiscard]] std::optional<std::uint64_t> uint(std::string_view key) const;  // any integer >= 0
  [[nodiscard]] std::optional<double> number(std::string_view key) const;  // any integer or float
  [[nodiscard]] std::optional<bool> boolean(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::string>> string_array(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<std::int64_t>> int_array(std::string_view key) const;
  [[nodiscard]] std::optional<std::vector<float>> float_array(std::string_view key) const;

  // Tensors, in the file's order.
  [[nodiscard]] std::span<const GgufTensor> tensors() const noexcept { return tensors_; }
  [[nodiscard]] const GgufTensor* find(std::string_view tensor_name) const noexcept;

 private:
  // A metadata value as it lies in the file; checked when the file was opened, decoded when asked
  // for, so that opening a file allocates nothing that a count in the file decides.
  struct Value {
    GgufType type = GgufType::kUint8;
    GgufType element_type = GgufType::kUint8;  // of an array
    std::uint64_t count = 1;                   // of an array
    std::span<const std::byte> bytes;          // without an array's type and count
  };
  class Parser;

  GgufFile() = default;
  [[nodiscard]] const Value* find_value(std::string_view key) const noexcept;
  [[nodiscard]] const Value* find_array(std::string_view key) const;
  [[noreturn]] void throw_type_error(std::string_view key, const Value& value,
                                     std::string_view wanted) const;

  std::string name_;
  std::shared_ptr<const MappedFile> mapping_;  // null after parse()
  std::map<std::string, Value, std::less<>> values_;
  std::vector<GgufTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
};

}  // namespace octavo::llm
