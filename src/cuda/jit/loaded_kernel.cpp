// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/loaded_kernel.hpp"

#include <map>
#include <mutex>
#include <shared_mutex>
#include <unordered_map>
#include <utility>

#include "cuda/jit/process_cache.hpp"

namespace octavo::cuda {
namespace {

Result<void*> load(const DeviceInfo& device, const KernelSource& source, int shared_bytes) {
  Result<CompiledKernel> compiled = planned_kernel(source);
  if (!compiled.ok()) return compiled.error();
  const Driver& api = driver().value();
  const ContextScope scope(api, device.context);
  const RelaxedCapture relaxed(api);
  void* module = nullptr;
  if (Status s =
          api.check(api.ModuleLoadData(&module, compiled.value().cubin.data()), "cuModuleLoadData");
      !s.ok()) {
    return s.error();
  }
  void* function = nullptr;
  if (Status s = api.check(api.ModuleGetFunction(&function, module, source.entry.c_str()),
                           "cuModuleGetFunction");
      !s.ok()) {
    return s.error();
  }
  constexpr int kMaxDynamicSharedBytes = 8;  // CUfunction_attribute of cuda.h
  if (Status s = api.check(api.FuncSetAttribute(function, kMaxDynamicSharedBytes, shared_bytes),
                           "cuFuncSetAttribute");
      !s.ok()) {
    return s.error();
  }
  return function;
}

}  // namespace

Result<void*> loaded_kernel(const DeviceInfo& device, const std::string& entry,
                            const std::function<KernelSource()>& make_source, int shared_bytes) {
  // PERF: every launch passes here: readers do not wait for each other.
  static std::shared_mutex mutex;
  static std::map<int, std::unordered_map<std::string, void*>> loaded;  // by device, then entry
  {
    const std::shared_lock lock(mutex);
    if (const auto of_device = loaded.find(device.ordinal); of_device != loaded.end()) {
      const auto found = of_device->second.find(entry);
      if (found != of_device->second.end()) return found->second;
    }
  }
  // Compiling takes a while and must not keep other kernels waiting. Two threads that load one
  // kernel at once both get a working function; the first one is kept.
  Result<void*> function = load(device, make_source(), shared_bytes);
  if (!function.ok()) return function.error();
  const std::scoped_lock lock(mutex);
  return loaded[device.ordinal].emplace(entry, function.value()).first->second;
}

}  // namespace octavo::cuda
