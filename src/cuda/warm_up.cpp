// SPDX-License-Identifier: Apache-2.0
#include "cuda/warm_up.hpp"

#include <algorithm>
#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.hpp"
#include "cuda/driver.hpp"
#include "cuda/jit/gemm_source.hpp"
#include "cuda/jit/loaded_kernel.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"
#include "cuda/jit/process_cache.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/tune/tuned_choice.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

struct NeededKernel {
  std::function<KernelSource()> source;
  int shared_bytes = 0;

  // Filled in by get().
  double seconds = 0;
  std::optional<Error> error;

  void get(const DeviceInfo* device, const std::string& entry) {
    const auto begin = std::chrono::steady_clock::now();
    if (device != nullptr) {
      const Result<void*> function = loaded_kernel(*device, entry, source, shared_bytes);
      if (!function.ok()) error = function.error();
    } else {
      const Result<CompiledKernel> kernel = planned_kernel(source());
      if (!kernel.ok()) error = kernel.error();
    }
    seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }
};

// By entry.
using NeededKernels = std::map<std::string, NeededKernel>;

// The entries of a plan's kernels, the product's first; each is added to `needed`.
std::vector<std::string> need_kernels(const GemmPlan& plan, NeededKernels& needed) {
  std::vector<std::string> entries;
  const auto need = [&](const std::string& entry, std::function<KernelSource()> source,
                        int shared_bytes) {
    entries.push_back(entry);
    needed.try_emplace(entry, NeededKernel{std::move(source), shared_bytes, 0, std::nullopt});
  };
  if (plan.work == GemmWork::kProduct) {
    const GemmConfig config = plan.config;
    need(
        kernel_name(config), [config] { return gemm_source(config); },
        gemm_shared_memory(config).total_bytes);
  }
  if (plan.output == OutputPath::kFinished) need(kFinishOutputEntry, finish_output_source, 0);
  if (plan.a.path == OperandPath::kRepacked || plan.b.path == OperandPath::kRepacked) {
    need(kRepackOperandEntry, repack_operand_source, 0);
  }
  if (plan.a_scale.is_staged || plan.b_scale.is_staged) {
    need(kStageScalesEntry, stage_scales_source, 0);
  }
  return entries;
}

}  // namespace

Result<WarmUpReports> warm_up_gemms(std::span<const GemmProblem> problems,
                                    const GpuDescription* gpu, int num_threads) {
  if (Result<std::string> nvrtc = nvrtc_description(); !nvrtc.ok()) return nvrtc.error();
  if (gpu == nullptr && !driver().ok()) return driver().error();
  std::vector<GpuDescription> here;
  WarmUpReports reports;
  reports.problems.resize(problems.size());
  std::map<const DeviceInfo*, NeededKernels> needed;  // null: of a GPU that is only described
  std::vector<std::pair<const DeviceInfo*, std::vector<std::string>>> entries(problems.size());
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const GemmProblem& problem = problems[i];
    for (const Reason& reason : gemm_refusals(problem, {})) {
      reports.problems[i].error +=
          (reports.problems[i].error.empty() ? "" : ". ") + to_string(reason);
    }
    if (!reports.problems[i].error.empty()) continue;
    const GpuDescription* described = gpu;
    if (gpu == nullptr) {
      const Result<DeviceInfo>& device = device_info(problem.a.device.ordinal);
      if (!device.ok()) {
        reports.problems[i].error = device.error().what();
        continue;
      }
      entries[i].first = &device.value();
      if (here.empty()) here = gpus();
      described = &here.at(static_cast<std::size_t>(problem.a.device.ordinal));
    }
    entries[i].second =
        need_kernels(tuned_plan(problem, *described).plan, needed[entries[i].first]);
  }

  std::vector<std::function<void()>> tasks;
  for (auto& [device, kernels] : needed) {
    for (auto& [entry, kernel] : kernels) {
      tasks.emplace_back(
          [device = device, &entry = entry, &kernel = kernel] { kernel.get(device, entry); });
    }
  }
  parallel_for(static_cast<std::int64_t>(tasks.size()), num_threads,
               [&](std::int64_t i) { tasks[static_cast<std::size_t>(i)](); });

  for (const auto& [device, kernels] : needed) {
    for (const auto& [entry, kernel] : kernels) {
      reports.kernels.push_back({entry, kernel.seconds, kernel.error ? kernel.error->what() : ""});
    }
  }
  for (std::size_t i = 0; i < problems.size(); ++i) {
    const auto& [device, names] = entries[i];
    if (!names.empty()) reports.problems[i].kernel = names.front();
    for (const std::string& entry : names) {
      const NeededKernel& kernel = needed.at(device).at(entry);
      if (kernel.error && reports.problems[i].error.empty()) {
        reports.problems[i].error = kernel.error->what();
      }
    }
  }
  return reports;
}

}  // namespace octavo::cuda
