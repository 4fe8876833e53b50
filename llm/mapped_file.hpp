// SPDX-License-Identifier: Apache-2.0
// A whole file mapped read-only into memory, unmapped on destruction.
// NOTE: the operating system raises SIGBUS if the file is shortened by someone while it is mapped;
// no reader can prevent that, so files must not be rewritten in place while a model is loaded.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace octavo::llm {

class MappedFile {
 public:
  // Throws Error (kIo) if the path cannot be opened, is not a regular file, or cannot be mapped.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  // Empty for an empty file.
  [[nodiscard]] std::span<const std::byte> bytes() const noexcept {
    return {static_cast<const std::byte*>(data_), size_bytes_};
  }

 private:
  void* data_ = nullptr;
  std::size_t size_bytes_ = 0;
};

}  // namespace octavo::llm
