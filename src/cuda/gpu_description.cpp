// SPDX-License-Identifier: Apache-2.0
// The GPUs of this machine, described. Which of them kernels run on: driver.cpp.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"
#include "octavo/runtime.hpp"

namespace octavo {
namespace {

// From cuda.h, CUdevice_attribute.
constexpr int kClockKhz = 13;
constexpr int kMultiprocessorCount = 16;
constexpr int kL2Bytes = 38;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;

// What NVML knows it by ("580.159.03"); libcuda tells only the CUDA version that it serves.
std::string driver_version() {
  // Never closed: driver_api.cpp says why.
  void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return "";
  auto* const init = reinterpret_cast<int (*)()>(dlsym(library, "nvmlInit_v2"));
  auto* const version =
      reinterpret_cast<int (*)(char*, unsigned)>(dlsym(library, "nvmlSystemGetDriverVersion"));
  std::array<char, 96> text{};  // NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE is 80
  if (init == nullptr || version == nullptr || init() != 0 ||
      version(text.data(), static_cast<unsigned>(text.size() - 1)) != 0) {
    return "";
  }
  return text.data();
}

std::string cuda_version(const cuda::Driver& api) {
  constexpr int kMajor = 1000;  // 13.0 is 13000
  constexpr int kMinor = 10;
  int version = 0;
  if (api.DriverGetVersion(&version) != 0) return "";
  return fmt::format("{}.{}", version / kMajor, version % kMajor / kMinor);
}

// Without the path that follows the version.
std::string nvrtc_version() {
  const Result<std::string> description = nvrtc_description();
  if (!description.ok()) return "";
  return description.value().substr(0, description.value().find(','));
}

GpuDescription describe(const cuda::Driver& api, int ordinal) {
  GpuDescription gpu;
  int device = 0;
  if (api.DeviceGet(&device, ordinal) != 0) return gpu;
  std::array<char, 256> name{};
  if (api.DeviceGetName(name.data(), static_cast<int>(name.size() - 1), device) == 0) {
    gpu.name = name.data();
  }
  const auto attribute = [&](int which) {
    int value = 0;
    return api.DeviceGetAttribute(&value, which, device) == 0 ? value : 0;
  };
  gpu.compute_major = attribute(kComputeMajor);
  gpu.compute_minor = attribute(kComputeMinor);
  gpu.num_multiprocessors = attribute(kMultiprocessorCount);
  gpu.l2_bytes = attribute(kL2Bytes);
  constexpr int kKhzPerMhz = 1000;
  gpu.clock_mhz = attribute(kClockKhz) / kKhzPerMhz;
  std::size_t bytes = 0;
  if (api.DeviceTotalMem(&bytes, device) == 0) gpu.memory_bytes = static_cast<std::int64_t>(bytes);
  return gpu;
}

}  // namespace

std::vector<GpuDescription> gpus() {
  std::vector<GpuDescription> found;
  if (!cuda::driver().ok()) return found;
  const cuda::Driver& api = cuda::driver().value();
  int count = 0;
  if (api.DeviceGetCount(&count) != 0) return found;
  const std::string driver = driver_version();
  const std::string cuda = cuda_version(api);
  const std::string nvrtc = nvrtc_version();
  for (int i = 0; i < count; ++i) {
    found.push_back(describe(api, i));
    found.back().driver = driver;
    found.back().cuda = cuda;
    found.back().nvrtc = nvrtc;
  }
  return found;
}

}  // namespace octavo
