// SPDX-License-Identifier: Apache-2.0
// Streams and graphs of GPU 0, through the driver.
#pragma once

#include <dlfcn.h>

#include <cstdint>
#include <string>
#include <type_traits>

#include "cuda/driver.hpp"
#include "octavo/error.hpp"
#include "support/device_tensor.hpp"

namespace octavo::test {

// The driver's stream and graph functions, by the names they have in cuda.h without "cu".
struct StreamFunctions {
  int (*create)(void**, unsigned) = nullptr;
  int (*destroy)(void*) = nullptr;
  int (*synchronize)(void*) = nullptr;
  int (*begin_capture)(void*, int) = nullptr;
  int (*end_capture)(void*, void**) = nullptr;
  int (*instantiate)(void**, void*, unsigned long long) = nullptr;
  int (*launch_graph)(void*, void*) = nullptr;
  int (*destroy_graph)(void*) = nullptr;
  int (*destroy_executable)(void*) = nullptr;

  static const StreamFunctions& get() {
    static const StreamFunctions functions = [] {
      void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
      const auto find = [&](const char* name, auto& function) {
        function =
            reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
        if (function == nullptr) throw Error(ErrorCode::kEnvironment, name);
      };
      StreamFunctions found;
      find("cuStreamCreate", found.create);
      find("cuStreamDestroy_v2", found.destroy);
      find("cuStreamSynchronize", found.synchronize);
      find("cuStreamBeginCapture_v2", found.begin_capture);
      find("cuStreamEndCapture", found.end_capture);
      find("cuGraphInstantiateWithFlags", found.instantiate);
      find("cuGraphLaunch", found.launch_graph);
      find("cuGraphDestroy", found.destroy_graph);
      find("cuGraphExecDestroy", found.destroy_executable);
      return found;
    }();
    return functions;
  }
};

// A stream that does not wait for the default one.
class GpuStream {
 public:
  GpuStream() {
    (void)Gpu::instance();  // the context, on this thread
    constexpr unsigned kNonBlocking = 1;
    require(StreamFunctions::get().create(&stream_, kNonBlocking), "cuStreamCreate");
  }
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;
  ~GpuStream() {
    if (graph_ != nullptr) (void)StreamFunctions::get().destroy_executable(graph_);
    (void)StreamFunctions::get().destroy(stream_);
  }

  [[nodiscard]] void* get() const { return stream_; }
  void wait() const { require(StreamFunctions::get().synchronize(stream_), "the stream's work"); }

  // What `enqueue` puts on the stream becomes the graph that replay() runs.
  template <typename F>
  void capture(const F& enqueue) {
    constexpr int kGlobal = 0;  // the strictest mode
    require(StreamFunctions::get().begin_capture(stream_, kGlobal), "cuStreamBeginCapture");
    std::string error;
    try {
      enqueue();
    } catch (const Error& thrown) {
      error = thrown.what();
    }
    void* graph = nullptr;
    const int code = StreamFunctions::get().end_capture(stream_, &graph);
    if (!error.empty()) throw Error(ErrorCode::kEnvironment, error);
    require(code, "cuStreamEndCapture");
    require(StreamFunctions::get().instantiate(&graph_, graph, 0), "cuGraphInstantiate");
    require(StreamFunctions::get().destroy_graph(graph), "cuGraphDestroy");
  }
  void replay() const {
    require(StreamFunctions::get().launch_graph(graph_, stream_), "cuGraphLaunch");
  }

 private:
  static void require(int code, const char* call) {
    (void)cuda::driver().value().check(code, call).value();
  }

  void* stream_ = nullptr;
  void* graph_ = nullptr;
};

}  // namespace octavo::test
