// SPDX-License-Identifier: Apache-2.0
// One function of a cubin on GPU 0, launched with any arguments.
#pragma once

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "measure/gpu_stream.hpp"

namespace octavo::measure {

struct LaunchShape {
  std::array<unsigned, 3> grid{1, 1, 1};
  std::array<unsigned, 3> block{1, 1, 1};
  std::array<unsigned, 3> cluster{1, 1, 1};
  unsigned shared_bytes = 0;  // dynamic
};

class GpuKernel {
 public:
  GpuKernel(const GpuStream& gpu, const std::vector<std::byte>& cubin, const std::string& function,
            const LaunchShape& shape)
      : gpu_(gpu), shape_(shape) {
    // GpuStream has opened it.
    void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const auto need = [library](const char* name, auto& symbol) {
      symbol = reinterpret_cast<std::remove_reference_t<decltype(symbol)>>(dlsym(library, name));
      if (symbol == nullptr) {
        throw Error(ErrorCode::kEnvironment, fmt::format("libcuda.so.1 lacks {}", name));
      }
    };
    need("cuModuleLoadData", load_);
    need("cuModuleUnload", unload_);
    need("cuModuleGetFunction", get_function_);
    need("cuFuncSetAttribute", set_attribute_);
    need("cuLaunchKernelEx", launch_);
    gpu.check(load_(&module_, cubin.data()), "cuModuleLoadData");
    try {
      gpu.check(get_function_(&function_, module_, function.c_str()), "cuModuleGetFunction");
      constexpr int kMaxDynamicSharedBytes = 8;  // CUfunction_attribute of cuda.h
      gpu.check(
          set_attribute_(function_, kMaxDynamicSharedBytes, static_cast<int>(shape.shared_bytes)),
          "cuFuncSetAttribute");
    } catch (...) {
      (void)unload_(module_);
      throw;
    }
  }
  GpuKernel(const GpuKernel&) = delete;
  GpuKernel& operator=(const GpuKernel&) = delete;
  ~GpuKernel() { (void)unload_(module_); }

  // `arguments`: the address of each parameter's value.
  void launch(void** arguments) const {
    Attribute cluster{};
    cluster.id = kClusterDimension;
    cluster.extents = shape_.cluster;
    const bool has_cluster = shape_.cluster[0] * shape_.cluster[1] * shape_.cluster[2] > 1;
    const Config config{shape_.grid,   shape_.block, shape_.shared_bytes,
                        gpu_.stream(), &cluster,     has_cluster ? 1U : 0U};
    gpu_.check(launch_(&config, function_, arguments, nullptr), "cuLaunchKernelEx");
  }

 private:
  static constexpr int kClusterDimension = 4;  // CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
  // CUlaunchAttribute and CUlaunchConfig of cuda.h.
  struct Attribute {
    int id;
    char pad[4];
    std::array<unsigned, 3> extents;
    char rest[64 - 3 * sizeof(unsigned)];
  };
  struct Config {
    std::array<unsigned, 3> grid;
    std::array<unsigned, 3> block;
    unsigned shared_bytes;
    void* stream;
    Attribute* attributes;
    unsigned num_attributes;
  };

  const GpuStream& gpu_;
  LaunchShape shape_;
  void* module_ = nullptr;
  void* function_ = nullptr;
  int (*load_)(void**, const void*) = nullptr;
  int (*unload_)(void*) = nullptr;
  int (*get_function_)(void**, void*, const char*) = nullptr;
  int (*set_attribute_)(void*, int, int) = nullptr;
  int (*launch_)(const Config*, void*, void**, void**) = nullptr;
};

}  // namespace octavo::measure
