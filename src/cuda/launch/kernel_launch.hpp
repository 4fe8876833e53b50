// SPDX-License-Identifier: Apache-2.0
// Puts kernels on a call's stream. Each of them may start early: it begins by waiting for the ones
// before it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "cuda/driver.hpp"
#include "cuda/jit/loaded_kernel.hpp"
#include "octavo/error.hpp"

namespace octavo::cuda {

class KernelLauncher {
 public:
  KernelLauncher(const DeviceInfo& device, void* stream)
      : api_(driver().value()), device_(device), stream_(stream) {}

  [[nodiscard]] const Driver& api() const { return api_; }
  [[nodiscard]] const DeviceInfo& device() const { return device_; }
  [[nodiscard]] void* stream() const { return stream_; }

  // `cluster`: thread blocks of a cluster; 0 for a kernel without clusters.
  template <typename Params>
  Status launch(void* function, std::int64_t grid, int block, int shared_bytes, int cluster,
                Params& params) const {
    std::array<LaunchAttribute, 2> attributes{};
    attributes[0].id = kProgrammaticSerialization;
    attributes[0].programmatic_serialization = 1;
    attributes[1].id = kClusterDimension;
    attributes[1].cluster = {static_cast<unsigned>(cluster), 1, 1};
    const LaunchConfig config{{static_cast<unsigned>(grid), 1, 1},
                              {static_cast<unsigned>(block), 1, 1},
                              static_cast<unsigned>(shared_bytes),
                              stream_,
                              attributes.data(),
                              cluster > 0 ? 2U : 1U};
    void* arguments[] = {&params};
    return api_.check(api_.LaunchKernelEx(&config, function, arguments, nullptr),
                      "cuLaunchKernelEx");
  }

  // A small kernel whose thread blocks take `tiles` pieces of work in turn.
  template <typename Params>
  Status launch_small(const char* entry, KernelSource (*source)(), std::int64_t tiles, int block,
                      Params& params) const {
    const Result<void*> function = loaded_kernel(device_, entry, source, 0);
    if (!function.ok()) return function.error();
    // More than run at once: the last ones to finish are then short.
    constexpr std::int64_t kBlocksPerMultiprocessor = 16;
    const std::int64_t grid =
        std::clamp<std::int64_t>(tiles, 1, kBlocksPerMultiprocessor * device_.num_multiprocessors);
    return launch(function.value(), grid, block, 0, 0, params);
  }

 private:
  const Driver& api_;
  const DeviceInfo& device_;
  void* stream_;
};

}  // namespace octavo::cuda
