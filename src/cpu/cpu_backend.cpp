// SPDX-License-Identifier: Apache-2.0
// Back end "cpu": says what it serves and sends each problem to the way of computing it asks for.
#include "cpu/cpu_backend.hpp"

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "backend/group_problem.hpp"
#include "base/environment.hpp"
#include "base/thread_pool.hpp"
#include "cpu/cpu_attention.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cpu/cpu_quantize.hpp"

namespace octavo::cpu {
namespace {

Numerics effective(Numerics numerics) {
  return numerics == Numerics::kDefault ? Numerics::kBlocked : numerics;
}

struct NamedOperand {
  const char* name;
  Device device;
  DType dtype;
  bool present;
};

template <typename Pointer>
NamedOperand named(const char* name, const BasicTensorView<Pointer>& view) {
  return {name, view.device, view.dtype, view.present()};
}

// The emulated tensor core multiplies FP8 by FP8; these operands must be that.
template <std::size_t kNumOperands, std::size_t kNumProducts>
SupportReport report_for(const std::array<NamedOperand, kNumOperands>& operands,
                         const std::array<NamedOperand, kNumProducts>& multiplied,
                         const Execution& execution) {
  SupportReport report;
  report.backend = "cpu";
  for (const NamedOperand& operand : operands) {
    if (operand.present && operand.device.kind != DeviceKind::kCpu) {
      report.reasons.push_back({"device", operand.name, to_string(operand.device), "cpu"});
    }
  }
  if (execution.stream != nullptr) {
    report.reasons.push_back(
        {"device", "stream", "a CUDA stream",
         "none: the cpu back end finishes before it returns, so its work cannot "
         "be put on a stream or captured into a graph"});
  }
  if (execution.numerics == Numerics::kEmulated) {
    for (const NamedOperand& operand : multiplied) {
      if (!is_fp8(operand.dtype)) {
        report.reasons.push_back({"numerics", operand.name, to_string(operand.dtype),
                                  "e4m3 or e5m2: emulated numerics model the FP8 tensor core"});
      }
    }
  }
  report.supported = report.reasons.empty();
  return report;
}

// False for an empty D, and where nothing is added to D.
bool writes_output(const GemmProblem& problem) {
  if (problem.d.num_elements() == 0) return false;
  const bool no_products = problem.a.shape[static_cast<std::size_t>(problem.a.rank - 1)] == 0;
  return !no_products || problem.output_mode == OutputMode::kOverwrite || problem.bias.present();
}

class CpuBackend final : public Backend {
 public:
  [[nodiscard]] std::string_view name() const override { return "cpu"; }

  [[nodiscard]] BackendInfo info() const override {
    return {"cpu",
            "every problem on the CPU: blocked (" + blocked_instruction_set() + ", " +
                std::to_string(num_usable_cores()) + " cores), emulated and reference numerics",
            true, ""};
  }

  [[nodiscard]] SupportReport supports(const GemmProblem& problem,
                                       const Execution& execution) const override {
    SupportReport report =
        report_for(std::array{named("a", problem.a), named("b", problem.b), named("d", problem.d),
                              named("a_scale", problem.a_scale), named("b_scale", problem.b_scale),
                              named("bias", problem.bias), named("d_scale", problem.d_scale)},
                   std::array{named("a", problem.a), named("b", problem.b)}, execution);
    if (report.supported) report.kernel = kernel(problem, execution);
    return report;
  }

  [[nodiscard]] SupportReport supports(const GroupedGemmProblem& problem,
                                       const Execution& execution) const override {
    SupportReport report =
        report_for(std::array{named("a", problem.a), named("b", problem.b), named("d", problem.d),
                              named("a_scale", problem.a_scale), named("b_scale", problem.b_scale),
                              named("bias", problem.bias), named("group_ends", problem.group_ends),
                              named("group_rows", problem.group_rows)},
                   std::array{named("a", problem.a), named("b", problem.b)}, execution);
    if (report.supported) report.kernel = grouped_kernel(problem, execution);
    return report;
  }

  [[nodiscard]] SupportReport supports(const AttentionProblem& problem,
                                       const Execution& execution) const override {
    SupportReport report = report_for(
        std::array{named("q", problem.q), named("k", problem.k), named("v", problem.v),
                   named("o", problem.o), named("lse", problem.lse),
                   named("q_offsets", problem.q_offsets), named("k_offsets", problem.k_offsets),
                   named("kv_lengths", problem.kv_lengths), named("page_table", problem.page_table),
                   named("q_scale", problem.q_scale), named("k_scale", problem.k_scale),
                   named("v_scale", problem.v_scale), named("o_scale", problem.o_scale)},
        std::array{named("q", problem.q), named("k", problem.k), named("v", problem.v)}, execution);
    if (report.supported) report.kernel = attention_kernel(execution);
    return report;
  }

  [[nodiscard]] SupportReport supports(const QuantizeProblem& problem,
                                       const Execution& execution) const override {
    SupportReport report = report_for(
        std::array{named("x", problem.x), named("q", problem.q), named("scale", problem.scale)},
        std::array<NamedOperand, 0>{}, execution);
    if (report.supported) report.kernel = "cpu_quantize";
    return report;
  }

  [[nodiscard]] SupportReport supports(const DequantizeProblem& problem,
                                       const Execution& execution) const override {
    SupportReport report = report_for(
        std::array{named("q", problem.q), named("scale", problem.scale), named("x", problem.x)},
        std::array<NamedOperand, 0>{}, execution);
    if (report.supported) report.kernel = "cpu_dequantize";
    return report;
  }

  [[nodiscard]] Result<GemmReport> gemm(const GemmProblem& problem,
                                        const Execution& execution) const override {
    const Result<int> threads = num_threads(execution);
    if (!threads.ok()) return threads.error();
    GemmProblem split = problem;
    if (split.num_splits == kAutomaticSplits) split.num_splits = 1;
    if (writes_output(split)) {
      const Status status = run(split, execution, threads.value());
      if (!status.ok()) return status.error();
    }
    return GemmReport{"cpu", kernel(split, execution), split.num_splits};
  }

  [[nodiscard]] Result<GemmReport> grouped_gemm(const GroupedGemmProblem& problem,
                                                const Execution& execution) const override {
    std::int64_t begin = 0;
    for (std::int64_t group = 0; group < num_groups(problem); ++group) {
      const GroupRows rows = rows_of_group(problem, group, begin);
      if (!is_masked(problem)) {
        begin = static_cast<const std::int32_t*>(problem.group_ends.data)[group];
      }
      if (rows.rows == 0) continue;
      const Result<GemmReport> report = gemm(problem_of_group(problem, group, rows), execution);
      if (!report.ok()) return report.error();
    }
    return GemmReport{"cpu", grouped_kernel(problem, execution), 1};
  }

  [[nodiscard]] Result<FusedGemmReport> fused_gemm(std::span<const GemmProblem> problems,
                                                   const Execution& execution) const override {
    FusedGemmReport fused{"cpu", {}};
    for (const GemmProblem& problem : problems) {
      Result<GemmReport> report = gemm(problem, execution);
      if (!report.ok()) return report.error();
      fused.kernels.push_back(std::move(report.value().kernel));
    }
    return fused;
  }

  [[nodiscard]] Result<AttentionReport> attention(const AttentionProblem& problem,
                                                  const Execution& execution) const override {
    const Result<int> threads = num_threads(execution);
    if (!threads.ok()) return threads.error();
    // lse is empty if o is: head dims and heads are above 0.
    if (problem.o.num_elements() > 0) {
      const Status status = run(problem, execution, threads.value());
      if (!status.ok()) return status.error();
    }
    return AttentionReport{"cpu", attention_kernel(execution)};
  }

  [[nodiscard]] Result<QuantizeReport> quantize(const QuantizeProblem& problem,
                                                const Execution& execution) const override {
    const Result<int> threads = num_threads(execution);
    if (!threads.ok()) return threads.error();
    const Status status = cpu::quantize(problem, threads.value());
    if (!status.ok()) return status.error();
    return QuantizeReport{"cpu", "cpu_quantize"};
  }

  [[nodiscard]] Result<QuantizeReport> dequantize(const DequantizeProblem& problem,
                                                  const Execution& execution) const override {
    const Result<int> threads = num_threads(execution);
    if (!threads.ok()) return threads.error();
    const Status status = cpu::dequantize(problem, threads.value());
    if (!status.ok()) return status.error();
    return QuantizeReport{"cpu", "cpu_dequantize"};
  }

  [[nodiscard]] std::size_t workspace_bytes(const GemmProblem&, const Execution&) const override {
    return 0;
  }
  [[nodiscard]] std::size_t workspace_bytes(const GroupedGemmProblem&,
                                            const Execution&) const override {
    return 0;
  }
  [[nodiscard]] std::size_t workspace_bytes(std::span<const GemmProblem>,
                                            const Execution&) const override {
    return 0;
  }
  [[nodiscard]] std::size_t workspace_bytes(const AttentionProblem&,
                                            const Execution&) const override {
    return 0;
  }

 private:
  static Result<int> num_threads(const Execution& execution) {
    if (execution.num_threads > 0) return execution.num_threads;
    const Result<Environment>& settings = environment();
    if (!settings.ok()) return settings.error();
    return settings.value().num_threads;
  }

  static Status run(const GemmProblem& problem, const Execution& execution, int num_threads) {
    switch (effective(execution.numerics)) {
      case Numerics::kReference: return reference_gemm(problem, num_threads);
      case Numerics::kEmulated: return emulated_gemm(problem, num_threads);
      default: return blocked_gemm(problem, num_threads);
    }
  }

  static Status run(const AttentionProblem& problem, const Execution& execution, int num_threads) {
    switch (effective(execution.numerics)) {
      case Numerics::kReference: return reference_attention(problem, num_threads);
      case Numerics::kEmulated: return emulated_attention(problem, num_threads);
      default: return blocked_attention(problem, num_threads);
    }
  }

  static std::string kernel(const GemmProblem& problem, const Execution& execution) {
    const Numerics numerics = effective(execution.numerics);
    if (numerics == Numerics::kBlocked) return blocked_gemm_kernel(problem);
    return std::string("cpu_") + to_string(numerics) + "_gemm";
  }

  // Of a group that has one row at least.
  static std::string grouped_kernel(const GroupedGemmProblem& problem, const Execution& execution) {
    const std::int64_t rows = problem.a.shape[static_cast<std::size_t>(problem.a.rank - 2)];
    if (num_groups(problem) == 0 || rows == 0) return "none";
    return kernel(problem_of_group(problem, 0, {0, rows}), execution);
  }

  static std::string attention_kernel(const Execution& execution) {
    return std::string("cpu_") + to_string(effective(execution.numerics)) + "_attention";
  }
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace octavo::cpu
