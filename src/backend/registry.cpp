// SPDX-License-Identifier: Apache-2.0
// The only file that names every back end.
#include "backend/backend.hpp"
#include "cpu/cpu_backend.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cuda/cuda_backend.hpp"
#include "cuda/plan/explain_gemm.hpp"
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
  return cuda::explain_gemm(problem, gpu);
}

Result<WarmUpReports> cuda_warm_up(std::span<const GemmProblem> problems, const GpuDescription* gpu,
                                   int num_threads) {
  return cuda::warm_up_gemms(problems, gpu, num_threads);
}

}  // namespace octavo
