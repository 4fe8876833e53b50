// SPDX-License-Identifier: Apache-2.0
// octavo bench: a suite of products, on the GPU (gpu_bench.cpp) or on the CPU; text, JSON, or a
// result file of the one schema that reports read (bench/METHOD.md). The comparison of CPU products
// with OpenBLAS is a program in bench/.
#include <fmt/format.h>

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench_suite.hpp"
#include "gemm_trial.hpp"
#include "gpu_bench.hpp"
#include "gpu_placement.hpp"
#include "measure/today.hpp"
#include "octavo/runtime.hpp"
#include "options.hpp"
#include "result_file.hpp"
#include "session.hpp"
#include "table.hpp"
#include "tensor_file.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

struct BenchOptions {
  std::string suite;
  std::int64_t num_runs = 11;
  ExecutionRequest how;
  GpuBenchOptions gpu;  // --out is of both
  // Options as they were declared, to tell which were given.
  std::vector<const CLI::Option*> of_cpu;
  std::vector<const CLI::Option*> of_gpu;
};

// What was typed, but for --json, which changes nothing that is measured.
std::string command_of(const BenchOptions& options) {
  const BenchOptions defaults;
  const auto differs = [](auto value, auto usual) { return value != usual; };
  std::string command = "octavo bench " + options.suite;
  const auto add_text = [&](const char* option, const std::string& value) {
    if (!value.empty()) command += std::string(" ") + option + " " + value;
  };
  add_text("--out", options.gpu.out);
  if (differs(options.num_runs, defaults.num_runs)) {
    command += fmt::format(" --repeat {}", options.num_runs);
  }
  add_text("--backend", options.how.backend);
  if (options.how.numerics != defaults.how.numerics) {
    command += std::string(" --numerics ") + to_string(options.how.numerics);
  }
  if (options.how.num_threads != 0)
    command += fmt::format(" --threads {}", options.how.num_threads);
  if (options.gpu.shapes != defaults.gpu.shapes) add_text("--shapes", options.gpu.shapes);
  add_text("--contenders", fmt::format("{}", fmt::join(options.gpu.contenders, ",")));
  if (differs(options.gpu.num_rounds, defaults.gpu.num_rounds)) {
    command += fmt::format(" --rounds {}", options.gpu.num_rounds);
  }
  if (differs(options.gpu.window_ms, defaults.gpu.window_ms)) {
    command += fmt::format(" --window-ms {}", options.gpu.window_ms);
  }
  if (differs(options.gpu.budget_s, defaults.gpu.budget_s)) {
    command += fmt::format(" --budget-s {}", options.gpu.budget_s);
  }
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

void bench_on_cpu(const BenchSuite& suite, const BenchOptions& options, Session& session) {
  // Created first: a path that cannot be written is noticed before the hour of measuring.
  std::optional<ReplacedFile> file;
  if (!options.gpu.out.empty()) file.emplace(options.gpu.out);
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
  Json document{
      {"schema", kResultSchema},
      {"date", measure::today()},
      {"commit", commit_here()},
      {"dirty", dirty_here()},
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

void refuse_given(const std::vector<const CLI::Option*>& options, const char* where,
                  const char* other) {
  for (const CLI::Option* option : options) {
    if (!is_given(option)) continue;
    throw UsageError(fmt::format(
        "{}: it was given, and the suite runs on the {}, where it has no meaning. Leave it out, or "
        "name --backend {}.",
        option_name(option), where, other));
  }
}

void bench(const BenchOptions& options, Session& session) {
  const BenchSuite suite = load_suite(options.suite);
  if (placement_of(options.how) == Placement::kGpu) {
    refuse_given(options.of_cpu, "GPU", "cpu");
    bench_on_gpu(suite, options.gpu, command_of(options), session);
  } else {
    refuse_given(options.of_gpu, "CPU", "cuda");
    bench_on_cpu(suite, options, session);
  }
}

}  // namespace

void add_bench(CLI::App& app, Session& session) {
  auto options = std::make_shared<BenchOptions>();
  GpuBenchOptions& gpu = options->gpu;
  CLI::App& verb = add_verb(app, "bench", "A suite of products, timed and checked");
  require(add_text(verb, "suite", options->suite, "The suite, a JSON file"));
  add_text(verb, "--out", gpu.out, "Write a result file");
  add_execution_options(verb, options->how);
  constexpr Bounds<std::int64_t> kRuns{1, 100000};
  options->of_cpu = {
      add_integer(verb, "--repeat", options->num_runs, kRuns, "CPU: timed runs of each problem"),
      option_of(verb, "--threads")};
  constexpr Bounds<std::int64_t> kRounds{1, 1000};
  constexpr Bounds<double> kWindowMs{1, 10000};
  constexpr Bounds<double> kBudgetS{0, 1e6};
  static constexpr std::array<std::string_view, 3> kShapeClasses{"all", "large", "small"};
  options->of_gpu = {
      add_texts(verb, "--contenders", gpu.contenders,
                "GPU: who takes part, with commas between; the yardstick always does", ','),
      add_word(verb, "--shapes", gpu.shapes, kShapeClasses, "GPU: large is M of 1024 and more"),
      add_integer(verb, "--rounds", gpu.num_rounds, kRounds, "GPU: windows of each contender"),
      add_decimal(verb, "--window-ms", gpu.window_ms, kWindowMs, "GPU: the shortest window"),
      add_decimal(verb, "--budget-s", gpu.budget_s, kBudgetS,
                  "GPU: no shape is begun later than this"),
      add_text(verb, "--cublaslt", gpu.cublaslt, "GPU: the file of the cuBLASLt library"),
      add_text(verb, "--commit", gpu.commit,
               "GPU: the commit that was built, where git is not there to ask"),
      add_flag(verb, "--dirty", gpu.dirty, "GPU: sources differed from that commit")};
  add_json_flag(verb);
  set_footer(
      verb,
      "On a GPU (the default where there is one) each shape of the suite is measured with every\n"
      "contender, interleaved with cuBLASLt; on the CPU each problem as it is. bench/METHOD.md.");
  on_run(verb, [options, &session] { bench(*options, session); });
}

}  // namespace octavo::cli
