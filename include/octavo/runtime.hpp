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

// A library or device that the "cuda" back end would need, looked for at run time.
struct ComponentInfo {
  std::string name;  // "CUDA driver", "NVRTC", "cuBLASLt", "CUPTI", "NCCL"
  bool found = false;
  std::string detail;  // version and path if found; where it was looked for and the fix if not
};
[[nodiscard]] std::vector<ComponentInfo> cuda_components();

}  // namespace octavo
