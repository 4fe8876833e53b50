// SPDX-License-Identifier: Apache-2.0
// Which GEMM kernel serves a problem on a GPU, decided on the host from the problem and the number
// of multiprocessors: no GPU is needed to plan.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "kernels/contract/gemm_config.hpp"
#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cuda {

// One candidate and what the model thinks of it.
struct GemmCandidate {
  GemmConfig config;
  std::int64_t waves = 0;  // rounds of tiles that the busiest multiprocessor works through
  double tile_cycles = 0;  // tensor-pipe cycles of one tile, stretched by the tile's efficiency
  double estimated_cycles = 0;  // waves * tile_cycles
};

// How a scale tensor gets to the kernel.
enum class ScalePath : unsigned char {
  kDirect,  // read where it is
  kStaged,  // converted and laid out by a small kernel first
};

struct GemmPlan {
  GemmConfig config;
  ScalePath a_scale = ScalePath::kDirect;
  ScalePath b_scale = ScalePath::kDirect;
  // F32 elements between rows of a staged scale tensor, and bytes of both staged tensors together.
  std::int64_t a_scale_stride = 0;
  std::int64_t b_scale_stride = 0;
  std::size_t a_scale_bytes = 0;
  std::size_t b_scale_bytes = 0;
  bool stores_directly = false;

  [[nodiscard]] std::size_t workspace_bytes() const { return a_scale_bytes + b_scale_bytes; }
};

// Why no kernel of this version serves the problem; empty if one does. The problem is valid.
[[nodiscard]] std::vector<Reason> gemm_refusals(const GemmProblem& problem,
                                                const Execution& execution);

// All candidates for the problem, best first.
[[nodiscard]] std::vector<GemmCandidate> gemm_candidates(const GemmProblem& problem,
                                                         int num_multiprocessors);

// The plan of a problem without refusals.
[[nodiscard]] GemmPlan plan_gemm(const GemmProblem& problem, int num_multiprocessors);

}  // namespace octavo::cuda
