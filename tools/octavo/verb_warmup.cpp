// SPDX-License-Identifier: Apache-2.0
// octavo warmup: compiles the GPU kernels that a suite's products need into the cache folder, so
// that a server's first request does not wait for them. Needs NVRTC; with --device-file no GPU.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench_suite.hpp"
#include "gpu_file.hpp"
#include "octavo/warm_up.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "unplaced_problem.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

struct WarmUpOptions {
  std::string suite;
  std::string device_file;
  std::int64_t num_threads = 0;
};

void warm_up_suite(const WarmUpOptions& options, Session& session) {
  const BenchSuite suite = load_suite(options.suite);
  std::optional<GpuDescription> gpu;
  if (!options.device_file.empty()) gpu = load_gpu(options.device_file);
  std::vector<GemmProblem> problems;
  for (const BenchProblem& problem : suite.problems) {
    problems.push_back(unplaced_problem(problem.request));
  }
  session.progress("compiling");
  const WarmUpReports reports =
      warm_up(problems, gpu ? &*gpu : nullptr, static_cast<int>(options.num_threads));
  session.progress("");
  Table table({{"kernel"}, {"seconds", Align::kRight}, {"ready"}});
  Json kernels = Json::array();
  for (const WarmedKernel& kernel : reports.kernels) {
    table.add_row({kernel.kernel, fmt::format("{:.2f}", kernel.seconds),
                   kernel.error.empty() ? "yes" : "no: " + kernel.error});
    kernels.push_back(
        {{"kernel", kernel.kernel}, {"seconds", kernel.seconds}, {"error", kernel.error}});
  }
  session.text(table.to_text());
  Json items = Json::array();
  bool all_ready = true;
  for (std::size_t i = 0; i < reports.problems.size(); ++i) {
    const WarmUpReport& report = reports.problems[i];
    all_ready = all_ready && report.error.empty();
    if (!report.error.empty()) {
      session.text(fmt::format("problems[{}] will not run: {}\n", i, report.error));
    }
    items.push_back({{"problem", to_json(suite.problems[i].request)},
                     {"kernel", report.kernel},
                     {"error", report.error}});
  }
  session.document(
      {{"suite", suite.name}, {"kernels", std::move(kernels)}, {"problems", std::move(items)}});
  if (!all_ready) session.finish_with(ExitCode::kCheckFailed);
}

}  // namespace

void add_warmup(CLI::App& app, Session& session) {
  auto options = std::make_shared<WarmUpOptions>();
  CLI::App& verb = add_verb(app, "warmup", "Compile the GPU kernels that a suite's products need");
  require(add_text(verb, "suite", options->suite, "The suite, a JSON file"));
  add_text(verb, "--device-file", options->device_file,
           "Compile for the GPU that this file describes (octavo doctor --device-out)");
  constexpr Bounds<std::int64_t> kThreads{0, 1024};
  add_integer(verb, "--threads", options->num_threads, kThreads,
              "Kernels compiled at a time; 0: one for each core");
  add_json_flag(verb);
  on_run(verb, [options, &session] { warm_up_suite(*options, session); });
}

}  // namespace octavo::cli
