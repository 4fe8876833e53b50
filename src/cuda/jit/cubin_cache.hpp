// SPDX-License-Identifier: Apache-2.0
// Compiled kernels, remembered: in the process, and in a folder for later processes. A file that
// cannot be read or written costs a compilation, never an error.
#pragma once

#include <filesystem>
#include <future>
#include <map>
#include <mutex>

#include "cuda/jit/compiled_kernel.hpp"
#include "cuda/jit/cubin_file.hpp"
#include "octavo/error.hpp"

namespace octavo {

// The folder that the environment names (src/base/environment.hpp); empty if it names none.
[[nodiscard]] Result<std::filesystem::path> default_cubin_folder();

class CubinCache {
 public:
  // An empty folder: memory only.
  CubinCache(std::filesystem::path folder, KernelCompiler compiler);

  // Thread-safe. Threads that ask for one kernel at once wait for one compilation; different
  // kernels compile in parallel. A failed compilation is not remembered.
  [[nodiscard]] Result<CompiledKernel> get_or_compile(const KernelSource& source);

  // 128 bits of a SHA-256 over the format's version, the compiler's identity, entry and text.
  [[nodiscard]] CubinKey key_of(const KernelSource& source) const;

  // Where the kernel is or would be kept; meaningless if the folder is empty.
  [[nodiscard]] std::filesystem::path path_of(const KernelSource& source) const;

 private:
  [[nodiscard]] Result<CompiledKernel> load_or_compile(const KernelSource& source,
                                                       const CubinKey& key) const;

  std::filesystem::path folder_;
  KernelCompiler compiler_;
  std::mutex mutex_;  // guards kernels_
  std::map<CubinKey, std::shared_future<Result<CompiledKernel>>> kernels_;
};

}  // namespace octavo
