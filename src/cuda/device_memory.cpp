// SPDX-License-Identifier: Apache-2.0
#include "octavo/device_memory.hpp"

#include <fmt/format.h>

#include <utility>

#include "cuda/driver.hpp"

namespace octavo {
namespace {

// The driver and the device's context, current for a scope.
class CurrentDevice {
 public:
  explicit CurrentDevice(Device device)
      : info_(found(device)), scope_(cuda::driver().value(), info_.context) {}

  [[nodiscard]] const cuda::Driver& api() const { return cuda::driver().value(); }
  void require(int code, const std::string& call) const { (void)api().check(code, call).value(); }

 private:
  static const cuda::DeviceInfo& found(Device device) {
    if (device.kind != DeviceKind::kCuda) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("device memory: device is {}; it must be a GPU, cuda:N. Ordinary "
                              "memory needs no DeviceMemory.",
                              to_string(device)));
    }
    return cuda::device_info(device.ordinal).value();
  }

  const cuda::DeviceInfo& info_;
  cuda::ContextScope scope_;
};

cuda::DevicePointer address_of(const void* data, std::size_t offset) {
  return reinterpret_cast<cuda::DevicePointer>(data) + offset;
}

void check_range(const DeviceMemory& memory, std::size_t num_bytes, std::size_t offset) {
  if (offset <= memory.num_bytes() && num_bytes <= memory.num_bytes() - offset) return;
  throw Error(ErrorCode::kInvalidArgument,
              fmt::format("device memory: a copy of {} bytes at {} was asked for; there are {} "
                          "bytes. Allocate more or copy less.",
                          num_bytes, offset, memory.num_bytes()));
}

}  // namespace

DeviceMemory::DeviceMemory(Device device, std::size_t num_bytes)
    : num_bytes_(num_bytes), device_(device) {
  const CurrentDevice current(device);
  if (num_bytes == 0) return;
  cuda::DevicePointer pointer = 0;
  current.require(current.api().MemAlloc(&pointer, num_bytes),
                  fmt::format("cuMemAlloc of {} bytes on {}", num_bytes, to_string(device)));
  // A device address has no other form than this integer.
  data_ = reinterpret_cast<void*>(pointer);  // NOLINT(performance-no-int-to-ptr)
}

DeviceMemory::DeviceMemory(DeviceMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      num_bytes_(std::exchange(other.num_bytes_, 0)),
      device_(other.device_) {}

DeviceMemory& DeviceMemory::operator=(DeviceMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(num_bytes_, other.num_bytes_);
  std::swap(device_, other.device_);
  return *this;
}

DeviceMemory::~DeviceMemory() {
  if (data_ == nullptr) return;
  const cuda::Driver& api = cuda::driver().value();
  const cuda::ContextScope scope(api, cuda::device_info(device_.ordinal).value().context);
  (void)api.MemFree(address_of(data_, 0));
}

void DeviceMemory::copy_from_host(const void* from, std::size_t num_bytes, std::size_t offset) {
  check_range(*this, num_bytes, offset);
  if (num_bytes == 0) return;
  const CurrentDevice current(device_);
  current.require(current.api().MemcpyHtoD(address_of(data_, offset), from, num_bytes),
                  "cuMemcpyHtoD");
  // From pageable memory the call may return while the last bytes are still on their way.
  current.require(current.api().StreamSynchronize(nullptr), "cuStreamSynchronize");
}

void DeviceMemory::copy_to_host(void* to, std::size_t num_bytes, std::size_t offset) const {
  check_range(*this, num_bytes, offset);
  if (num_bytes == 0) return;
  const CurrentDevice current(device_);
  current.require(current.api().MemcpyDtoH(to, address_of(data_, offset), num_bytes),
                  "cuMemcpyDtoH");
}

void synchronize(Device device, void* stream) {
  const CurrentDevice current(device);
  current.require(current.api().StreamSynchronize(stream), "cuStreamSynchronize");
}

}  // namespace octavo
