// SPDX-License-Identifier: Apache-2.0
// Compiles the kernels of products before they are needed: the first call of gemm() with a new
// kernel takes about a second otherwise.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "octavo/gemm.hpp"
#include "octavo/runtime.hpp"

namespace octavo {

// One kernel that some of the problems need.
struct WarmedKernel {
  std::string kernel;
  double seconds = 0;  // to get it: compiling, or reading it from the cache
  std::string error;   // empty if it is ready
};

// What was found for one problem.
struct WarmUpReport {
  std::string kernel;  // of the product; empty if it is refused
  std::string error;   // why it will not run; empty if every kernel that it needs is ready
};

struct WarmUpReports {
  std::vector<WarmUpReport> problems;  // in the order given
  std::vector<WarmedKernel> kernels;   // each once
};

// Plans every problem for a GPU, compiles what the plans need in up to `num_threads` threads (0:
// one for each core) and keeps it in the process and in the cache folder; on the GPU of the
// problem's device the kernels are loaded too. Addresses are not followed. Neither a GPU nor a
// driver is needed if `gpu` is given: then kernels are compiled for it and not loaded.
// Throws Error kInvalidArgument if a problem breaks a rule of gemm(), kEnvironment without NVRTC,
// or without a driver if `gpu` is null. Whatever fails for one kernel is in the reports.
[[nodiscard]] WarmUpReports warm_up(std::span<const GemmProblem> problems,
                                    const GpuDescription* gpu = nullptr, int num_threads = 0);

}  // namespace octavo
