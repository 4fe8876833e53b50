// SPDX-License-Identifier: Apache-2.0
#include "cuda/driver.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <atomic>
#include <memory>
#include <mutex>

namespace octavo::cuda {
namespace {

Error no_driver(const std::string& why) {
  return {ErrorCode::kEnvironment,
          fmt::format("cuda: {}. Install NVIDIA's driver where there is a GPU, or use the back end "
                      "\"cpu\"; \"octavo doctor\" says what was found.",
                      why)};
}

Result<Driver> load() {
  // Never closed: the driver starts threads and keeps memory that do not survive that.
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (library == nullptr) return no_driver("libcuda.so.1 is not on the library search path");
  std::string missing;
  const auto find = [&](const char* name, auto& function) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
    if (function == nullptr) missing += std::string(missing.empty() ? "" : ", ") + name;
  };
  Driver api{};
  int (*init)(unsigned) = nullptr;
  find("cuInit", init);
  find("cuGetErrorString", api.GetErrorString);
  find("cuDriverGetVersion", api.DriverGetVersion);
  find("cuDeviceGet", api.DeviceGet);
  find("cuDeviceGetCount", api.DeviceGetCount);
  find("cuDeviceGetAttribute", api.DeviceGetAttribute);
  find("cuDeviceGetName", api.DeviceGetName);
  find("cuDeviceTotalMem_v2", api.DeviceTotalMem);
  find("cuDevicePrimaryCtxRetain", api.DevicePrimaryCtxRetain);
  find("cuCtxPushCurrent_v2", api.CtxPushCurrent);
  find("cuCtxPopCurrent_v2", api.CtxPopCurrent);
  find("cuModuleLoadData", api.ModuleLoadData);
  find("cuModuleUnload", api.ModuleUnload);
  find("cuModuleGetFunction", api.ModuleGetFunction);
  find("cuFuncSetAttribute", api.FuncSetAttribute);
  find("cuLaunchKernelEx", api.LaunchKernelEx);
  find("cuTensorMapEncodeTiled", api.TensorMapEncodeTiled);
  find("cuThreadExchangeStreamCaptureMode", api.ThreadExchangeStreamCaptureMode);
  find("cuMemAllocFromPoolAsync", api.MemAllocFromPoolAsync);
  find("cuMemFreeAsync", api.MemFreeAsync);
  find("cuMemPoolCreate", api.MemPoolCreate);
  find("cuMemPoolSetAttribute", api.MemPoolSetAttribute);
  find("cuMemAlloc_v2", api.MemAlloc);
  find("cuMemFree_v2", api.MemFree);
  find("cuMemcpyHtoD_v2", api.MemcpyHtoD);
  find("cuMemcpyDtoH_v2", api.MemcpyDtoH);
  find("cuMemcpyDtoDAsync_v2", api.MemcpyDtoDAsync);
  find("cuMemsetD8Async", api.MemsetD8Async);
  find("cuStreamCreate", api.StreamCreate);
  find("cuStreamDestroy_v2", api.StreamDestroy);
  find("cuStreamSynchronize", api.StreamSynchronize);
  find("cuStreamIsCapturing", api.StreamIsCapturing);
  find("cuStreamGetId", api.StreamGetId);
  find("cuEventCreate", api.EventCreate);
  find("cuEventDestroy_v2", api.EventDestroy);
  find("cuEventRecord", api.EventRecord);
  find("cuEventElapsedTime", api.EventElapsedTime);
  if (!missing.empty()) {
    return no_driver(
        fmt::format("libcuda.so.1 lacks {}: the driver is too old (CUDA 12.0 or later "
                    "is needed)",
                    missing));
  }
  if (const int code = init(0); code != 0) {
    return no_driver(fmt::format("cuInit fails with CUDA error {}", code));
  }
  int count = 0;
  if (const int code = api.DeviceGetCount(&count); code != 0 || count == 0) {
    return no_driver(fmt::format("the driver sees no device (CUDA error {})", code));
  }
  return api;
}

// From cuda.h, CUdevice_attribute.
constexpr int kMultiprocessorCount = 16;
constexpr int kComputeMajor = 75;
constexpr int kComputeMinor = 76;
constexpr int kHopperMajor = 9;

// A pool of the library's own, so that the process's default one keeps its settings. What a pool
// is not told to keep goes back to the system whenever a stream is waited for, and the next call
// pays for mapping it again.
Status make_pool(const Driver& api, DeviceInfo& info) {
  constexpr int kPinned = 1;            // CU_MEM_ALLOCATION_TYPE_PINNED
  constexpr int kDeviceLocation = 1;    // CU_MEM_LOCATION_TYPE_DEVICE
  constexpr int kReleaseThreshold = 4;  // CU_MEMPOOL_ATTR_RELEASE_THRESHOLD
  MemoryPoolProperties properties{};
  properties.allocation_type = kPinned;
  properties.location_type = kDeviceLocation;
  properties.location_id = info.ordinal;
  if (Status s = api.check(api.MemPoolCreate(&info.pool, &properties), "cuMemPoolCreate");
      !s.ok()) {
    return s;
  }
  std::uint64_t kept_bytes = std::uint64_t{256} << 20U;  // an operand of 16384 x 16384
  return api.check(api.MemPoolSetAttribute(info.pool, kReleaseThreshold, &kept_bytes),
                   "cuMemPoolSetAttribute");
}

Result<DeviceInfo> look_up(int ordinal) {
  const Result<Driver>& found = driver();
  if (!found.ok()) return found.error();
  const Driver& api = found.value();
  int device = 0;
  DeviceInfo info;
  info.ordinal = ordinal;
  if (Status s = api.check(api.DeviceGet(&device, ordinal), "cuDeviceGet"); !s.ok()) {
    return s.error();
  }
  if (Status s = api.check(
          api.DeviceGetAttribute(&info.num_multiprocessors, kMultiprocessorCount, device) |
              api.DeviceGetAttribute(&info.compute_major, kComputeMajor, device) |
              api.DeviceGetAttribute(&info.compute_minor, kComputeMinor, device),
          "cuDeviceGetAttribute");
      !s.ok()) {
    return s.error();
  }
  if (info.compute_major != kHopperMajor || info.compute_minor != 0) {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("cuda: device {} has compute capability {}.{}; Octavo's kernels are "
                             "for 9.0 (H100, H200). Use another device or the back end \"cpu\".",
                             ordinal, info.compute_major, info.compute_minor));
  }
  if (Status s =
          api.check(api.DevicePrimaryCtxRetain(&info.context, device), "cuDevicePrimaryCtxRetain");
      !s.ok()) {
    return s.error();
  }
  if (Status s = make_pool(api, info); !s.ok()) return s.error();
  return info;
}

}  // namespace

Status Driver::check(int code, std::string_view call) const {
  if (code == 0) return Ok{};
  const char* text = nullptr;
  if (GetErrorString(code, &text) != 0 || text == nullptr) text = "unknown error";
  return Error(ErrorCode::kEnvironment,
               fmt::format("cuda: {} fails with CUDA error {}: {}. If an earlier kernel of this "
                           "process failed, every later call does.",
                           call, code, text));
}

const Result<Driver>& driver() {
  static const Result<Driver> loaded = load();
  return loaded;
}

const Result<DeviceInfo>& device_info(int ordinal) {
  constexpr int kMaxDevices = 64;
  static const Result<DeviceInfo> out_of_range =
      Error(ErrorCode::kInvalidArgument,
            fmt::format("cuda: a device ordinal outside 0 to {} was given.", kMaxDevices - 1));
  if (ordinal < 0 || ordinal >= kMaxDevices) return out_of_range;
  // Never freed: what was said of a device holds until the process ends.
  static std::array<std::atomic<const Result<DeviceInfo>*>, kMaxDevices> known{};
  auto& entry = known[static_cast<std::size_t>(ordinal)];
  if (const auto* info = entry.load(std::memory_order_acquire); info != nullptr) return *info;
  static std::mutex mutex;
  const std::scoped_lock lock(mutex);
  if (entry.load(std::memory_order_acquire) == nullptr) {
    entry.store(std::make_unique<const Result<DeviceInfo>>(look_up(ordinal)).release(),
                std::memory_order_release);
  }
  return *entry.load(std::memory_order_acquire);
}

}  // namespace octavo::cuda
