// SPDX-License-Identifier: Apache-2.0
// The only file that names every back end.
#include "backend/backend.hpp"
#include "cpu/cpu_backend.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/prepared_gemm.hpp"
#include "cuda/tune/explain_tuned.hpp"
#include "cuda/tune/record_folder.hpp"
#include "cuda/tune/tune_gemms.hpp"
#include "cuda/warm_up.hpp"

namespace octavo {

const std::vector<std::unique_ptr<Backend>>& registry() {
  static const std::vector<std::unique_ptr<Backend>> backends = [] {
    std::vector<std::unique_ptr<Backend>> list;
    list.push_back(cuda::make_backend());
    list.push_back(cpu::make_backend());
    return list;
  }();
  return backends;
}

std::string cpu_instruction_set() { return cpu::blocked_instruction_set(); }

GemmExplanation cuda_explanation(const GemmProblem& problem, const GpuDescription& gpu) {
  return cuda::explain_tuned(problem, gpu);
}

Result<std::vector<TuningReport>> cuda_tune(std::span<const GemmProblem> problems,
                                            const TuningOptions& options) {
  return cuda::tune_gemms(problems, options);
}
Result<TuningStore> cuda_tuning_store() {
  const Result<cuda::RecordFolder> folder = cuda::default_record_folder();
  if (!folder.ok()) return folder.error();
  return folder.value().all();
}
Result<int> cuda_import_tuning(std::string_view text) {
  Result<int> imported = cuda::import_records(text);
  cuda::forget_plans();
  return imported;
}
std::string cuda_export_tuning(const TuningStore& store) { return cuda::export_records(store); }
TuningStatistics cuda_tuning_statistics() { return cuda::plan_statistics(); }

Result<WarmUpReports> cuda_warm_up(std::span<const GemmProblem> problems, const GpuDescription* gpu,
                                   int num_threads) {
  return cuda::warm_up_gemms(problems, gpu, num_threads);
}

}  // namespace octavo
