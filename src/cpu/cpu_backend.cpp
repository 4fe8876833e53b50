// SPDX-License-Identifier: Apache-2.0
// Back end "cpu": says what it serves and sends each problem to the way of computing it asks for.
#include "cpu/cpu_backend.hpp"

#include <array>
#include <string>

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

  static std::string attention_kernel(const Execution& execution) {
    return std::string("cpu_") + to_string(effective(execution.numerics)) + "_attention";
  }
};

}  // namespace

std::unique_ptr<Backend> make_backend() { return std::make_unique<CpuBackend>(); }

}  // namespace octavo::cpu
