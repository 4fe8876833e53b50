// SPDX-License-Identifier: Apache-2.0
// What the "cuda" back end would do with a product on a GPU that need not be here: planning happens
// on the host, from the problem, a few numbers of the GPU and tuning records (octavo/tuning.hpp).
// Whether a back end of this machine serves a problem: supports() in octavo/gemm.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/gemm.hpp"
#include "octavo/runtime.hpp"
#include "octavo/tuning.hpp"

namespace octavo {

// One kernel that could serve the product, and what the cost model makes of it:
// estimated_cycles = waves * tile_cycles at 1,300 MHz, the clock that an H200 sustains under this
// load at its power limit; a wave is one tile for every multiprocessor (streamed: for every place
// that a thread block or cluster has). For streamed kernels, and others up to M = 256, the two are
// the multiprocessors' part: estimated_cycles, at 1,750 MHz, are about the longer of that and the
// memory's time, both longer where they are near each other, and a start and an end.
struct GemmCandidateReport {
  std::string kernel;
  int tile_m = 0;
  int tile_n = 0;
  int tile_k = 0;
  int cluster_m = 0;   // thread blocks that share a tile of B
  int cluster_n = 0;   // thread blocks that share a tile of A
  int num_splits = 1;  // parts of K
  int stages = 0;      // of the pipeline from global to shared memory
  int shared_bytes = 0;
  int num_threads = 0;
  std::int64_t waves = 0;
  double tile_cycles = 0;
  double estimated_cycles = 0;
  double estimated_us = 0;
};

// A kernel that was looked at and left out before it was priced.
struct RefusedCandidateReport {
  int tile_m = 0;
  int tile_n = 0;
  int tile_k = 0;
  int cluster_m = 0;
  int cluster_n = 0;
  std::string reason;
};

// How a plan's kernel was chosen.
enum class ChosenBy {
  kModel,          // the cost model's first
  kRecord,         // measured on this GPU with this driver and compiler (octavo/tuning.hpp)
  kShippedRecord,  // by a record that came with Octavo
};

[[nodiscard]] constexpr const char* to_string(ChosenBy chosen) noexcept {
  switch (chosen) {
    case ChosenBy::kModel: return "model";
    case ChosenBy::kRecord: return "record";
    case ChosenBy::kShippedRecord: return "shipped record";
  }
  return "?";
}

struct GemmExplanation {
  std::vector<Reason> refusals;  // empty if a kernel serves it
  // The first is the choice, then the model's order. None where nothing is multiplied (M, N or K is
  // 0).
  std::vector<GemmCandidateReport> candidates;
  std::vector<RefusedCandidateReport> refused_candidates;
  ChosenBy chosen_by = ChosenBy::kModel;
  TuningRecord record;  // what the record beat, where one chose
  // What happens before, in and after the product, a sentence each: operands repacked, how
  // scales are read, how the result gets to D.
  std::vector<std::string> steps;
  std::size_t workspace_bytes = 0;
};

// The problem's tensors must be on cuda:N; their addresses count by their alignment and are never
// followed. Throws Error kInvalidArgument if the problem breaks a rule of gemm().
[[nodiscard]] GemmExplanation explain(const GemmProblem& problem, const GpuDescription& gpu);

}  // namespace octavo
