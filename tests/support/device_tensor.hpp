// SPDX-License-Identifier: Apache-2.0
// Tensors in the memory of GPU 0, through the driver. Only for tests that carry the label gpu.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cuda/driver.hpp"
#include "support/host_tensor.hpp"

namespace octavo::test {

class Gpu {
 public:
  // GPU 0, its context current on this thread from now on. Throws octavo::Error where there is
  // none.
  static const Gpu& instance() {
    static const Gpu gpu;
    thread_local const bool pushed = [] {
      const cuda::DeviceInfo& device = cuda::device_info(0).value();
      require(cuda::driver().value().CtxPushCurrent(device.context), "cuCtxPushCurrent");
      return true;
    }();
    (void)pushed;
    return gpu;
  }

  [[nodiscard]] cuda::DevicePointer allocate(std::size_t bytes) const {
    cuda::DevicePointer pointer = 0;
    require(allocate_(&pointer, bytes), "cuMemAlloc");
    return pointer;
  }
  void free(cuda::DevicePointer pointer) const { require(free_(pointer), "cuMemFree"); }
  void upload(cuda::DevicePointer to, const void* from, std::size_t bytes) const {
    require(upload_(to, from, bytes), "cuMemcpyHtoD");
  }
  void download(void* to, cuda::DevicePointer from, std::size_t bytes) const {
    require(download_(to, from, bytes), "cuMemcpyDtoH");
  }
  void synchronize() const { require(synchronize_(), "cuCtxSynchronize"); }

 private:
  Gpu() {
    (void)cuda::device_info(0).value();
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    const auto find = [&](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      if (function == nullptr) throw Error(ErrorCode::kEnvironment, name);
    };
    find("cuMemAlloc_v2", allocate_);
    find("cuMemFree_v2", free_);
    find("cuMemcpyHtoD_v2", upload_);
    find("cuMemcpyDtoH_v2", download_);
    find("cuCtxSynchronize", synchronize_);
  }
  static void require(int code, const char* call) {
    (void)cuda::driver().value().check(code, call).value();
  }

  int (*allocate_)(cuda::DevicePointer*, std::size_t) = nullptr;
  int (*free_)(cuda::DevicePointer) = nullptr;
  int (*upload_)(cuda::DevicePointer, const void*, std::size_t) = nullptr;
  int (*download_)(void*, cuda::DevicePointer, std::size_t) = nullptr;
  int (*synchronize_)() = nullptr;
};

// A copy in device memory of what a view reads, in the same strides, negative ones too. The bytes
// around it are poison that must still be there when the copy is looked at again.
class DeviceTensor {
 public:
  // `shift`: bytes by which the memory begins past a multiple of 256.
  explicit DeviceTensor(const TensorView& host, std::size_t shift = 0) : view_(host) {
    if (host.absent()) return;
    if (host.num_elements() == 0) {
      view_.device = {DeviceKind::kCuda, 0};
      return;
    }
    std::int64_t first = 0;
    std::int64_t last = 0;
    for (int i = 0; i < host.rank; ++i) {
      const auto d = static_cast<std::size_t>(i);
      const std::int64_t reach = (host.shape[d] - 1) * host.strides[d];
      (reach < 0 ? first : last) += reach;
    }
    before_ = static_cast<std::size_t>(-first * size_bytes(host.dtype));
    bytes_ = static_cast<std::size_t>((last - first + 1) * size_bytes(host.dtype));
    begin_ = kGuardBytes + shift;
    memory_ = Gpu::instance().allocate(begin_ + bytes_ + kGuardBytes);
    const std::vector<std::uint8_t> guard(begin_, kGuard);
    Gpu::instance().upload(memory_, guard.data(), begin_);
    Gpu::instance().upload(memory_ + begin_, static_cast<const std::uint8_t*>(host.data) - before_,
                           bytes_);
    Gpu::instance().upload(memory_ + begin_ + bytes_, guard.data(), kGuardBytes);
    view_.data = reinterpret_cast<const void*>(memory_ + begin_ + before_);
    view_.device = {DeviceKind::kCuda, 0};
  }
  DeviceTensor(const DeviceTensor&) = delete;
  DeviceTensor& operator=(const DeviceTensor&) = delete;
  ~DeviceTensor() {
    if (memory_ != 0) Gpu::instance().free(memory_);
  }

  [[nodiscard]] TensorView view() const { return view_; }
  [[nodiscard]] MutableTensorView mutable_view() const {
    return {const_cast<void*>(view_.data),
            view_.dtype,
            view_.rank,
            view_.shape,
            view_.strides,
            view_.device};
  }

  // What bytes() gave.
  void set_bytes(const std::vector<std::uint8_t>& bytes) const {
    Gpu::instance().upload(memory_ + begin_, bytes.data(), bytes_);
  }

  // What the memory holds now, from the element at the lowest address on. Fails the test if a byte
  // around it changed.
  [[nodiscard]] std::vector<std::uint8_t> bytes() const {
    if (bytes_ == 0) return {};
    std::vector<std::uint8_t> all(begin_ + bytes_ + kGuardBytes);
    Gpu::instance().download(all.data(), memory_, all.size());
    for (std::size_t i = 0; i < all.size(); ++i) {
      const bool is_guard = i < begin_ || i >= begin_ + bytes_;
      if (is_guard && all[i] != kGuard) {
        ADD_FAILURE() << "memory around a tensor was written, at byte " << i << " of "
                      << all.size();
        break;
      }
    }
    return {all.begin() + static_cast<std::ptrdiff_t>(begin_),
            all.begin() + static_cast<std::ptrdiff_t>(begin_ + bytes_)};
  }
  // Where in bytes() the view's first element is.
  [[nodiscard]] std::size_t first_element() const { return before_; }

 private:
  static constexpr std::size_t kGuardBytes = 1024;
  static constexpr std::uint8_t kGuard = 0xA5;

  TensorView view_;
  cuda::DevicePointer memory_ = 0;
  std::size_t begin_ = 0;
  std::size_t before_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace octavo::test
