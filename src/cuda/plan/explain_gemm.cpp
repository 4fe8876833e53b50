// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/explain_gemm.hpp"

#include <fmt/format.h>

#include <vector>

#include "cuda/plan/describe_plan.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

GemmCandidateReport report_of(const GemmCandidate& candidate) {
  const GemmConfig& config = candidate.config;
  GemmCandidateReport report;
  report.kernel = kernel_name(config);
  report.tile_m = config.tile_m;
  report.tile_n = config.tile_n;
  report.tile_k = config.tile_k;
  report.cluster_m = config.cluster_m;
  report.cluster_n = config.cluster_n;
  report.num_splits = config.num_splits;
  report.stages = config.stages;
  report.shared_bytes = gemm_shared_memory(config).total_bytes;
  report.num_threads = num_threads(config);
  report.waves = candidate.waves;
  report.tile_cycles = candidate.tile_cycles;
  report.estimated_cycles = candidate.estimated_cycles;
  report.estimated_us = candidate.microseconds;
  return report;
}

}  // namespace

GemmExplanation explain_gemm(const GemmProblem& problem, const GpuDescription& gpu) {
  constexpr int kHopperMajor = 9;
  // Clusters of two need two multiprocessors; no Hopper GPU, or part of one, has as few as this.
  constexpr int kMinMultiprocessors = 8;
  GemmExplanation explanation;
  explanation.refusals = gemm_refusals(problem, {});
  if (gpu.compute_major != kHopperMajor || gpu.compute_minor != 0) {
    explanation.refusals.push_back(
        {"device", "gpu",
         fmt::format("compute capability {}.{}", gpu.compute_major, gpu.compute_minor),
         "9.0 (H100, H200)"});
  }
  if (gpu.num_multiprocessors < kMinMultiprocessors) {
    explanation.refusals.push_back({"device", "gpu",
                                    fmt::format("{} multiprocessors", gpu.num_multiprocessors),
                                    fmt::format("at least {}", kMinMultiprocessors)});
  }
  if (!explanation.refusals.empty()) return explanation;
  const GemmPlan plan = plan_gemm(problem, gpu.num_multiprocessors);
  if (plan.work == GemmWork::kProduct) {
    std::vector<RefusedGemmCandidate> refused;
    for (const GemmCandidate& candidate :
         gemm_candidates(problem, gpu.num_multiprocessors, &refused)) {
      explanation.candidates.push_back(report_of(candidate));
    }
    for (const RefusedGemmCandidate& candidate : refused) {
      const GemmConfig& config = candidate.config;
      explanation.refused_candidates.push_back({config.tile_m, config.tile_n, config.tile_k,
                                                config.cluster_m, config.cluster_n,
                                                candidate.reason});
    }
  }
  explanation.steps = describe(plan, problem);
  explanation.workspace_bytes = plan.workspace_bytes();
  return explanation;
}

}  // namespace octavo::cuda
