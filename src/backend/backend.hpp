// SPDX-License-Identifier: Apache-2.0
// What a back end offers to src/api. Problems arrive already validated; a back end refuses what it
// does not serve with reasons, never with a crash.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/attention.hpp"
#include "octavo/backend.hpp"
#include "octavo/error.hpp"
#include "octavo/explain.hpp"
#include "octavo/gemm.hpp"
#include "octavo/grouped_gemm.hpp"
#include "octavo/quantize.hpp"
#include "octavo/tuning.hpp"
#include "octavo/warm_up.hpp"

namespace octavo {

class Backend {
 public:
  Backend() = default;
  Backend(const Backend&) = delete;
  Backend& operator=(const Backend&) = delete;
  virtual ~Backend() = default;

  [[nodiscard]] virtual std::string_view name() const = 0;
  [[nodiscard]] virtual BackendInfo info() const = 0;

  // Whether supports() would say yes. PERF: asked before every product, so no report is made.
  [[nodiscard]] virtual bool serves(const GemmProblem& problem, const Execution& execution) const {
    return supports(problem, execution).supported;
  }
  template <typename Problem>
  [[nodiscard]] bool serves(const Problem& problem, const Execution& execution) const {
    return supports(problem, execution).supported;
  }

  [[nodiscard]] virtual SupportReport supports(const GemmProblem&, const Execution&) const = 0;
  [[nodiscard]] virtual SupportReport supports(const GroupedGemmProblem&,
                                               const Execution&) const = 0;
  [[nodiscard]] virtual SupportReport supports(const AttentionProblem&, const Execution&) const = 0;
  [[nodiscard]] virtual SupportReport supports(const QuantizeProblem&, const Execution&) const = 0;
  [[nodiscard]] virtual SupportReport supports(const DequantizeProblem&,
                                               const Execution&) const = 0;

  [[nodiscard]] virtual Result<GemmReport> gemm(const GemmProblem&, const Execution&) const = 0;
  [[nodiscard]] virtual Result<GemmReport> grouped_gemm(const GroupedGemmProblem&,
                                                        const Execution&) const = 0;
  [[nodiscard]] virtual Result<FusedGemmReport> fused_gemm(std::span<const GemmProblem>,
                                                           const Execution&) const = 0;
  [[nodiscard]] virtual Result<AttentionReport> attention(const AttentionProblem&,
                                                          const Execution&) const = 0;
  [[nodiscard]] virtual Result<QuantizeReport> quantize(const QuantizeProblem&,
                                                        const Execution&) const = 0;
  [[nodiscard]] virtual Result<QuantizeReport> dequantize(const DequantizeProblem&,
                                                          const Execution&) const = 0;

  [[nodiscard]] virtual std::size_t workspace_bytes(const GemmProblem&, const Execution&) const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(const GroupedGemmProblem&,
                                                    const Execution&) const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(std::span<const GemmProblem>,
                                                    const Execution&) const = 0;
  [[nodiscard]] virtual std::size_t workspace_bytes(const AttentionProblem&,
                                                    const Execution&) const = 0;
};

// In order of preference; ends with "cpu".
[[nodiscard]] const std::vector<std::unique_ptr<Backend>>& registry();

// What the blocked products of "cpu" use on this machine, as octavo/runtime.hpp names it.
[[nodiscard]] std::string cpu_instruction_set();

// What "cuda" makes of valid problems on a GPU (octavo/explain.hpp, octavo/warm_up.hpp,
// octavo/tuning.hpp).
[[nodiscard]] GemmExplanation cuda_explanation(const GemmProblem& problem,
                                               const GpuDescription& gpu);
[[nodiscard]] Result<std::vector<TuningReport>> cuda_tune(std::span<const GemmProblem> problems,
                                                          const TuningOptions& options);
[[nodiscard]] Result<TuningStore> cuda_tuning_store();
[[nodiscard]] Result<int> cuda_import_tuning(std::string_view text);
[[nodiscard]] std::string cuda_export_tuning(const TuningStore& store);
[[nodiscard]] TuningStatistics cuda_tuning_statistics();
[[nodiscard]] Result<WarmUpReports> cuda_warm_up(std::span<const GemmProblem> problems,
                                                 const GpuDescription* gpu, int num_threads);

}  // namespace octavo
