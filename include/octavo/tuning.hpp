// SPDX-License-Identifier: Apache-2.0
// Measures which of the kernels that a plan could choose serves a product best on this GPU, and
// keeps the answer. Results do not depend on it: all candidates of a problem give the same bits.
//
// A record holds for a GPU, its driver, the compiler (NVRTC) and the version of Octavo, and for all
// M of a bucket: up to 8, 16, 32, 64 or 128, then up to the next multiple of 128. It lies in a file
// of its own in OCTAVO_CACHE_DIR/tuning, written whole or not at all; one that is damaged, of
// something else, or names a kernel that the plan does not offer counts as absent. Where there is
// none, records that come with Octavo are looked at, which hold for a GPU and a problem alone.
#pragma once

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/gemm.hpp"

namespace octavo {

struct TuningRecord {
  std::string environment;   // "driver=... nvrtc=... octavo=..."
  std::string problem;       // "gemm gpu=... m<=64 n=4096 ..."
  std::string kernel;        // the quickest
  double us = 0;             // its median time
  std::string model_kernel;  // the cost model's choice
  double model_us = 0;
  int num_candidates = 0;

  friend bool operator==(const TuningRecord&, const TuningRecord&) = default;
};

struct TuningProgress {
  std::size_t problem = 0;  // in the span given to tune()
  std::size_t num_problems = 0;
  std::string doing;
};

struct TuningOptions {
  double budget_s = 300;  // no problem is begun later; one under way is cut short
  // Of one measurement, after one that does not count. Much shorter ones favour kernels that draw
  // more power than a GPU sustains (docs/tuning.md).
  double window_ms = 40;
  bool again = false;  // also what has a record of this environment
  std::function<void(const TuningProgress&)> on_progress;
};

enum class TuningOutcome {
  kMeasured,  // `record` was measured now and is kept
  kKnown,     // `record` was there before
  kSkipped,   // `why` says what kept it from being tuned
};

struct TuningReport {
  TuningOutcome outcome = TuningOutcome::kSkipped;
  TuningRecord record;
  std::string why;
};

// Tunes every problem on the GPU of its device; addresses are not followed: operands are made for
// the time of a measurement, random, in sets of 240 MB together, but at most 64 sets. Batches are
// tuned as one of their matrices. One call at a time in a process. Throws Error
// kInvalidArgument if a problem breaks a rule of gemm(), kEnvironment without a GPU or NVRTC.
// Calls of gemm() use the records from then on.
std::vector<TuningReport> tune(std::span<const GemmProblem> problems,
                               const TuningOptions& options = {});

// Where records are kept, and what lies there.
struct TuningStore {
  std::string folder;  // empty: records are not kept
  std::vector<TuningRecord> records;
  int num_unusable = 0;  // files that are damaged or no records
};
[[nodiscard]] TuningStore tuning_store();

// All records of the store as text, and back. Import replaces records of the same environment and
// problem; nothing is imported unless all of the text is good. Throws Error kBadFile that names the
// line, kIo if the store cannot be written.
[[nodiscard]] std::string export_tuning();
int import_tuning(std::string_view text);

// How plans of this process were chosen, each counted when it was made.
struct TuningStatistics {
  std::size_t records = 0;          // by a record of this environment
  std::size_t shipped_records = 0;  // by one that came with Octavo
  std::size_t model = 0;            // by the cost model
};
[[nodiscard]] TuningStatistics tuning_statistics();

}  // namespace octavo
