// SPDX-License-Identifier: Apache-2.0
// Device memory for the time of one call, from the device's pool and in the order of its stream:
// it is taken when the work before it is done and given back when the call's kernels are.
#pragma once

#include <cstddef>

#include "cuda/driver.hpp"
#include "octavo/error.hpp"

namespace octavo::cuda {

class PoolMemory {
 public:
  PoolMemory(const DeviceInfo& device, void* stream) : device_(device), stream_(stream) {}
  PoolMemory(const PoolMemory&) = delete;
  PoolMemory& operator=(const PoolMemory&) = delete;
  ~PoolMemory() {
    if (memory_ != 0) (void)driver().value().MemFreeAsync(memory_, stream_);
  }

  // Once.
  Result<std::byte*> allocate(std::size_t bytes) {
    const Driver& api = driver().value();
    const int code = api.MemAllocFromPoolAsync(&memory_, bytes, device_.pool, stream_);
    if (Status s = api.check(code, "cuMemAllocFromPoolAsync"); !s.ok()) return s.error();
    // A device address has no other form than this integer.
    return reinterpret_cast<std::byte*>(memory_);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  const DeviceInfo& device_;
  void* stream_;
  DevicePointer memory_ = 0;
};

}  // namespace octavo::cuda
