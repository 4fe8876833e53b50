// SPDX-License-Identifier: Apache-2.0
// GPU 0 for the benchmarks: memory, one stream, graphs and their time, all through the driver,
// which is looked for at run time. Work that never ends ends the process.
#pragma once

#include <cuda.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>

#include "octavo/error.hpp"

namespace octavo::bench {

class Gpu {
 public:
  Gpu() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      throw Error(ErrorCode::kEnvironment, "libcuda.so.1 is not found: this benchmark needs a GPU");
    }
    const auto find = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    const auto need = [&find](const char* name, auto& function) {
      if (!find(name, function)) {
        throw Error(ErrorCode::kEnvironment, fmt::format("libcuda.so.1 lacks {}", name));
      }
    };
    need("cuGetErrorString", error_string_);
    need("cuInit", init_);
    need("cuDriverGetVersion", driver_version_);
    need("cuDeviceGet", device_get_);
    need("cuDeviceGetName", device_name_);
    need("cuDeviceGetPCIBusId", device_bus_id_);
    need("cuDevicePrimaryCtxRetain", retain_context_);
    need("cuCtxSetCurrent", set_context_);
    need("cuCtxSynchronize", synchronize_context_);
    need("cuMemAlloc_v2", allocate_);
    need("cuMemFree_v2", free_);
    need("cuMemcpyHtoD_v2", upload_);
    need("cuMemcpyDtoH_v2", download_);
    need("cuMemcpyDtoDAsync_v2", copy_);
    need("cuMemsetD8Async", fill_);
    need("cuStreamCreate", create_stream_);
    need("cuStreamQuery", query_stream_);
    need("cuStreamBeginCapture_v2", begin_capture_);
    need("cuStreamEndCapture", end_capture_);
    need("cuGraphInstantiateWithFlags", instantiate_);
    need("cuGraphLaunch", launch_graph_);
    need("cuGraphDestroy", destroy_graph_);
    need("cuGraphExecDestroy", destroy_executable_);
    need("cuEventCreate", create_event_);
    need("cuEventRecord", record_event_);
    // NOTE: the second form came with CUDA 12.8; both take the same arguments.
    if (!find("cuEventElapsedTime_v2", elapsed_)) need("cuEventElapsedTime", elapsed_);
    check(init_(0), "cuInit");
    check(device_get_(&device_, 0), "cuDeviceGet");
    CUcontext context = nullptr;
    check(retain_context_(&context, device_), "cuDevicePrimaryCtxRetain");
    check(set_context_(context), "cuCtxSetCurrent");
    check(create_stream_(&stream_, CU_STREAM_NON_BLOCKING), "cuStreamCreate");
    check(create_event_(&begin_, CU_EVENT_DEFAULT), "cuEventCreate");
    check(create_event_(&end_, CU_EVENT_DEFAULT), "cuEventCreate");
  }
  Gpu(const Gpu&) = delete;
  Gpu& operator=(const Gpu&) = delete;
  // NOTE: stream and events live as long as the process, which ends with this object.
  ~Gpu() = default;

  [[nodiscard]] CUstream stream() const { return stream_; }

  [[nodiscard]] std::string name() const {
    std::array<char, 256> text{};
    check(device_name_(text.data(), static_cast<int>(text.size()), device_), "cuDeviceGetName");
    return text.data();
  }
  [[nodiscard]] std::string bus_id() const {
    std::array<char, 64> text{};
    check(device_bus_id_(text.data(), static_cast<int>(text.size()), device_),
          "cuDeviceGetPCIBusId");
    return text.data();
  }
  [[nodiscard]] std::string cuda_version() const {
    int version = 0;
    check(driver_version_(&version), "cuDriverGetVersion");
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
  }

  [[nodiscard]] CUdeviceptr allocate(std::size_t bytes) const {
    CUdeviceptr memory = 0;
    check(allocate_(&memory, bytes), fmt::format("cuMemAlloc of {} bytes", bytes));
    return memory;
  }
  void free(CUdeviceptr memory) const noexcept { (void)free_(memory); }
  void upload(CUdeviceptr to, const void* from, std::size_t bytes) const {
    check(upload_(to, from, bytes), "cuMemcpyHtoD");
    // The copy may still be on its way, and the stream here does not wait for it by itself.
    check(synchronize_context_(), "cuCtxSynchronize");
  }
  void download(void* to, CUdeviceptr from, std::size_t bytes) const {
    check(download_(to, from, bytes), "cuMemcpyDtoH");
  }
  void copy(CUdeviceptr to, CUdeviceptr from, std::size_t bytes) const {
    check(copy_(to, from, bytes, stream_), "cuMemcpyDtoDAsync");
  }
  void fill(CUdeviceptr to, unsigned char value, std::size_t bytes) const {
    check(fill_(to, value, bytes, stream_), "cuMemsetD8Async");
  }

  // Until everything on the stream is done. Throws what went wrong there.
  void wait() const {
    constexpr auto kLimit = std::chrono::seconds(20);
    constexpr auto kPause = std::chrono::microseconds(100);
    constexpr int kHangExitCode = 3;
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      const CUresult code = query_stream_(stream_);
      if (code == CUDA_SUCCESS) return;
      if (code != CUDA_ERROR_NOT_READY) check(code, "the work on the stream");
      if (std::chrono::steady_clock::now() - begin > kLimit) {
        fmt::print(stderr, "\nHANG: work on the GPU has not ended after 20 s.\n");
        // Without destructors: freeing memory would wait for the GPU.
        std::_Exit(kHangExitCode);
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  // What `enqueue` puts on the stream, as a graph.
  [[nodiscard]] CUgraphExec capture(const std::function<void()>& enqueue) const {
    check(begin_capture_(stream_, CU_STREAM_CAPTURE_MODE_RELAXED), "cuStreamBeginCapture");
    CUgraph graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      if (end_capture_(stream_, &graph) == CUDA_SUCCESS && graph != nullptr) {
        (void)destroy_graph_(graph);
      }
      throw;
    }
    check(end_capture_(stream_, &graph), "cuStreamEndCapture");
    CUgraphExec executable = nullptr;
    const CUresult code = instantiate_(&executable, graph, 0);
    (void)destroy_graph_(graph);
    check(code, "cuGraphInstantiateWithFlags");
    return executable;
  }
  void destroy(CUgraphExec graph) const noexcept { (void)destroy_executable_(graph); }

  // Milliseconds on the GPU for `count` replays.
  [[nodiscard]] double replay(CUgraphExec graph, std::int64_t count) const {
    check(record_event_(begin_, stream_), "cuEventRecord");
    for (std::int64_t i = 0; i < count; ++i) check(launch_graph_(graph, stream_), "cuGraphLaunch");
    check(record_event_(end_, stream_), "cuEventRecord");
    wait();
    float ms = 0;
    check(elapsed_(&ms, begin_, end_), "cuEventElapsedTime");
    return ms;
  }

  void check(CUresult code, std::string_view call) const {
    if (code == CUDA_SUCCESS) return;
    const char* text = nullptr;
    if (error_string_(code, &text) != CUDA_SUCCESS || text == nullptr) text = "unknown error";
    throw Error(ErrorCode::kEnvironment,
                fmt::format("{} fails with CUDA error {}: {}", call, static_cast<int>(code), text));
  }

 private:
  decltype(&cuGetErrorString) error_string_ = nullptr;
  decltype(&cuInit) init_ = nullptr;
  decltype(&cuDriverGetVersion) driver_version_ = nullptr;
  decltype(&cuDeviceGet) device_get_ = nullptr;
  decltype(&cuDeviceGetName) device_name_ = nullptr;
  decltype(&cuDeviceGetPCIBusId) device_bus_id_ = nullptr;
  decltype(&cuDevicePrimaryCtxRetain) retain_context_ = nullptr;
  decltype(&cuCtxSetCurrent) set_context_ = nullptr;
  decltype(&cuCtxSynchronize) synchronize_context_ = nullptr;
  decltype(&cuMemAlloc) allocate_ = nullptr;
  decltype(&cuMemFree) free_ = nullptr;
  decltype(&cuMemcpyHtoD) upload_ = nullptr;
  decltype(&cuMemcpyDtoH) download_ = nullptr;
  decltype(&cuMemcpyDtoDAsync) copy_ = nullptr;
  decltype(&cuMemsetD8Async) fill_ = nullptr;
  decltype(&cuStreamCreate) create_stream_ = nullptr;
  decltype(&cuStreamQuery) query_stream_ = nullptr;
  decltype(&cuStreamBeginCapture) begin_capture_ = nullptr;
  decltype(&cuStreamEndCapture) end_capture_ = nullptr;
  decltype(&cuGraphInstantiateWithFlags) instantiate_ = nullptr;
  decltype(&cuGraphLaunch) launch_graph_ = nullptr;
  decltype(&cuGraphDestroy) destroy_graph_ = nullptr;
  decltype(&cuGraphExecDestroy) destroy_executable_ = nullptr;
  decltype(&cuEventCreate) create_event_ = nullptr;
  decltype(&cuEventRecord) record_event_ = nullptr;
  decltype(&cuEventElapsedTime) elapsed_ = nullptr;
  CUdevice device_ = 0;
  CUstream stream_ = nullptr;
  CUevent begin_ = nullptr;
  CUevent end_ = nullptr;
};

// Device memory; empty unless made with a size.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(const Gpu& gpu, std::size_t bytes)
      : gpu_(&gpu), bytes_(bytes), memory_(gpu.allocate(bytes)) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept
      : gpu_(other.gpu_), bytes_(other.bytes_), memory_(std::exchange(other.memory_, 0)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    std::swap(gpu_, other.gpu_);
    std::swap(bytes_, other.bytes_);
    std::swap(memory_, other.memory_);
    return *this;
  }
  ~DeviceBuffer() {
    if (memory_ != 0) gpu_->free(memory_);
  }

  [[nodiscard]] CUdeviceptr address() const { return memory_; }
  [[nodiscard]] void* data() const { return reinterpret_cast<void*>(memory_); }
  [[nodiscard]] std::size_t bytes() const { return bytes_; }

 private:
  const Gpu* gpu_ = nullptr;
  std::size_t bytes_ = 0;
  CUdeviceptr memory_ = 0;
};

// A graph, destroyed with its owner.
class Graph {
 public:
  Graph(const Gpu& gpu, const std::function<void()>& enqueue)
      : gpu_(gpu), graph_(gpu.capture(enqueue)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { gpu_.destroy(graph_); }

  [[nodiscard]] double replay_ms(std::int64_t count) const { return gpu_.replay(graph_, count); }

 private:
  const Gpu& gpu_;
  CUgraphExec graph_;
};

}  // namespace octavo::bench
