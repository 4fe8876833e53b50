// SPDX-License-Identifier: Apache-2.0
// Which kernels serve a product on a GPU, decided on the host from the problem and the number of
// multiprocessors: no GPU is needed to plan. The plan in words: describe_plan.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/repack_params.hpp"
#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cuda {

// One candidate and what the model thinks of it.
struct GemmCandidate {
  GemmConfig config;
  std::int64_t waves = 0;  // rounds of tiles that the busiest multiprocessor works through
  double tile_cycles =
      0;  // tensor-pipe cycles of one tile over the loop's efficiency, and the rest
  double estimated_cycles = 0;  // waves * tile_cycles
  double microseconds = 0;      // at the clock of a sustained load
};

// What a product needs at all.
enum class GemmWork : unsigned char {
  kNothing,   // no output elements, or none that change
  kEpilogue,  // K = 0: D from its old value and the bias
  kProduct,
};

// How an operand gets to the kernel.
enum class OperandPath : unsigned char {
  kDirect,    // read where it is
  kRepacked,  // copied to K-major rows of 16-byte multiples by a small kernel first
};

struct OperandPlan {
  OperandPath path = OperandPath::kDirect;
  RepackFrom from = RepackFrom::kRows;
  // Of the copy, in elements, which are bytes. One copy serves a batch that shares its operand.
  std::int64_t row_stride = 0;
  std::int64_t batch_stride = 0;
  std::int64_t num_copies = 0;
  std::size_t bytes = 0;
  double microseconds = 0;
};

// How the scales of an operand get to a kernel: from where they are, or from a copy in F32 with
// neighbouring rows adjacent, which a small kernel makes first.
struct ScalePlan {
  bool is_staged = false;
  // Of the copy, in elements. One serves a batch that shares its scales.
  std::int64_t k_stride = 0;
  std::int64_t batch_stride = 0;
  std::int64_t num_copies = 0;
  std::size_t bytes = 0;
  double microseconds = 0;
};

// How the result gets to D.
enum class OutputPath : unsigned char {
  kDirect,    // the product's epilogue writes it
  kFinished,  // F32 sums in workspace, then a small kernel: FP8, or columns that are not adjacent
};

// Parts of the workspace begin at multiples of this, which is also what its address must be a
// multiple of: the widest vector that kernels read.
inline constexpr std::size_t kWorkspaceAlignment = 16;

struct GemmPlan {
  GemmWork work = GemmWork::kProduct;
  GemmConfig config;  // of the product
  OperandPlan a;
  OperandPlan b;
  ScalePlan a_scale;
  ScalePlan b_scale;
  OutputPath output = OutputPath::kDirect;
  bool stores_directly = false;
  // F32 sums of one matrix; the matrices of a batch take turns.
  std::int64_t sums_stride = 0;
  std::size_t sums_bytes = 0;
  double finish_microseconds = 0;
  double product_microseconds = 0;

  [[nodiscard]] std::size_t workspace_bytes() const {
    return a.bytes + b.bytes + a_scale.bytes + b_scale.bytes + sums_bytes;
  }
  [[nodiscard]] double microseconds() const {
    return product_microseconds + a.microseconds + b.microseconds + a_scale.microseconds +
           b_scale.microseconds + finish_microseconds;
  }
};

// Why no kernel of this version serves the problem; empty if one does. The problem is valid.
[[nodiscard]] std::vector<Reason> gemm_refusals(const GemmProblem& problem,
                                                const Execution& execution);

// A kernel that was looked at and left out before it was priced.
struct RefusedGemmCandidate {
  GemmConfig config;
  std::string reason;
};

// All candidates for a problem whose output has elements, best first; what was left out is added to
// `refused` unless that is null.
[[nodiscard]] std::vector<GemmCandidate> gemm_candidates(
    const GemmProblem& problem, int num_multiprocessors,
    std::vector<RefusedGemmCandidate>* refused = nullptr);

// Lets a plan multiply by this candidate, and decides how that gets its scales.
void set_product(const GemmProblem& problem, const GemmCandidate& candidate, GemmPlan& plan);

// The plan of a problem without refusals.
[[nodiscard]] GemmPlan plan_gemm(const GemmProblem& problem, int num_multiprocessors);

}  // namespace octavo::cuda
