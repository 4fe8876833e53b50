// SPDX-License-Identifier: Apache-2.0
// Back end "cuda": FP8 products and quantization on NVIDIA Hopper. What it does not serve yet it
// refuses with reasons.
#include "cuda/cuda_backend.hpp"

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/gemm_launch.hpp"
#include "cuda/grouped_launch.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"
#include "cuda/jit/quantize_source.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "cuda/prepared_gemm.hpp"
#include "cuda/quantize_launch.hpp"
#include "naming/quantize_name.hpp"

namespace octavo::cuda {
namespace {

// Why the back end cannot run anything here; empty if it can.
const std::string& unavailable_because() {
  static const std::string reason = [] {
    if (!driver().ok()) return std::string(driver().error().what());
    if (Result<std::string> nvrtc = nvrtc_description(); !nvrtc.ok()) {
      return std::string(nvrtc.error().what());
    }
    return std::string();
  }();
  return reason;
}

SupportReport report_of(std::vector<Reason> reasons) {
  SupportReport report;
  report.backend = "cuda";
  report.reasons = std::move(reasons);
  report.supported = report.reasons.empty();
  return report;
}

SupportReport refusal(const char* operation) {
  return report_of({{"environment", "backend", "\"cuda\"",
                     std::string("\"cpu\": this version has no GPU kernel for ") + operation}});
}

// Reached only if a caller skips supports().
Error unavailable(const char* operation) {
  return {ErrorCode::kUnsupported, std::string("cuda: this version has no GPU kernel for ") +
                                       operation + ". Use the back end \"cpu\"."};
}

// What a report calls the work.
std::string kernel_of(const std::vector<QuantizeLaunch>& launches) {
  return launches.empty() ? "" : quantize_kernel_name(launches.back().config);
}

// The report on a problem with these refusals whose argument `field` lies on `where`;
// `kernel_on(DeviceInfo)` names what would run.
template <typename KernelOn>
SupportReport support_on(Device where, const char* field, std::vector<Reason> reasons,
                         const KernelOn& kernel_on) {
  if (!reasons.empty()) return report_of(std::move(reasons));
  if (!unavailable_because().empty()) {
    return report_of({{"environment", "backend", "\"cuda\"", unavailable_because()}});
  }
  const Result<DeviceInfo>& device = device_info(where.ordinal);
  if (!device.ok()) {
    return report_of({{"device", field, to_string(where), device.error().what()}});
  }
  SupportReport report = report_of({});
  report.kernel = kernel_on(device.value());
  return report;
}

template <typename Problem>
SupportReport quantize_support(const Problem& problem, const Execution& execution) {
  return support_on(problem.x.device, "x", quantize_refusals(problem, execution),
                    [&](const DeviceInfo& device) {
                      return kernel_of(quantize_launches(problem, device.num_multiprocessors));
                    });
}

Result<QuantizeReport> run(const DeviceInfo& device, const Execution& execution,
                           const std::vector<QuantizeLaunch>& launches) {
  if (Status s = launch_quantize(device, execution, launches); !s.ok()) return s.error();
  return QuantizeReport{"cuda", kernel_of(launches)};
}

class CudaBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cuda"; }

  [[nodiscard]] BackendInfo info() const override {
    return {"cuda", "FP8 products and quantization on NVIDIA Hopper GPUs",
            unavailable_because().empty(), unavailable_because()};
  }

  [[nodiscard]] bool serves(const GemmProblem& problem, const Execution& execution) const override {
    return gemm_refusals(problem, execution).empty() && unavailable_because().empty() &&
           device_info(problem.a.device.ordinal).ok();
  }

  [[nodiscard]] SupportReport supports(const GemmProblem& problem,
                                       const Execution& execution) const override {
    return support_on(
        problem.a.device, "a", gemm_refusals(problem, execution),
        [&](const DeviceInfo& device) { return prepared_gemm(device, problem)->kernel; });
  }
  [[nodiscard]] SupportReport supports(const GroupedGemmProblem& problem,
                                       const Execution& execution) const override {
    return support_on(
        problem.a.device, "a", grouped_refusals(problem, execution),
        [&](const DeviceInfo& device) { return prepared_grouped(device, problem)->kernel; });
  }
  [[nodiscard]] SupportReport supports(const AttentionProblem&, const Execution&) const override {
    return refusal("attention");
  }
  [[nodiscard]] SupportReport supports(const QuantizeProblem& problem,
                                       const Execution& execution) const override {
    return quantize_support(problem, execution);
  }
  [[nodiscard]] SupportReport supports(const DequantizeProblem& problem,
                                       const Execution& execution) const override {
    return quantize_support(problem, execution);
  }

  [[nodiscard]] Result<GemmReport> gemm(const GemmProblem& problem,
                                        const Execution& execution) const override {
    const Result<DeviceInfo>& device = device_info(problem.a.device.ordinal);
    if (!device.ok()) return device.error();
    const std::shared_ptr<const PreparedGemm> prepared = prepared_gemm(device.value(), problem);
    if (Status s = launch_gemm(device.value(), problem, execution, *prepared); !s.ok()) {
      return s.error();
    }
    return GemmReport{"cuda", prepared->kernel, prepared->plan.config.num_splits};
  }
  [[nodiscard]] Result<GemmReport> grouped_gemm(const GroupedGemmProblem& problem,
                                                const Execution& execution) const override {
    const Result<DeviceInfo>& device = device_info(problem.a.device.ordinal);
    if (!device.ok()) return device.error();
    const std::shared_ptr<const PreparedGemm> prepared = prepared_grouped(device.value(), problem);
    if (Status s = launch_grouped(device.value(), problem, execution, *prepared); !s.ok()) {
      return s.error();
    }
    return GemmReport{"cuda", prepared->kernel, 1};
  }
  [[nodiscard]] Result<FusedGemmReport> fused_gemm(std::span<const GemmProblem> problems,
                                                   const Execution& execution) const override {
    const Result<DeviceInfo>& device = device_info(problems[0].a.device.ordinal);
    if (!device.ok()) return device.error();
    const auto launches = prepared_fused(device.value(), problems);
    if (Status s = launch_fused(device.value(), problems, execution, *launches); !s.ok()) {
      return s.error();
    }
    FusedGemmReport report{"cuda", {}};
    for (const PreparedFusedLaunch& launch : *launches) {
      report.kernels.push_back(launch.product.kernel);
    }
    return report;
  }
  [[nodiscard]] Result<AttentionReport> attention(const AttentionProblem&,
                                                  const Execution&) const override {
    return unavailable("attention");
  }
  [[nodiscard]] Result<QuantizeReport> quantize(const QuantizeProblem& problem,
                                                const Execution& execution) const override {
    const Result<DeviceInfo>& device = device_info(problem.x.device.ordinal);
    if (!device.ok()) return device.error();
    return run(device.value(), execution,
               quantize_launches(problem, device.value().num_multiprocessors));
  }
  [[nodiscard]] Result<QuantizeReport> dequantize(const DequantizeProblem& problem,
                                                  const Execution& execution) const override {
    const Result<DeviceInfo>& device = device_info(problem.x.device.ordinal);
    if (!device.ok()) return device.error();
    return run(device.value(), execution,
               quantize_launches(problem, device.value().num_multiprocessors));
  }

  [[nodiscard]] std::size_t workspace_bytes(const GemmProblem& problem,
                                            const Execution&) const override {
    const Result<DeviceInfo>& device = device_info(problem.a.device.ordinal);
    if (!device.ok()) return 0;
    return prepared_gemm(device.value(), problem)->plan.workspace_bytes();
  }
  [[nodiscard]] std::size_t workspace_bytes(const GroupedGemmProblem& problem,
                                            const Execution&) const override {
    const Result<DeviceInfo>& device = device_info(problem.a.device.ordinal);
    if (!device.ok()) return 0;
    return prepared_grouped(device.value(), problem)->plan.workspace_bytes();
  }
  [[nodiscard]] std::size_t workspace_bytes(std::span<const GemmProblem> problems,
                                            const Execution&) const override {
    const Result<DeviceInfo>& device = device_info(problems[0].a.device.ordinal);
    if (!device.ok()) return 0;
    // Launches follow one another on the stream: one's memory serves the next.
    std::size_t most = 0;
    for (const PreparedFusedLaunch& launch : *prepared_fused(device.value(), problems)) {
      most = std::max(most, launch.product.plan.workspace_bytes());
    }
    return most;
  }
  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem&,
                                            const Execution&) const override {
    return 0;
  }
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<CudaBackend>(); }

}  // namespace octavo::cuda
