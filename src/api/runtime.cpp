// SPDX-License-Identifier: Apache-2.0
// Version and CPU. What the GPU side of this machine has: cuda/driver_api.cpp.
#include "octavo/runtime.hpp"

#include <fstream>

#include "backend/backend.hpp"
#include "base/thread_pool.hpp"

namespace octavo {
namespace {

// "model name : AMD EPYC ..." of the first core. Linux only; other systems say "unknown".
std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("model name")) continue;
    const std::size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

}  // namespace

std::string version() { return OCTAVO_VERSION; }

CpuInfo cpu_info() { return {cpu_model(), num_usable_cores(), cpu_instruction_set()}; }

}  // namespace octavo
