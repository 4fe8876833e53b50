// SPDX-License-Identifier: Apache-2.0
// The CUDA driver as Octavo uses it: libcuda.so.1, opened at run time, and the functions called by
// name. The few types and numbers of cuda.h that they take are repeated here, so that nothing of
// CUDA is needed to build.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "octavo/error.hpp"

namespace octavo::cuda {

using DevicePointer = unsigned long long;  // CUdeviceptr

struct ClusterExtents {
  unsigned x;
  unsigned y;
  unsigned z;
};

// CUlaunchAttribute of cuda.h: an id, padding to 8 bytes and a union of 64, of which these members
// are used.
struct LaunchAttribute {
  int id;
  char pad[4];
  union {
    ClusterExtents cluster;
    int programmatic_serialization;
    char all[64];
  };
};
inline constexpr int kClusterDimension = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
// CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the kernel may start before the one before
// it has ended, and waits for it by itself.
inline constexpr int kProgrammaticSerialization = 6;

// CUlaunchConfig of cuda.h.
struct LaunchConfig {
  unsigned grid[3];
  unsigned block[3];
  unsigned shared_bytes;
  void* stream;
  LaunchAttribute* attributes;
  unsigned num_attributes;
};

// CUmemPoolProps of cuda.h.
struct MemoryPoolProperties {
  int allocation_type;
  int handle_types;
  int location_type;
  int location_id;
  void* security_attributes;
  std::size_t max_bytes;
  unsigned short usage;
  unsigned char reserved[54];
};

// Function pointers keep the names they have in cuda.h, without "cu".
struct Driver {
  int (*GetErrorString)(int, const char**);
  int (*DriverGetVersion)(int*);
  int (*DeviceGet)(int*, int);
  int (*DeviceGetCount)(int*);
  int (*DeviceGetAttribute)(int*, int, int);
  int (*DeviceGetName)(char*, int, int);
  int (*DeviceTotalMem)(std::size_t*, int);
  int (*DevicePrimaryCtxRetain)(void**, int);
  int (*CtxPushCurrent)(void*);
  int (*CtxPopCurrent)(void**);
  int (*ModuleLoadData)(void**, const void*);
  int (*ModuleUnload)(void*);
  int (*ModuleGetFunction)(void**, void*, const char*);
  int (*FuncSetAttribute)(void*, int, int);
  int (*LaunchKernelEx)(const LaunchConfig*, void*, void**, void**);
  int (*TensorMapEncodeTiled)(void*, int, std::uint32_t, void*, const std::uint64_t*,
                              const std::uint64_t*, const std::uint32_t*, const std::uint32_t*, int,
                              int, int, int);
  int (*ThreadExchangeStreamCaptureMode)(int*);
  int (*MemAllocFromPoolAsync)(DevicePointer*, std::size_t, void*, void*);
  int (*MemFreeAsync)(DevicePointer, void*);
  int (*MemPoolCreate)(void**, const MemoryPoolProperties*);
  int (*MemPoolSetAttribute)(void*, int, void*);
  int (*MemAlloc)(DevicePointer*, std::size_t);
  int (*MemFree)(DevicePointer);
  int (*MemcpyHtoD)(DevicePointer, const void*, std::size_t);
  int (*MemcpyDtoH)(void*, DevicePointer, std::size_t);
  int (*MemcpyDtoDAsync)(DevicePointer, DevicePointer, std::size_t, void*);
  int (*MemsetD8Async)(DevicePointer, unsigned char, std::size_t, void*);
  int (*StreamCreate)(void**, unsigned);
  int (*StreamDestroy)(void*);
  int (*StreamSynchronize)(void*);
  int (*StreamIsCapturing)(void*, int*);
  int (*StreamGetId)(void*, std::uint64_t*);
  int (*EventCreate)(void**, unsigned);
  int (*EventDestroy)(void*);
  int (*EventRecord)(void*, void*);
  int (*EventElapsedTime)(float*, void*, void*);

  // Ok if `code` is 0, else an error that names the call and says what CUDA says.
  [[nodiscard]] Status check(int code, std::string_view call) const;
};

// The driver, initialised; or why there is none. Loaded once, on the first call.
[[nodiscard]] const Result<Driver>& driver();

struct DeviceInfo {
  int ordinal = 0;
  int num_multiprocessors = 0;
  int compute_major = 0;
  int compute_minor = 0;
  void* context = nullptr;  // the primary one, retained for the life of the process
  void* pool = nullptr;     // CUmemoryPool for scratch of calls that bring no workspace
};

// Device `ordinal`, looked up once. An error if it does not exist or is not of compute
// capability 9.0.
[[nodiscard]] const Result<DeviceInfo>& device_info(int ordinal);

// Makes a device's context current for a scope.
class ContextScope {
 public:
  ContextScope(const Driver& api, void* context)
      : api_(api), pushed_(api.CtxPushCurrent(context) == 0) {}
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;
  ~ContextScope() {
    void* popped = nullptr;
    if (pushed_) (void)api_.CtxPopCurrent(&popped);
  }

 private:
  const Driver& api_;
  bool pushed_;
};

// Lets this thread load modules while a stream is captured somewhere, for a scope. Loading puts
// nothing on a stream; without this, CUDA would break the capture off.
class RelaxedCapture {
 public:
  explicit RelaxedCapture(const Driver& api) : api_(api) {
    exchanged_ = api_.ThreadExchangeStreamCaptureMode(&mode_) == 0;
  }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() {
    if (exchanged_) (void)api_.ThreadExchangeStreamCaptureMode(&mode_);
  }

 private:
  static constexpr int kRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

  const Driver& api_;
  int mode_ = kRelaxed;
  bool exchanged_ = false;
};

}  // namespace octavo::cuda
