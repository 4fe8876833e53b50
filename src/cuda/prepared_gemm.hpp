// SPDX-License-Identifier: Apache-2.0
// Plans, remembered: a model asks for the same few hundred products again and again, and a plan
// with its kernel's name takes longer to make than a launch.
#pragma once

#include <atomic>
#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "octavo/gemm.hpp"
#include "octavo/grouped_gemm.hpp"
#include "octavo/tuning.hpp"

namespace octavo::cuda {

struct PreparedGemm {
  GemmPlan plan;
  // The product's symbol; of the small kernel that writes D where K is 0; "none" where nothing is
  // launched.
  std::string kernel;
  int shared_bytes = 0;
  // The CUfunction of `kernel`, once every kernel of the call is loaded on the plan's device.
  mutable std::atomic<void*> function{nullptr};
};

// What is made of a plan before its kernel is loaded.
void set_plan(const GemmPlan& plan, PreparedGemm& prepared);

// The plan of a problem without refusals. Thread-safe.
[[nodiscard]] std::shared_ptr<const PreparedGemm> prepared_gemm(const DeviceInfo& device,
                                                                const GemmProblem& problem);

// Makes the process plan every product anew, as after new tuning records.
void forget_plans();
[[nodiscard]] TuningStatistics plan_statistics();

[[nodiscard]] std::shared_ptr<const PreparedGemm> prepared_grouped(
    const DeviceInfo& device, const GroupedGemmProblem& problem);

// A launch of fused_gemm() and the places of its problems in the call.
struct PreparedFusedLaunch {
  std::vector<std::size_t> problems;
  PreparedGemm product;
};
[[nodiscard]] std::shared_ptr<const std::list<PreparedFusedLaunch>> prepared_fused(
    const DeviceInfo& device, std::span<const GemmProblem> problems);

}  // namespace octavo::cuda
