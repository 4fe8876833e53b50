// SPDX-License-Identifier: Apache-2.0
// Named tensors in a .safetensors file: written here, read through llm's bounds-checked reader.
#pragma once

#include <map>
#include <string>

#include "host_tensor.hpp"
#include "llm/safetensors_reader.hpp"

namespace octavo::cli {

using TensorMap = std::map<std::string, const HostTensor*>;

// Written to a neighbouring temporary file first, then renamed. Throws Error kIo.
void save_tensors(const TensorMap& tensors, const std::string& path);

class LoadedTensors {
 public:
  // Throws Error kIo or kBadFile.
  explicit LoadedTensors(const std::string& path);

  // Throws Error kBadFile if the file has no tensor of that name, or one of another kind.
  [[nodiscard]] HostTensor required(const std::string& name) const;
  // An absent tensor if the file has none of that name.
  [[nodiscard]] HostTensor optional(const std::string& name) const;

 private:
  std::string path_;
  llm::SafetensorsFile file_;
};

// Writes text or bytes to a neighbouring temporary file and renames it. Throws Error kIo.
class ReplacedFile {
 public:
  explicit ReplacedFile(std::string path);
  ReplacedFile(const ReplacedFile&) = delete;
  ReplacedFile& operator=(const ReplacedFile&) = delete;
  ~ReplacedFile();  // removes the temporary file if commit() was not reached

  void write(const void* data, std::size_t num_bytes);
  void commit();

 private:
  [[noreturn]] void fail(const char* what) const;

  std::string path_;
  std::string temporary_;
  std::FILE* file_ = nullptr;
};

}  // namespace octavo::cli
