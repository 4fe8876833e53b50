// SPDX-License-Identifier: Apache-2.0
// Many FP8 products in one persistent launch: groups of rows with weights of their own, as in a
// mixture of experts, and products of any shapes, as the projections of one layer. Each result has
// the bits that gemm() with num_splits = 1 gives for the group or product alone.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "octavo/gemm.hpp"

namespace octavo {

// For each group g: D_g[rows_g,N] = epilogue(A_g[rows_g,K] B[g]^T, scaled).
struct GroupedGemmProblem {
  // Contiguous: the rows of all groups one after another, a [rows, K] and d [rows, N]; a group may
  // begin and end at any row. Masked: room for `capacity` rows to each group, a [groups, capacity,
  // K] and d [groups, capacity, N]. Dtypes, strides and d's rule: as of GemmProblem.
  TensorView a;
  TensorView b;  // [groups, N, K]
  MutableTensorView d;

  ScaleRecipe recipe = ScaleRecipe::kNone;
  // a_scale: as of a product with a's rows, or of a batch where `a` is one. b_scale: of a batch.
  TensorView a_scale;
  TensorView b_scale;
  Accumulation accumulation = Accumulation::kPromoted;
  OutputMode output_mode = OutputMode::kOverwrite;
  // [groups, N], BF16, F16 or F32; absent for none.
  TensorView bias;

  // I32 [groups], contiguous, on the device of `a`, where the kernel reads them: a captured call
  // follows what they hold when the graph is launched.
  // group_ends (contiguous only): the row behind each group's last, ascending. A group begins where
  // the one before it ends, the first at row 0; rows behind the last end belong to none.
  // group_rows (masked; may be absent if contiguous): how many of a group's rows are computed, from
  // its first. D's other rows keep their values, and what `a` holds there is not used.
  // In host memory, a list that breaks its rule is an error. In device memory it cannot be looked
  // at: an end is then taken as no lower than the one before and no higher than the number of rows,
  // a number of rows as no lower than 0 and no higher than the group's room.
  TensorView group_ends;
  TensorView group_rows;
  // How many rows a group is likely to have; 0 for rows / groups, or capacity. For the choice of a
  // kernel only: the result does not depend on it.
  std::int64_t expected_rows = 0;
};

// Throws as gemm(). On "cuda" it works on execution.stream as gemm() does, a captured one too
// (copies of one graph must not run at the same time: they share d, and what counts its tiles). It
// refuses there, with reasons, K = 0, an FP8 d, a d whose columns are not adjacent, and matrices of
// `a` or `b` that are not one after another.
GemmReport grouped_gemm(const GroupedGemmProblem& problem, const Execution& execution = {});

[[nodiscard]] std::size_t workspace_bytes(const GroupedGemmProblem& problem,
                                          const Execution& execution = {});

[[nodiscard]] std::vector<SupportReport> supports(const GroupedGemmProblem& problem,
                                                  const Execution& execution = {});

// What served a call of several products: those of one kernel share a launch.
struct FusedGemmReport {
  std::string backend;
  std::vector<std::string> kernels;  // one for each launch
};

// Every problem as gemm() would compute it, with kAutomaticSplits meaning 1, in as few launches as
// their types and recipes allow: those that agree in these, whose operands need no copy and whose
// D a product's kernel can write share one. No D may overlap another problem's tensor, and all are
// on one device. (On "cuda": a driver that serves CUDA 12.1, for launches with many arguments.)
FusedGemmReport fused_gemm(std::span<const GemmProblem> problems, const Execution& execution = {});

[[nodiscard]] std::size_t workspace_bytes(std::span<const GemmProblem> problems,
                                          const Execution& execution = {});

}  // namespace octavo
