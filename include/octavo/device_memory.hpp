// SPDX-License-Identifier: Apache-2.0
// Memory of a CUDA device, for programs that have none of their own: allocate, copy, wait. Whoever
// has device memory already (PyTorch, the CUDA runtime) passes its addresses in views instead; both
// live in the device's primary context.
//
// Thread safety: every function may be called from any thread; two calls that write the same bytes
// are a data race. No CUDA context needs to be current, and which one is does not change.
#pragma once

#include <cstddef>

#include "octavo/tensor_view.hpp"

namespace octavo {

// Owns bytes on a device; freed when destroyed, after work that was put on it has ended.
class DeviceMemory {
 public:
  DeviceMemory() = default;  // nothing
  // Uninitialised, 256-byte aligned; 0 bytes allocate nothing. Throws Error: kInvalidArgument for a
  // device that is not cuda:N, kEnvironment without a driver or where memory runs out, kUnsupported
  // for a GPU that Octavo has no kernels for.
  DeviceMemory(Device device, std::size_t num_bytes);
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  ~DeviceMemory();

  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t num_bytes() const noexcept { return num_bytes_; }
  [[nodiscard]] Device device() const noexcept { return device_; }

  // Both return when the copy is done. They wait for earlier work on the default stream, not for
  // work on streams that were created non-blocking: synchronize() those first. Throw Error
  // kInvalidArgument if `offset` + `num_bytes` is more than there is, kEnvironment if CUDA fails.
  void copy_from_host(const void* from, std::size_t num_bytes, std::size_t offset = 0);
  void copy_to_host(void* to, std::size_t num_bytes, std::size_t offset = 0) const;

 private:
  void* data_ = nullptr;
  std::size_t num_bytes_ = 0;
  Device device_{DeviceKind::kCuda, 0};
};

// Until everything on a stream of the device (null: its default stream) has ended. Throws what went
// wrong there, as Error kEnvironment.
void synchronize(Device device, void* stream = nullptr);

}  // namespace octavo
