// SPDX-License-Identifier: Apache-2.0
// Looks for the CUDA driver and libraries at run time. Nothing of CUDA is linked or needed to
// build, so one binary serves machines with and without a GPU. It only looks: nothing is computed.
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "octavo/runtime.hpp"

namespace octavo {
namespace {

// A library, opened. It stays loaded until the process ends: CUDA's libraries start threads,
// register exit handlers and keep memory in their statics, none of which survives dlclose.
class Library {
 public:
  // The first of the names that opens.
  explicit Library(std::span<const char* const> names) {
    for (const char* name : names) {
      tried_ += (tried_.empty() ? "" : " or ") + std::string(name);
      if (handle_ != nullptr) continue;
      handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
      const char* reason = handle_ == nullptr ? dlerror() : nullptr;
      if (reason != nullptr) reasons_ += fmt::format("{}{}", reasons_.empty() ? "" : "; ", reason);
    }
  }

  [[nodiscard]] bool open() const { return handle_ != nullptr; }
  [[nodiscard]] const std::string& tried() const { return tried_; }
  // What the loader said of each name that did not open.
  [[nodiscard]] const std::string& reasons() const { return reasons_; }

  // Null if the library has no such function.
  template <typename Function>
  [[nodiscard]] Function* function(const char* name) const {
    return reinterpret_cast<Function*>(dlsym(handle_, name));
  }

  // The file that holds a function of the library.
  [[nodiscard]] std::string path_of(const char* function_name) const {
    Dl_info info{};
    void* address = dlsym(handle_, function_name);
    if (address == nullptr || dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "?";
    return info.dli_fname;
  }

 private:
  void* handle_ = nullptr;
  std::string tried_;
  std::string reasons_;
};

ComponentInfo missing(std::string name, const Library& library, const char* fix) {
  return {std::move(name), false,
          fmt::format("{} does not open ({}). {}", library.tried(), library.reasons(), fix)};
}

ComponentInfo broken(std::string name, const std::string& path, const std::string& what) {
  return {std::move(name), false,
          fmt::format("{}: {}. Install a matching driver and library.", path, what)};
}

// CUDA writes version 13.0 as 13000.
constexpr int kCudaMajor = 1000;
constexpr int kCudaMinor = 10;

std::string cuda_version_text(std::int64_t version) {
  return fmt::format("{}.{}", version / kCudaMajor, version % kCudaMajor / kCudaMinor);
}

// From cuda.h: CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
constexpr int kAttributeMajor = 75;
constexpr int kAttributeMinor = 76;
constexpr int kMaxDeviceName = 256;

std::string describe_device(const Library& driver, int ordinal) {
  auto* const get = driver.function<int(int*, int)>("cuDeviceGet");
  auto* const get_name = driver.function<int(char*, int, int)>("cuDeviceGetName");
  auto* const get_attribute = driver.function<int(int*, int, int)>("cuDeviceGetAttribute");
  int device = 0;
  if (get == nullptr || get_name == nullptr || get_attribute == nullptr ||
      get(&device, ordinal) != 0) {
    return fmt::format("{}: unreadable", ordinal);
  }
  std::array<char, kMaxDeviceName> name{};
  int major = 0;
  int minor = 0;
  if (get_name(name.data(), kMaxDeviceName - 1, device) != 0 ||
      get_attribute(&major, kAttributeMajor, device) != 0 ||
      get_attribute(&minor, kAttributeMinor, device) != 0) {
    return fmt::format("{}: unreadable", ordinal);
  }
  return fmt::format("{}: {} (compute capability {}.{})", ordinal, name.data(), major, minor);
}

ComponentInfo cuda_driver() {
  constexpr std::array kNames{"libcuda.so.1"};
  const char* const name = "CUDA driver";
  const Library driver(kNames);
  if (!driver.open()) {
    return missing(name, driver, "Install NVIDIA's driver where there is a GPU.");
  }
  const std::string path = driver.path_of("cuInit");
  auto* const init = driver.function<int(unsigned)>("cuInit");
  auto* const get_version = driver.function<int(int*)>("cuDriverGetVersion");
  auto* const get_count = driver.function<int(int*)>("cuDeviceGetCount");
  if (init == nullptr || get_version == nullptr || get_count == nullptr) {
    return broken(name, path, "it lacks cuInit, cuDriverGetVersion or cuDeviceGetCount");
  }
  int version = 0;
  (void)get_version(&version);
  if (const int status = init(0); status != 0) {
    return broken(name, path,
                  fmt::format("CUDA {} driver, but cuInit fails with CUDA error {}",
                              cuda_version_text(version), status));
  }
  int count = 0;
  if (const int status = get_count(&count); status != 0 || count == 0) {
    return broken(name, path,
                  fmt::format("CUDA {} driver, but no device (CUDA error {})",
                              cuda_version_text(version), status));
  }
  std::string devices;
  for (int i = 0; i < count; ++i) devices += "; " + describe_device(driver, i);
  return {name, true, fmt::format("CUDA {}, {}{}", cuda_version_text(version), path, devices)};
}

ComponentInfo nvrtc() {
  constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12"};
  const char* const name = "NVRTC";
  const Library library(kNames);
  if (!library.open()) {
    return missing(name, library,
                   "Install the CUDA toolkit 13 (or its NVRTC package) and add its lib folder to "
                   "LD_LIBRARY_PATH.");
  }
  const std::string path = library.path_of("nvrtcVersion");
  auto* const get_version = library.function<int(int*, int*)>("nvrtcVersion");
  int major = 0;
  int minor = 0;
  if (get_version == nullptr || get_version(&major, &minor) != 0) {
    return broken(name, path, "nvrtcVersion fails");
  }
  return {name, true, fmt::format("{}.{}, {}", major, minor, path)};
}

ComponentInfo cublaslt() {
  constexpr std::array kNames{"libcublasLt.so.13", "libcublasLt.so.12"};
  // cuBLAS 13.1.2 is 130102, from version 11 on.
  constexpr std::size_t kMajor = 10000;
  constexpr std::size_t kMinor = 100;
  const char* const name = "cuBLASLt";
  const Library library(kNames);
  if (!library.open()) {
    return missing(name, library,
                   "Install cuBLAS of the CUDA toolkit 13 and add its lib folder to "
                   "LD_LIBRARY_PATH.");
  }
  const std::string path = library.path_of("cublasLtGetVersion");
  auto* const get_version = library.function<std::size_t()>("cublasLtGetVersion");
  if (get_version == nullptr) return broken(name, path, "it lacks cublasLtGetVersion");
  const std::size_t version = get_version();
  return {name, true,
          fmt::format("{}.{}.{}, {}", version / kMajor, version % kMajor / kMinor, version % kMinor,
                      path)};
}

// Whether the driver lets ordinary users read the GPU's performance counters.
std::string counter_permission() {
  std::ifstream file("/proc/driver/nvidia/params");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("RmProfilingAdminOnly:")) continue;
    return line.ends_with("0") ? "; counters: every user"
                               : "; counters: administrators only (load the nvidia module with "
                                 "NVreg_RestrictProfilingToAdminUsers=0 to change it)";
  }
  return "";
}

ComponentInfo cupti() {
  constexpr std::array kNames{"libcupti.so.13"};
  const char* const name = "CUPTI";
  const Library library(kNames);
  if (!library.open()) {
    return missing(name, library,
                   "Install CUPTI of the CUDA toolkit 13 and add its lib folder to "
                   "LD_LIBRARY_PATH.");
  }
  const std::string path = library.path_of("cuptiGetVersion");
  auto* const get_version = library.function<int(std::uint32_t*)>("cuptiGetVersion");
  std::uint32_t version = 0;
  if (get_version == nullptr || get_version(&version) != 0) {
    return broken(name, path, "cuptiGetVersion fails");
  }
  return {name, true, fmt::format("API version {}, {}{}", version, path, counter_permission())};
}

ComponentInfo nccl() {
  constexpr std::array kNames{"libnccl.so.2"};
  // NCCL 2.27.3 is 22703, from version 2.9 on.
  constexpr int kMajor = 10000;
  constexpr int kMinor = 100;
  const char* const name = "NCCL";
  const Library library(kNames);
  if (!library.open()) {
    return missing(name, library,
                   "Install NCCL 2 and add its lib folder to LD_LIBRARY_PATH (only several GPUs "
                   "need it).");
  }
  const std::string path = library.path_of("ncclGetVersion");
  auto* const get_version = library.function<int(int*)>("ncclGetVersion");
  int version = 0;
  if (get_version == nullptr || get_version(&version) != 0) {
    return broken(name, path, "ncclGetVersion fails");
  }
  return {name, true,
          fmt::format("{}.{}.{}, {}", version / kMajor, version % kMajor / kMinor, version % kMinor,
                      path)};
}

}  // namespace

std::vector<ComponentInfo> cuda_components() {
  return {cuda_driver(), nvrtc(), cublaslt(), cupti(), nccl()};
}

}  // namespace octavo
