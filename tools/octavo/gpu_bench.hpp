// SPDX-License-Identifier: Apache-2.0
// octavo bench on a GPU: products against cuBLASLt, interleaved in one run under sustained load.
// The rules it follows: bench/METHOD.md, "GPU products".
#pragma once

#include <string>
#include <vector>

#include "bench_suite.hpp"
#include "session.hpp"

namespace octavo::cli {

struct GpuBenchOptions {
  std::string out;       // empty: no result file
  std::string commit;    // empty: git is asked
  bool dirty = false;    // beside a commit that was given
  std::string cublaslt;  // the library's file; empty: where the loader looks
  std::string shapes = "all";
  std::vector<std::string> contenders;  // empty: all
  std::int64_t num_rounds = 5;
  double window_ms = 120;
  double budget_s = 240;
};

void bench_on_gpu(const BenchSuite& suite, const GpuBenchOptions& options,
                  const std::string& command, Session& session);

}  // namespace octavo::cli
