// SPDX-License-Identifier: Apache-2.0
// A planned product, put on a stream: copies of operands and scales that the kernel cannot read in
// place, the product, and what writes a D that it cannot write.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

#include "cuda/driver.hpp"
#include "cuda/launch/kernel_launch.hpp"
#include "cuda/prepared_gemm.hpp"
#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cuda {

// Puts the product on execution.stream and returns. Nothing is waited for and no host memory is
// read later, so a call may be part of a graph capture once its kernels are loaded.
[[nodiscard]] Status launch_gemm(const DeviceInfo& device, const GemmProblem& problem,
                                 const Execution& execution, const PreparedGemm& prepared);

// Every kernel of a call; those that must be compiled all at once.
[[nodiscard]] Status load_kernels(const DeviceInfo& device, const PreparedGemm& prepared);

// A product's kernel, loaded, for `clusters` clusters of tiles.
template <typename Params>
[[nodiscard]] Status launch_product(const KernelLauncher& launcher, const PreparedGemm& prepared,
                                    std::int64_t clusters, Params& params) {
  const GemmConfig& config = prepared.plan.config;
  const int cluster = cluster_size(config);
  const int blocks = blocks_per_multiprocessor(config) * launcher.device().num_multiprocessors;
  const std::int64_t grid = cluster * std::min<std::int64_t>(clusters, blocks / cluster);
  return launcher.launch(prepared.function.load(std::memory_order_acquire), grid,
                         num_threads(config), prepared.shared_bytes, cluster, params);
}

}  // namespace octavo::cuda
