// SPDX-License-Identifier: Apache-2.0
// Reader of one safetensors file: a JSON header with names, dtypes, shapes and offsets, then the
// data. Several files that make up one model are safetensors_set.hpp.
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

#include "llm/mapped_file.hpp"
#include "octavo/dtype.hpp"

namespace octavo::llm {

// The bytes lie in the file and need not be aligned. dtype is absent for types that Octavo has no
// element of (integers other than I32, BOOL, F64); such a tensor may stand in a file unused.
struct SafetensorsTensor {
  std::string name;
  std::string dtype_name;
  std::optional<DType> dtype;
  std::vector<std::int64_t> shape;
  std::span<const std::byte> bytes;
};

class SafetensorsFile {
 public:
  // Maps the file. Throws Error: kIo if it cannot be read, kBadFile if it breaks the format. AMD's
  // FNUZ flavours of FP8 are refused by name: their bytes mean other numbers than the OCP formats'.
  [[nodiscard]] static SafetensorsFile open(const std::filesystem::path& path);

  // Reads bytes that the caller keeps alive; `name` stands for the file in errors.
  [[nodiscard]] static SafetensorsFile parse(std::span<const std::byte> bytes, std::string name);

  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  // In the order of their data.
  [[nodiscard]] std::span<const SafetensorsTensor> tensors() const noexcept { return tensors_; }
  [[nodiscard]] const SafetensorsTensor* find(std::string_view tensor_name) const noexcept;

 private:
  SafetensorsFile() = default;

  std::string name_;
  std::shared_ptr<const MappedFile> mapping_;  // null after parse()
  std::vector<SafetensorsTensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> tensor_index_;
};

}  // namespace octavo::llm
