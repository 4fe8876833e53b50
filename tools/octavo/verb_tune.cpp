// SPDX-License-Identifier: Apache-2.0
// octavo tune: measures which kernel serves each product of a suite best on this GPU and keeps it;
// and the store of such records, shown, exported and imported. Showing needs no GPU.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <system_error>
#include <tuple>
#include <vector>

#include "bench_suite.hpp"
#include "gpu_bench_report.hpp"
#include "octavo/tuning.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "tensor_file.hpp"
#include "unplaced_problem.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

struct TuneOptions {
  std::string suite;
  std::string export_to;
  std::string import_from;
  bool show = false;
  bool as_given = false;
  TuningOptions tuning;
};

// As given, or each shape once for every recipe that octavo bench measures, with BF16 results.
std::vector<GemmRequest> requests_of(const BenchSuite& suite, bool as_given) {
  std::vector<GemmRequest> requests;
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t>> shapes;
  for (const BenchProblem& problem : suite.problems) {
    GemmRequest request = problem.request;
    if (as_given) {
      requests.push_back(request);
      continue;
    }
    if (!shapes.insert({request.m, request.n, request.k}).second) continue;
    request.d_dtype = DType::kBF16;
    for (const ContenderKind& kind : kKinds) {
      if (kind.maker != Maker::kOctavo) continue;
      request.recipe = kind.recipe;
      request.accumulation = kind.accumulation;
      requests.push_back(request);
    }
  }
  return requests;
}

const char* to_string(TuningOutcome outcome) {
  switch (outcome) {
    case TuningOutcome::kMeasured: return "measured";
    case TuningOutcome::kKnown: return "known";
    case TuningOutcome::kSkipped: return "skipped";
  }
  return "?";
}

Json to_json(const TuningRecord& record) {
  return {{"environment", record.environment},
          {"problem", record.problem},
          {"kernel", record.kernel},
          {"us", record.us},
          {"model_kernel", record.model_kernel},
          {"model_us", record.model_us},
          {"num_candidates", record.num_candidates}};
}

void tune_suite(const TuneOptions& options, Session& session) {
  const BenchSuite suite = load_suite(options.suite);
  std::vector<GemmProblem> problems;
  for (const GemmRequest& request : requests_of(suite, options.as_given)) {
    problems.push_back(unplaced_problem(request));
  }
  TuningOptions tuning = options.tuning;
  tuning.on_progress = [&session](const TuningProgress& progress) {
    constexpr std::size_t kBar = 24;
    const std::size_t done = progress.problem * kBar / progress.num_problems;
    session.progress(fmt::format("[{}{}] {}/{} {}", std::string(done, '#'),
                                 std::string(kBar - done, '.'), progress.problem + 1,
                                 progress.num_problems, progress.doing));
  };
  const std::vector<TuningReport> reports = tune(problems, tuning);
  session.progress("");
  Json items = Json::array();
  double log_gain = 0;
  int num_records = 0;
  bool all_tuned = true;
  for (const TuningReport& report : reports) {
    Json item = to_json(report.record);
    item["outcome"] = to_string(report.outcome);
    item["why"] = report.why;
    items.push_back(std::move(item));
    if (report.outcome == TuningOutcome::kSkipped) {
      all_tuned = false;
      session.text(fmt::format("skipped: {}\n", report.why));
      continue;
    }
    const TuningRecord& record = report.record;
    const double gain = record.model_us / record.us;
    log_gain += std::log(gain);
    ++num_records;
    session.text(
        fmt::format("{} {:8.1f} us, {:.3f} of the model's choice in time; {} of {} kernels\n"
                    "  {}\n",
                    to_string(report.outcome), record.us, 1 / gain,
                    record.kernel == record.model_kernel ? "the same" : "another",
                    record.num_candidates, record.problem));
  }
  const double mean = num_records > 0 ? std::exp(log_gain / num_records) : 1;
  session.text(
      fmt::format("{} of {} tuned; time of the model's choices over that of the quickest, "
                  "geometric mean: {:.4f}\n",
                  num_records, reports.size(), mean));
  session.document(
      {{"suite", suite.name}, {"model_time_over_tuned", mean}, {"problems", std::move(items)}});
  if (!all_tuned) session.finish_with(ExitCode::kCheckFailed);
}

void show_store(Session& session) {
  const TuningStore store = tuning_store();
  Table table({{"us", Align::kRight}, {"model us", Align::kRight}, {"problem"}, {"kernel"}});
  Json items = Json::array();
  for (const TuningRecord& record : store.records) {
    table.add_row({fmt::format("{:.1f}", record.us), fmt::format("{:.1f}", record.model_us),
                   record.problem, record.kernel});
    items.push_back(to_json(record));
  }
  session.text(table.to_text());
  session.text(fmt::format("{} records and {} files that are none in {}\n", store.records.size(),
                           store.num_unusable, store.folder.empty() ? "no folder" : store.folder));
  session.document({{"folder", store.folder},
                    {"num_unusable", store.num_unusable},
                    {"records", std::move(items)}});
}

void export_store(const std::string& path, Session& session) {
  const std::string text = export_tuning();
  ReplacedFile file(path);
  file.write(text.data(), text.size());
  file.commit();
  session.text(fmt::format("{} records written to {}\n", tuning_store().records.size(), path));
  session.document({{"file", path}, {"num_records", tuning_store().records.size()}});
}

void import_store(const std::string& path, Session& session) {
  std::error_code ignored;
  std::ifstream file;
  if (std::filesystem::is_regular_file(path, ignored)) file.open(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: the file cannot be read; it must hold records that "
                            "octavo tune --export wrote. Check the path.",
                            path));
  }
  const int count = import_tuning(text);
  session.text(fmt::format("{} records imported\n", count));
  session.document({{"file", path}, {"num_records", count}});
}

void tune_or_store(const TuneOptions& options, Session& session) {
  const int given = (options.suite.empty() ? 0 : 1) + (options.export_to.empty() ? 0 : 1) +
                    (options.import_from.empty() ? 0 : 1) + (options.show ? 1 : 0);
  if (given != 1) {
    throw UsageError(
        fmt::format("tune: {} of a suite, --show, --export and --import were given; it takes "
                    "exactly one of them. Make a call for each.",
                    given));
  }
  if (options.show) return show_store(session);
  if (!options.export_to.empty()) return export_store(options.export_to, session);
  if (!options.import_from.empty()) return import_store(options.import_from, session);
  tune_suite(options, session);
}

}  // namespace

void add_tune(CLI::App& app, Session& session) {
  auto options = std::make_shared<TuneOptions>();
  CLI::App& verb =
      add_verb(app, "tune", "Measure the best kernel for each product of a suite, and keep it");
  add_text(verb, "suite", options->suite, "The suite, a JSON file");
  constexpr Bounds<double> kBudgetS{0, 1e6};
  constexpr Bounds<double> kWindowMs{0.1, 10000};
  add_decimal(verb, "--budget-s", options->tuning.budget_s, kBudgetS,
              "No product is begun later; one under way is cut short");
  add_decimal(verb, "--window-ms", options->tuning.window_ms, kWindowMs,
              "Length of one measurement");
  add_flag(verb, "--again", options->tuning.again, "Also products that have a record");
  add_flag(verb, "--as-given", options->as_given,
           "Each product with the suite's own recipe and types");
  add_flag(verb, "--show", options->show, "The records that are kept");
  add_text(verb, "--export", options->export_to, "Write all records to a file");
  add_text(verb, "--import", options->import_from, "Take records from such a file");
  add_json_flag(verb);
  set_footer(
      verb,
      "Each shape of the suite is tuned for the recipes that octavo bench measures, with BF16\n"
      "results. Records lie in OCTAVO_CACHE_DIR/tuning; gemm() follows them. All kernels of a\n"
      "product give the same bits.");
  on_run(verb, [options, &session] { tune_or_store(*options, session); });
}

}  // namespace octavo::cli
