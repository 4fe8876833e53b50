// SPDX-License-Identifier: Apache-2.0
// What a compiler takes and gives: one kernel's source, one kernel's machine code. Who compiles:
// nvrtc_compiler.hpp; who remembers: cubin_cache.hpp.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "octavo/error.hpp"

namespace octavo {

struct KernelSource {
  std::string entry;  // the kernel's symbol; the text declares it extern "C"
  std::string text;   // CUDA C++; may include the embedded headers
};

// The entry becomes part of file names, so it must be a C identifier of at most this length: with
// key, suffixes and process number a name stays under Linux's limit of 255 bytes.
inline constexpr std::size_t kMaxEntryLength = 160;
[[nodiscard]] Status check_entry_name(const KernelSource& source);

// What ptxas reports. Spills are those of every function in the source; any is a loss of speed, and
// whether that is an error is for the caller to say.
struct KernelResources {
  int registers = 0;
  int stack_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;

  friend bool operator==(const KernelResources&, const KernelResources&) = default;
};

struct CompiledKernel {
  std::vector<std::byte> cubin;
  std::string log;
  KernelResources resources;

  friend bool operator==(const CompiledKernel&, const CompiledKernel&) = default;
};

struct KernelCompiler {
  // Everything besides the source that decides the result: version, flags, headers.
  std::string identity;
  // Called from several threads at once.
  std::function<Result<CompiledKernel>(const KernelSource&)> compile;
};

}  // namespace octavo
