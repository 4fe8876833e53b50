// SPDX-License-Identifier: Apache-2.0
// One stream of GPU 0 as measurements need it: fills, graphs and their time, through the driver,
// which is looked for at run time (nothing of CUDA is needed to build). Memory is
// octavo::DeviceMemory's.
// Work that never ends ends the process.
#pragma once

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
#include "octavo/tensor_view.hpp"

namespace octavo::measure {

// The one that is measured.
inline constexpr Device kGpu{DeviceKind::kCuda, 0};

class GpuStream {
 public:
  GpuStream() {
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) {
      throw Error(ErrorCode::kEnvironment,
                  "libcuda.so.1 is not on the library search path; measuring on a GPU needs "
                  "NVIDIA's driver. Install it.");
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
    need("cuDeviceGet", device_get_);
    need("cuDeviceGetPCIBusId", device_bus_id_);
    need("cuDevicePrimaryCtxRetain", retain_context_);
    need("cuCtxSetCurrent", set_context_);
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
    check(device_get_(&device_, kGpu.ordinal), "cuDeviceGet");
    void* context = nullptr;
    check(retain_context_(&context, device_), "cuDevicePrimaryCtxRetain");
    check(set_context_(context), "cuCtxSetCurrent");
    check(create_stream_(&stream_, kNonBlocking), "cuStreamCreate");
    check(create_event_(&begin_, 0), "cuEventCreate");
    check(create_event_(&end_, 0), "cuEventCreate");
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  // NOTE: stream and events live as long as the process, which ends with this object.
  ~GpuStream() = default;

  [[nodiscard]] void* stream() const { return stream_; }

  [[nodiscard]] std::string bus_id() const {
    std::array<char, 64> text{};
    check(device_bus_id_(text.data(), static_cast<int>(text.size()), device_),
          "cuDeviceGetPCIBusId");
    return text.data();
  }
  // Both are put on the stream; all memory is the GPU's.
  void copy(void* to, const void* from, std::size_t bytes) const {
    check(copy_(address_of(to), address_of(from), bytes, stream_), "cuMemcpyDtoDAsync");
  }
  void fill(void* to, unsigned char value, std::size_t bytes) const {
    check(fill_(address_of(to), value, bytes, stream_), "cuMemsetD8Async");
  }

  // Until everything on the stream is done. Throws what went wrong there.
  void wait() const {
    constexpr auto kLimit = std::chrono::seconds(20);
    constexpr auto kPause = std::chrono::microseconds(100);
    constexpr int kHangExitCode = 3;
    const auto begin = std::chrono::steady_clock::now();
    for (;;) {
      const int code = query_stream_(stream_);
      if (code == 0) return;
      if (code != kNotReady) check(code, "the work on the stream");
      if (std::chrono::steady_clock::now() - begin > kLimit) {
        fmt::print(stderr, "\nHANG: work on the GPU has not ended after 20 s.\n");
        // Without destructors: freeing memory would wait for the GPU.
        std::_Exit(kHangExitCode);
      }
      std::this_thread::sleep_for(kPause);
    }
  }

  // What `enqueue` puts on the stream, as a graph.
  [[nodiscard]] void* capture(const std::function<void()>& enqueue) const {
    check(begin_capture_(stream_, kCaptureRelaxed), "cuStreamBeginCapture");
    void* graph = nullptr;
    try {
      enqueue();
    } catch (...) {
      if (end_capture_(stream_, &graph) == 0 && graph != nullptr) {
        (void)destroy_graph_(graph);
      }
      throw;
    }
    check(end_capture_(stream_, &graph), "cuStreamEndCapture");
    void* executable = nullptr;
    const int code = instantiate_(&executable, graph, 0);
    (void)destroy_graph_(graph);
    check(code, "cuGraphInstantiateWithFlags");
    return executable;
  }
  void destroy(void* graph) const noexcept { (void)destroy_executable_(graph); }

  // Milliseconds on the GPU for `count` replays.
  [[nodiscard]] double replay(void* graph, std::int64_t count) const {
    check(record_event_(begin_, stream_), "cuEventRecord");
    for (std::int64_t i = 0; i < count; ++i) check(launch_graph_(graph, stream_), "cuGraphLaunch");
    check(record_event_(end_, stream_), "cuEventRecord");
    wait();
    float ms = 0;
    check(elapsed_(&ms, begin_, end_), "cuEventElapsedTime");
    return ms;
  }

  void check(int code, std::string_view call) const {
    if (code == 0) return;
    const char* text = nullptr;
    if (error_string_(code, &text) != 0 || text == nullptr) text = "unknown error";
    throw Error(ErrorCode::kEnvironment,
                fmt::format("{} fails with CUDA error {}: {}", call, code, text));
  }

 private:
  // From cuda.h.
  static constexpr int kNotReady = 600;        // CUDA_ERROR_NOT_READY
  static constexpr int kCaptureRelaxed = 2;    // CU_STREAM_CAPTURE_MODE_RELAXED
  static constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING

  using Address = unsigned long long;  // CUdeviceptr
  static Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

  // Prototypes of cuda.h: every handle is a pointer, every result an int.
  int (*error_string_)(int, const char**) = nullptr;
  int (*init_)(unsigned) = nullptr;
  int (*device_get_)(int*, int) = nullptr;
  int (*device_bus_id_)(char*, int, int) = nullptr;
  int (*retain_context_)(void**, int) = nullptr;
  int (*set_context_)(void*) = nullptr;
  int (*copy_)(Address, Address, std::size_t, void*) = nullptr;
  int (*fill_)(Address, unsigned char, std::size_t, void*) = nullptr;
  int (*create_stream_)(void**, unsigned) = nullptr;
  int (*query_stream_)(void*) = nullptr;
  int (*begin_capture_)(void*, int) = nullptr;
  int (*end_capture_)(void*, void**) = nullptr;
  int (*instantiate_)(void**, void*, unsigned long long) = nullptr;
  int (*launch_graph_)(void*, void*) = nullptr;
  int (*destroy_graph_)(void*) = nullptr;
  int (*destroy_executable_)(void*) = nullptr;
  int (*create_event_)(void**, unsigned) = nullptr;
  int (*record_event_)(void*, void*) = nullptr;
  int (*elapsed_)(float*, void*, void*) = nullptr;
  int device_ = 0;
  void* stream_ = nullptr;
  void* begin_ = nullptr;
  void* end_ = nullptr;
};

// A graph, destroyed with its owner.
class Graph {
 public:
  Graph(const GpuStream& gpu, const std::function<void()>& enqueue)
      : gpu_(gpu), graph_(gpu.capture(enqueue)) {}
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph() { gpu_.destroy(graph_); }

  [[nodiscard]] double replay_ms(std::int64_t count) const { return gpu_.replay(graph_, count); }

 private:
  const GpuStream& gpu_;
  void* graph_;
};

}  // namespace octavo::measure
