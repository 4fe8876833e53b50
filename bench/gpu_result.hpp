// SPDX-License-Identifier: Apache-2.0
// What the GPU benchmarks have in common beside octavo bench: their options, and a result file of
// the schema that all suites share.
#pragma once

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "measure/nvml_sampler.hpp"
#include "measure/today.hpp"
#include "octavo/octavo.hpp"

namespace octavo::bench {

struct GpuOptions {
  std::string out;
  std::string commit;
  bool dirty = false;
  int num_rounds = 5;
  double window_ms = 30;
};

inline void add_options(CLI::App& app, GpuOptions& options) {
  app.add_option("--out", options.out, "result file")->required();
  app.add_option("--commit", options.commit, "commit that was built, for the result file")
      ->required();
  app.add_flag("--dirty", options.dirty, "sources differed from that commit");
  app.add_option("--rounds", options.num_rounds, "windows of each contender")
      ->check(CLI::Range(1, 1000));
  app.add_option("--window-ms", options.window_ms, "shortest window")
      ->check(CLI::Range(1.0, 10000.0));
}

inline nlohmann::json known(double value, bool is_known) {
  return is_known ? nlohmann::json(value) : nlohmann::json();
}

// A result file without rows. `section`: of bench/METHOD.md.
inline nlohmann::json new_result(const GpuOptions& options, const measure::NvmlSampler& sampler,
                                 const std::string& suite, const std::string& section,
                                 const std::string& command) {
  const GpuDescription gpu = gpus().front();
  return {{"schema", 1},
          {"date", measure::today()},
          {"commit", options.commit},
          {"dirty", options.dirty},
          {"machine",
           {{"gpu", gpu.name},
            {"driver", sampler.driver()},
            {"cuda", gpu.cuda},
            {"cpu", cpu_info().model},
            {"power_limit_w", known(sampler.power_limit_w(), sampler.power_limit_w() > 0)}}},
          {"suite", suite},
          {"command", command},
          {"method", "bench/METHOD.md, section " + section},
          {"rounds", options.num_rounds},
          {"window_ms", options.window_ms},
          {"rows", nlohmann::json::array()}};
}

// After every case, for a run may be cut off.
inline void write_result(const nlohmann::json& result, const std::string& path) {
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  file.close();
  if (!file) {
    throw Error(ErrorCode::kIo,
                path + ": the result could not be written. Give --out a path that can be.");
  }
}

// The rest of a program: `run` gets the command that was typed.
template <typename Run>
int run_command(const std::string& program, int argc, char** argv, const Run& run) {
  std::string command = program;
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    return run(command);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}

}  // namespace octavo::bench
