// SPDX-License-Identifier: Apache-2.0
// What this build and this machine are.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace octavo {

[[nodiscard]] std::string version();

struct CpuInfo {
  std::string model;
  int num_cores = 0;            // cores this process may run on
  std::string instruction_set;  // what the blocked products use: "scalar", "avx2", "avx512",
                                // "avx512_bf16" or "amx_bf16"
};
[[nodiscard]] CpuInfo cpu_info();

// A GPU as plans see it. "octavo doctor --device-out FILE" records one, so that plans can be made
// for it elsewhere (octavo/explain.hpp).
struct GpuDescription {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  int num_multiprocessors = 0;
  std::int64_t memory_bytes = 0;
  std::int64_t l2_bytes = 0;
  int clock_mhz = 0;   // the multiprocessors' highest
  std::string driver;  // its version; empty if unknown
  std::string cuda;    // the newest CUDA that the driver serves
  std::string nvrtc;   // the version that compiles kernels; empty if there is none
};

// The GPUs of this machine, by ordinal; empty without a driver (cuda_components() says why). Those
// that no kernel of Octavo runs on are listed too.
[[nodiscard]] std::vector<GpuDescription> gpus();

// The folder in which compiled kernels are kept, as it is now. Every file is read and verified.
struct KernelCacheInfo {
  std::string folder;     // empty: compiled kernels are not kept
  bool writable = false;  // false: every process compiles its kernels anew
  std::int64_t num_files = 0;
  std::int64_t num_bytes = 0;
  std::int64_t num_damaged = 0;  // will be compiled again, and replaced, when they are needed
  std::string problem;           // why the folder cannot be read or written; empty if it can
};
// Throws Error kInvalidArgument if an environment variable does not parse.
[[nodiscard]] KernelCacheInfo kernel_cache_info();

// A library or device that the "cuda" back end would need, looked for at run time.
struct ComponentInfo {
  std::string name;  // "CUDA driver", "NVRTC", "cuBLASLt", "CUPTI", "NCCL"
  bool found = false;
  std::string detail;  // version and path if found; where it was looked for and the fix if not
};
[[nodiscard]] std::vector<ComponentInfo> cuda_components();

}  // namespace octavo
