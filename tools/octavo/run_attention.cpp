// SPDX-License-Identifier: Apache-2.0
// octavo run attention: one problem on random data, checked against FP64 arithmetic.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "attention_operands.hpp"
#include "error_bounds.hpp"
#include "gemm_request.hpp"
#include "gemm_trial.hpp"
#include "octavo/metrics.hpp"
#include "options.hpp"
#include "run_verbs.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace octavo::cli {
namespace {

struct RunAttentionOptions {
  AttentionRequest request;
  ExecutionRequest how;
  std::int64_t num_runs = 1;
};

ErrorBound bound_for(const RunAttentionOptions& options) {
  // P is rounded to E4M3, half a unit of 1/8 at most: 2.6e-2 rms on one factor of P V.
  constexpr double kEmulated = 3e-2;
  // FP32 sums and one exponential per pair.
  constexpr double kBlocked = 1e-5;
  ErrorBound bound;
  switch (options.how.numerics) {
    case Numerics::kReference: bound = {1e-6, "reference: one rounding to FP32"}; break;
    case Numerics::kEmulated: bound = {kEmulated, "P rounded to E4M3: 3e-2"}; break;
    default: bound = {kBlocked, "FP32 sums: 1e-5"}; break;
  }
  const DType o_dtype = options.request.o_dtype;
  if (o_dtype != DType::kF32) {
    bound.relative_frobenius = bound.relative_frobenius * 2 + rounding_cost(o_dtype).relative;
    bound.rule += std::string(", and one rounding to ") + to_string(o_dtype);
  }
  return bound;
}

// Largest difference of the log-sum-exps where both are finite; infinite if only one is.
double lse_difference(const HostTensor& lse, const HostTensor& reference) {
  double largest = 0;
  const std::span<const float> a = lse.f32();
  const std::span<const float> b = reference.f32();
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;  // -inf in both: no key is seen
    largest = std::max(largest, std::fabs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return largest;
}

double multiplications(const AttentionRequest& request) {
  return static_cast<double>(request.batch) * static_cast<double>(request.heads) *
         static_cast<double>(request.q_len) * static_cast<double>(request.kv_len) *
         static_cast<double>(request.head_dim + request.value_dim());
}

void require_attention_memory(const AttentionRequest& request) {
  constexpr double kBytesPerInput = 12;
  constexpr double kBytesPerOutput = 16;
  const auto batch = static_cast<double>(request.batch);
  const double dims = static_cast<double>(request.head_dim + request.value_dim());
  require_memory("run attention",
                 batch * dims *
                     (static_cast<double>(request.q_len) * static_cast<double>(request.heads) *
                          (kBytesPerInput + kBytesPerOutput) +
                      static_cast<double>(request.kv_len + request.page_size) *
                          static_cast<double>(request.kv_heads) * kBytesPerInput));
}

void run_attention(const RunAttentionOptions& options, Session& session) {
  const AttentionRequest& request = options.request;
  check_options(request);
  require_attention_memory(request);
  session.progress("drawing operands");
  const AttentionOperands operands = make_operands(request);
  HostTensor o = make_output(request, request.o_dtype);
  HostTensor lse = make_lse(request);
  const AttentionProblem problem = make_problem(request, operands, InputForm::kQuantized, o, lse);
  session.progress("computing attention and its reference");
  AttentionReport report;
  std::vector<double> times;
  for (std::int64_t i = 0; i < options.num_runs; ++i) {
    times.push_back(time_us([&] { report = attention(problem, options.how.execution()); }));
  }
  const Timing timing = summarize(times);

  Execution reference;
  reference.backend = "cpu";
  reference.numerics = Numerics::kReference;
  reference.num_threads = static_cast<int>(options.how.num_threads);
  HostTensor reference_o = make_output(request, DType::kF32);
  HostTensor reference_lse = make_lse(request);
  attention(make_problem(request, operands, InputForm::kQuantized, reference_o, reference_lse),
            reference);
  HostTensor exact_o = make_output(request, DType::kF32);
  HostTensor exact_lse = make_lse(request);
  attention(make_problem(request, operands, InputForm::kExact, exact_o, exact_lse), reference);
  session.progress("");

  const ErrorMetrics error = compare(o.view(), reference_o.view());
  const ErrorMetrics exact = compare(o.view(), exact_o.view());
  const ErrorBound bound = bound_for(options);
  const double lse_error = lse_difference(lse, reference_lse);
  // Scores are sums of head_dim products; the tensor core's 13 bits move them by a few 1e-3.
  constexpr double kLseBound = 2e-2;
  const bool within = error.num_not_finite == 0 &&
                      error.relative_frobenius <= bound.relative_frobenius &&
                      lse_error <= kLseBound;
  constexpr double kPerUsInGiga = 1e-3;
  const double gmac =
      timing.median_us > 0 ? multiplications(request) / timing.median_us * kPerUsInGiga : 0;
  session.text(fmt::format(
      "attention batch={} q_len={} kv_len={} heads={}/{} dims={}/{}{}, {} -> {}, scales {}, mask "
      "{}\n"
      "ran       {} on back end {}\n"
      "time      {:.1f} us (p10 {:.1f}, p90 {:.1f}, {} runs), {:.3g} GMAC/s over every pair\n"
      "error     relative Frobenius {:.3e}, max {:.3e}, not finite {}; log-sum-exp {:.2e}\n"
      "          against FP64 arithmetic on the same operands\n"
      "quantized relative Frobenius {:.3e} against FP64 arithmetic on the data before "
      "quantization\n"
      "bound     {:.3e} ({}), log-sum-exp {:.0e}\nverdict   {}\n",
      request.batch, request.q_len, request.kv_len, request.heads, request.kv_heads,
      request.head_dim, request.value_dim(),
      request.page_size > 0 ? fmt::format(" pages of {}", request.page_size) : "",
      to_string(request.dtype), to_string(request.o_dtype), to_string(request.scales),
      to_string(request.mask), report.kernel, report.backend, timing.median_us, timing.p10_us,
      timing.p90_us, timing.num_runs, gmac, error.relative_frobenius, error.max_abs,
      error.num_not_finite, lse_error, exact.relative_frobenius, bound.relative_frobenius,
      bound.rule, kLseBound, within ? "within the bound" : "OUTSIDE THE BOUND"));
  session.document({{"problem", to_json(request)},
                    {"backend", report.backend},
                    {"numerics", to_string(options.how.numerics)},
                    {"kernel", report.kernel},
                    {"us", to_json(timing)},
                    {"gmac_per_s", gmac},
                    {"error", to_json(error)},
                    {"error_before_quantization", to_json(exact)},
                    {"lse_max_difference", lse_error},
                    {"bound",
                     {{"relative_frobenius", bound.relative_frobenius},
                      {"lse_max_difference", kLseBound},
                      {"rule", bound.rule}}},
                    {"within_bound", within}});
  if (!within) session.finish_with(ExitCode::kCheckFailed);
}

}  // namespace

void add_run_attention(CLI::App& run, Session& session) {
  auto options = std::make_shared<RunAttentionOptions>();
  CLI::App& verb = add_verb(run, "attention", "softmax(Q K^T) V");
  add_attention_options(verb, options->request);
  constexpr Bounds<std::int64_t> kRunBounds{1, 100000};
  add_integer(verb, "--repeat", options->num_runs, kRunBounds, "Timed runs");
  add_execution_options(verb, options->how);
  add_json_flag(verb);
  on_run(verb, [options, &session] { run_attention(*options, session); });
}

}  // namespace octavo::cli
