// SPDX-License-Identifier: Apache-2.0
// The safetensors files of one model, seen as one: a single file, or the shards that a
// model.safetensors.index.json lists. A weight and its scale may lie in different shards.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llm/safetensors_reader.hpp"

namespace octavo::llm {

class SafetensorsSet {
 public:
  [[nodiscard]] static SafetensorsSet open_file(const std::filesystem::path& path);

  // The shards lie in the index's folder; a shard's name with a path in it is refused.
  [[nodiscard]] static SafetensorsSet open_index(const std::filesystem::path& index_path);

  // Files already read. A tensor name in two of them throws Error (kBadFile).
  [[nodiscard]] static SafetensorsSet from_files(std::vector<SafetensorsFile> files);

  [[nodiscard]] const SafetensorsTensor* find(std::string_view tensor_name) const noexcept;

  // Throws Error (kBadFile) if there is no such tensor.
  [[nodiscard]] const SafetensorsTensor& at(std::string_view tensor_name) const;

  // The file that holds the tensor, for errors; the whole set's name if none does.
  [[nodiscard]] const std::string& file_of(std::string_view tensor_name) const noexcept;

 private:
  struct Location {
    std::size_t file_idx;
    std::size_t tensor_idx;
  };
  SafetensorsSet() = default;

  std::string name_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Location, std::less<>> locations_;
};

}  // namespace octavo::llm
