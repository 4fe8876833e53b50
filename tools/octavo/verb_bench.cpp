// SPDX-License-Identifier: Apache-2.0
// octavo bench: a suite of products on the back ends of this machine; a table, JSON, or a result
// file of the one schema that reports read (bench/METHOD.md). Comparisons with other libraries are
// programs in bench/.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <array>
#include <cstdio>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench_suite.hpp"
#include "gemm_trial.hpp"
#include "octavo/runtime.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "tensor_file.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

constexpr int kSchema = 1;

struct BenchOptions {
  std::string suite;
  std::string out;
  std::int64_t num_runs = 11;
  ExecutionRequest how;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &utc);
  return text.data();
}

// What a fixed git command prints, without the last newline; empty if there is no repository.
std::string git_output(const char* command) {
  std::FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return "";
  std::string output;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) {
    output += buffer.data();
  }
  if (pclose(pipe) != 0) return "";
  while (output.ends_with('\n')) output.pop_back();
  return output;
}

// Which sources this was measured in: null outside a clone of Octavo, whose other commits say
// nothing about this program.
Json commit() {
  const std::string tracked = git_output("git ls-files -- :/include/octavo/octavo.hpp 2>/dev/null");
  if (tracked.empty()) return nullptr;
  return git_output("git rev-parse HEAD 2>/dev/null");
}

bool has_changes() {
  return !git_output(
              "git status --porcelain --untracked-files=no -- :/src :/include :/tools :/bench "
              "2>/dev/null")
              .empty();
}

// What was typed, but for --json, which changes nothing that is measured.
std::string command_of(const BenchOptions& options) {
  const BenchOptions defaults;
  std::string command = "octavo bench " + options.suite;
  if (!options.out.empty()) command += " --out " + options.out;
  if (options.num_runs != defaults.num_runs)
    command += fmt::format(" --repeat {}", options.num_runs);
  if (!options.how.backend.empty()) command += " --backend " + options.how.backend;
  if (options.how.numerics != defaults.how.numerics) {
    command += std::string(" --numerics ") + to_string(options.how.numerics);
  }
  if (options.how.num_threads != 0)
    command += fmt::format(" --threads {}", options.how.num_threads);
  return command;
}

Json machine() {
  const CpuInfo cpu = cpu_info();
  return {{"gpu", nullptr},          {"driver", nullptr},
          {"cuda", nullptr},         {"cpu", cpu.model},
          {"cores", cpu.num_cores},  {"instruction_set", cpu.instruction_set},
          {"sm_clock_mhz", nullptr}, {"power_w", nullptr}};
}

double bytes_of(const GemmOperands& operands, const GemmRequest& request) {
  const double outputs = static_cast<double>(request.batch > 0 ? request.batch : 1) *
                         static_cast<double>(request.m) * static_cast<double>(request.n);
  const auto inputs = operands.a.bytes().size() + operands.b.bytes().size() +
                      operands.a_scale.bytes().size() + operands.b_scale.bytes().size();
  const double accesses = request.accumulate ? 2 : 1;
  return static_cast<double>(inputs) + outputs * size_bytes(request.d_dtype) * accesses;
}

struct BenchRow {
  Json json;
  std::vector<std::string> cells;
};

BenchRow run_problem(const BenchProblem& problem, const BenchOptions& options) {
  constexpr double kPerUsInTera = 1e-6;
  constexpr double kPerUsInGiga = 1e-3;
  const GemmRequest& request = problem.request;
  ExecutionRequest how = options.how;
  if (problem.numerics != Numerics::kDefault) how.numerics = problem.numerics;
  require_gemm_memory("bench", request);
  const GemmOperands operands = make_operands(request);
  // One untimed run brings code, threads and operands to where later runs find them.
  (void)run_gemm_trial(request, operands, how, 1, CheckScope::kNone);
  const GemmTrial trial =
      run_gemm_trial(request, operands, how, options.num_runs, CheckScope::kAuto);
  const double us = trial.timing.median_us;
  const double flop = 2.0 * static_cast<double>(request.batch > 0 ? request.batch : 1) *
                      static_cast<double>(request.m) * static_cast<double>(request.n) *
                      static_cast<double>(request.k);
  const double tflops = flop / us * kPerUsInTera;
  const double gbps = bytes_of(operands, request) / us * kPerUsInGiga;
  const GemmCheck& check = trial.check.value();
  BenchRow row;
  row.json = {{"problem", to_json(request)},
              {"contender", "octavo"},
              {"kernel", trial.report.kernel},
              {"us", to_json(trial.timing)},
              {"tflops", tflops},
              {"gbps", gbps},
              {"roofline_pct", nullptr},
              {"ratio_to_yardstick", nullptr},
              {"yardstick", nullptr},
              {"error",
               {{"relative_frobenius", check.error.relative_frobenius},
                {"max_abs", check.error.max_abs},
                {"within_bound", check.within}}},
              {"repeat", repeat_command(request, how)}};
  row.json["problem"]["numerics"] = to_string(how.numerics);
  row.cells = {fmt::format("{}", request.m),
               fmt::format("{}", request.n),
               fmt::format("{}", request.k),
               to_string(request.recipe),
               trial.report.kernel,
               fmt::format("{:.1f}", us),
               fmt::format("{:.1f}-{:.1f}", trial.timing.p10_us, trial.timing.p90_us),
               fmt::format("{:.2f}", tflops * 1e3),
               fmt::format("{:.2f}", gbps),
               fmt::format("{:.1e}{}", check.error.relative_frobenius, check.within ? "" : " BAD")};
  return row;
}

void bench(const BenchOptions& options, Session& session) {
  const BenchSuite suite = load_suite(options.suite);
  // Created first: a path that cannot be written is noticed before the hour of measuring.
  std::optional<ReplacedFile> file;
  if (!options.out.empty()) file.emplace(options.out);
  Table table({{"M", Align::kRight},
               {"N", Align::kRight},
               {"K", Align::kRight},
               {"recipe"},
               {"kernel"},
               {"us", Align::kRight},
               {"p10-p90", Align::kRight},
               {"GFLOP/s", Align::kRight},
               {"GB/s", Align::kRight},
               {"error", Align::kRight}});
  Json rows = Json::array();
  bool all_within = true;
  for (std::size_t i = 0; i < suite.problems.size(); ++i) {
    session.progress(fmt::format("{} of {}", i + 1, suite.problems.size()));
    BenchRow row = run_problem(suite.problems[i], options);
    all_within = all_within && row.json["error"]["within_bound"].get<bool>();
    table.add_row(std::move(row.cells));
    rows.push_back(std::move(row.json));
  }
  session.progress("");
  Json commit_hash = commit();
  Json dirty = commit_hash.is_null() ? Json(nullptr) : Json(has_changes());
  Json document{
      {"schema", kSchema},
      {"date", today()},
      {"commit", std::move(commit_hash)},
      {"dirty", std::move(dirty)},
      {"machine", machine()},
      {"suite", suite.name},
      {"command", command_of(options)},
      {"method", fmt::format("wall-clock time of {} runs after one untimed run, operands in "
                             "memory, one call at a time",
                             options.num_runs)},
      {"rows", std::move(rows)}};
  if (file) {
    // A path in it need not be UTF-8: what is not becomes U+FFFD rather than an exception.
    constexpr int kIndent = 1;
    const std::string text =
        document.dump(kIndent, ' ', false, Json::error_handler_t::replace) + "\n";
    file->write(text.data(), text.size());
    file->commit();
  }
  session.text(table.to_text());
  session.document(std::move(document));
  if (!all_within) session.finish_with(ExitCode::kCheckFailed);
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
  auto options = std::make_shared<BenchOptions>();
  CLI::App* verb = app.add_subcommand("bench", "A suite of products, timed and checked");
  verb->add_option("suite", options->suite, "The suite, a JSON file")->required();
  verb->add_option("--out", options->out, "Write a result file");
  constexpr Bounds<std::int64_t> kRuns{1, 100000};
  add_integer(*verb, "--repeat", options->num_runs, kRuns, "Timed runs of each problem");
  add_execution_options(*verb, options->how);
  add_json_flag(*verb);
  verb->callback([options, &session] { bench(*options, session); });
}

}  // namespace octavo::cli
