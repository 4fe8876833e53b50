// SPDX-License-Identifier: Apache-2.0
// A temporary folder and a stand-in for the compiler, for tests of the cache. No NVRTC.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <system_error>
#include <vector>

#include "cuda/jit/compiled_kernel.hpp"

namespace octavo {

class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (std::filesystem::temp_directory_path() / "octavo-jit-XXXXXX").string();
    if (mkdtemp(name.data()) == nullptr) throw std::filesystem::filesystem_error("mkdtemp", {});
    path_ = name;
  }
  ~TemporaryFolder() {
    std::error_code status;
    std::filesystem::remove_all(path_, status);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

inline std::vector<std::byte> read_bytes(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<std::byte> bytes;
  for (std::istreambuf_iterator<char> i(file), end; i != end; ++i) {
    bytes.push_back(static_cast<std::byte>(*i));
  }
  return bytes;
}

inline void write_bytes(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  ASSERT_TRUE(file.good()) << path;
}

inline std::vector<std::filesystem::path> files_in(const std::filesystem::path& folder) {
  std::vector<std::filesystem::path> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files.push_back(entry.path());
  }
  return files;
}

// What the stand-in makes of a source: different for every source, of several pages.
inline CompiledKernel stand_in_kernel(const KernelSource& source, std::size_t cubin_bytes = 3000) {
  CompiledKernel kernel;
  for (std::size_t i = 0; i < cubin_bytes; ++i) {
    kernel.cubin.push_back(static_cast<std::byte>(source.text[i % source.text.size()] + i / 7));
  }
  kernel.log = "log of " + source.entry + "\n";
  kernel.resources = {static_cast<int>(source.text.size()), 16, 8, 4};
  return kernel;
}

struct StandInCompiler {
  std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);

  [[nodiscard]] KernelCompiler compiler(std::string identity = "stand-in 1") const {
    return {std::move(identity), [calls = calls](const KernelSource& source) {
              ++*calls;
              return Result<CompiledKernel>(stand_in_kernel(source));
            }};
  }
};

}  // namespace octavo
