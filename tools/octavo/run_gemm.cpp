// SPDX-License-Identifier: Apache-2.0
// octavo run gemm: one product on random or given operands, checked against FP64 arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>

#include "gemm_trial.hpp"
#include "options.hpp"
#include "run_verbs.hpp"
#include "session.hpp"

namespace octavo::cli {
namespace {

struct RunGemmOptions {
  GemmRequest request;
  ExecutionRequest how;
  std::int64_t num_runs = 1;
  CheckScope check = CheckScope::kAuto;
  std::string save;
  std::string load;
};

double gmac_per_s(const GemmRequest& request, double us) {
  const double products = static_cast<double>(std::max<std::int64_t>(request.batch, 1)) *
                          static_cast<double>(request.m) * static_cast<double>(request.n) *
                          static_cast<double>(request.k);
  constexpr double kProductsPerUsInGmac = 1e-3;
  return us > 0 ? products / us * kProductsPerUsInGmac : 0;
}

void print(const RunGemmOptions& options, const GemmTrial& trial, Session& session) {
  const GemmRequest& request = options.request;
  session.text(fmt::format(
      "gemm      M={} N={} K={}{}, {} x {} -> {}, recipe {}, {} accumulation, {} data\n", request.m,
      request.n, request.k, request.batch > 0 ? fmt::format(" batch={}", request.batch) : "",
      to_string(request.a_dtype), to_string(request.b_dtype), to_string(request.d_dtype),
      to_string(request.recipe), to_string(request.accumulation), to_string(request.data)));
  session.text(
      fmt::format("ran       {} on back end {}\n", trial.report.kernel, trial.report.backend));
  session.text(
      fmt::format("time      {:.1f} us (p10 {:.1f}, p90 {:.1f}, {} runs), {:.3g} GMAC/s{}\n",
                  trial.timing.median_us, trial.timing.p10_us, trial.timing.p90_us,
                  trial.timing.num_runs, gmac_per_s(request, trial.timing.median_us),
                  trial.time_source == TimeSource::kGpuEvents
                      ? ", on the GPU, the same operands again and again"
                      : ""));
  if (!trial.check) {
    session.text("check     none\n");
    return;
  }
  const GemmCheck& check = *trial.check;
  session.text(
      fmt::format("error     relative Frobenius {:.3e}, max {:.3e}, bias {:+.2e}, not finite {} "
                  "({} of {} rows)\n"
                  "          against FP64 arithmetic on the same operands\n",
                  check.error.relative_frobenius, check.error.max_abs, check.error.mean_signed,
                  check.error.num_not_finite, check.rows, request.m));
  if (check.exact) {
    session.text(
        fmt::format("quantized relative Frobenius {:.3e}, SQNR {:.1f} dB\n"
                    "          against FP64 arithmetic on the data before quantization\n",
                    check.exact->relative_frobenius, check.exact->sqnr_db));
  }
  if (check.different_from_emulation) {
    session.text(fmt::format("emulation {} of {} elements differ from the emulated tensor core\n",
                             *check.different_from_emulation, check.error.num_elements));
  }
  session.text(fmt::format(
      "bound     {:.3e} ({})\nverdict   {}\n", check.bound.relative_frobenius, check.bound.rule,
      check.within                                      ? "within the bound"
      : check.different_from_emulation.value_or(0) != 0 ? "NOT THE EMULATED TENSOR CORE'S BITS"
                                                        : "OUTSIDE THE BOUND"));
}

Json document(const RunGemmOptions& options, const GemmTrial& trial) {
  Json document{{"problem", to_json(options.request)},
                {"backend", trial.report.backend},
                {"numerics", to_string(options.how.numerics)},
                {"kernel", trial.report.kernel},
                {"num_splits", trial.report.num_splits},
                {"us", to_json(trial.timing)},
                {"clock", trial.time_source == TimeSource::kGpuEvents ? "gpu events" : "wall"},
                {"gmac_per_s", gmac_per_s(options.request, trial.timing.median_us)}};
  if (trial.check) {
    const GemmCheck& check = *trial.check;
    document["checked_rows"] = check.rows;
    document["error"] = to_json(check.error);
    if (check.exact) document["error_before_quantization"] = to_json(*check.exact);
    document["bound"] = {{"relative_frobenius", check.bound.relative_frobenius},
                         {"judged_error", check.judged_error},
                         {"rule", check.bound.rule}};
    document["within_bound"] = check.within;
    if (check.different_from_emulation) {
      document["different_from_emulation"] = *check.different_from_emulation;
    }
  }
  document["repeat"] = options.load.empty() ? repeat_command(options.request, options.how)
                                            : "octavo run gemm --load " + options.load;
  return document;
}

void run_gemm(RunGemmOptions& options, Session& session) {
  if (is_fp8(options.request.d_dtype) && options.check == CheckScope::kNone) {
    throw UsageError(
        "--check: \"none\" was given with an FP8 D, whose scale comes from the reference result. "
        "Use --check auto, or --d-dtype bf16.");
  }
  GemmOperands operands;
  if (options.load.empty()) {
    require_gemm_memory("run gemm", options.request);
    session.progress("drawing and quantizing operands");
    operands = make_operands(options.request);
  } else {
    operands = load_operands(options.load, options.request);
  }
  if (!options.save.empty()) save_operands(operands, options.save);
  session.progress("computing the product and its reference");
  const GemmTrial trial =
      run_gemm_trial(options.request, operands, options.how, options.num_runs, options.check);
  session.progress("");
  print(options, trial, session);
  session.document(document(options, trial));
  if (trial.check && !trial.check->within) session.finish_with(ExitCode::kCheckFailed);
}

}  // namespace

void add_run_gemm(CLI::App& run, Session& session) {
  auto options = std::make_shared<RunGemmOptions>();
  CLI::App& verb = add_verb(run, "gemm", "D = A B^T with quantized operands");
  add_gemm_options(verb, options->request);
  add_execution_options(verb, options->how);
  constexpr Bounds<std::int64_t> kRunBounds{1, 100000};
  add_integer(verb, "--repeat", options->num_runs, kRunBounds, "Timed runs");
  add_enum(verb, "--check", options->check, kCheckScopes,
           "Rows compared with FP64 arithmetic; auto: all, or a sample of a large product");
  add_text(verb, "--save", options->save, "Write the operands to a .safetensors file");
  add_text(verb, "--load", options->load, "Read the operands from such a file");
  add_json_flag(verb);
  on_run(verb, [options, &session] { run_gemm(*options, session); });
}

}  // namespace octavo::cli
