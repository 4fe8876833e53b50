// SPDX-License-Identifier: Apache-2.0
// octavo run quantize: one matrix to FP8, every code and scale checked against the definition
// (octavo/quantize.hpp), with the error that quantization itself makes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gemm_request.hpp"
#include "gemm_trial.hpp"
#include "gpu_placement.hpp"
#include "measure/gpu_stream.hpp"
#include "octavo/metrics.hpp"
#include "octavo/quantize.hpp"
#include "options.hpp"
#include "run_verbs.hpp"
#include "session.hpp"
#include "timing.hpp"

namespace octavo::cli {
namespace {

constexpr std::array kGranularities{ScaleGranularity::kTensor, ScaleGranularity::kRow,
                                    ScaleGranularity::kBlock1x128, ScaleGranularity::kBlock128x128};
constexpr std::array kQuantizeInputs{DType::kF32, DType::kBF16, DType::kF16};
constexpr std::array kCodeTypes{DType::kE4M3, DType::kE5M2};

struct RunQuantizeOptions {
  std::int64_t rows = 256;
  std::int64_t cols = 256;
  DType x_dtype = DType::kF32;
  DType dtype = DType::kE4M3;
  DType scale_dtype = DType::kF32;
  ScaleGranularity granularity = ScaleGranularity::kBlock1x128;
  Distribution data = Distribution::kGaussian;
  std::int64_t seed = 1;
  std::int64_t num_runs = 1;
  ExecutionRequest how;
};

std::uint32_t code_at(const HostTensor& tensor, std::int64_t idx) {
  std::uint32_t code = 0;
  const auto num_bytes = static_cast<std::size_t>(size_bytes(tensor.dtype()));
  std::memcpy(&code, tensor.bytes().data() + static_cast<std::size_t>(idx) * num_bytes, num_bytes);
  return code;
}

// The scale that the definition gives for a group whose largest magnitude is `amax`.
float defined_scale(float amax, const RunQuantizeOptions& options) {
  const float scale = std::max(amax, kDefaultAmaxFloor) / max_finite_fp8(options.dtype);
  if (options.scale_dtype == DType::kF32) return scale;
  return decode(DType::kUE8M0, encode(DType::kUE8M0, scale));
}

struct Mismatches {
  std::int64_t scales = 0;
  std::int64_t codes = 0;
};

Mismatches compare_with_definition(const RunQuantizeOptions& options, const HostTensor& x,
                                   const HostTensor& q, const HostTensor& scale) {
  const ScaleShape shape = scale_shape(options.granularity, options.rows, options.cols);
  std::vector<float> amax(static_cast<std::size_t>(shape.rows * shape.cols), 0.0F);
  const auto group = [&](std::int64_t row, std::int64_t col) {
    const ScaleShape at = scale_index(options.granularity, row, col);
    return static_cast<std::size_t>(at.rows * shape.cols + at.cols);
  };
  for (std::int64_t row = 0; row < options.rows; ++row) {
    for (std::int64_t col = 0; col < options.cols; ++col) {
      const float value = decode(x.dtype(), code_at(x, row * options.cols + col));
      float& largest = amax[group(row, col)];
      if (std::isfinite(value)) largest = std::max(largest, std::fabs(value));
    }
  }
  Mismatches mismatches;
  for (std::size_t i = 0; i < amax.size(); ++i) {
    const float given = decode(options.scale_dtype, code_at(scale, static_cast<std::int64_t>(i)));
    if (given != defined_scale(amax[i], options)) ++mismatches.scales;
  }
  for (std::int64_t row = 0; row < options.rows; ++row) {
    for (std::int64_t col = 0; col < options.cols; ++col) {
      const std::int64_t idx = row * options.cols + col;
      const float reciprocal = 1.0F / defined_scale(amax[group(row, col)], options);
      const float value = decode(x.dtype(), code_at(x, idx));
      if (code_at(q, idx) != encode(options.dtype, value * reciprocal)) ++mismatches.codes;
    }
  }
  return mismatches;
}

struct QuantizeTrial {
  QuantizeReport report;
  Timing timing;
};

// On the GPU; codes and scales are in host memory afterwards.
QuantizeTrial run_on_gpu(const RunQuantizeOptions& options, QuantizeProblem problem,
                         const HostTensor& x, HostTensor& q, HostTensor& scale) {
  const GpuTensor gpu_x(x);
  const GpuTensor gpu_q(q);
  const GpuTensor gpu_scale(scale);
  problem.x = gpu_x.view();
  problem.q = gpu_q.mutable_view();
  problem.scale = gpu_scale.mutable_view();
  const measure::GpuStream stream;
  Execution execution = options.how.execution();
  execution.backend = "cuda";
  execution.stream = stream.stream();
  QuantizeTrial trial;
  // Compiles and loads the kernels: neither may happen while a graph is captured.
  trial.report = quantize(problem, execution);
  stream.wait();
  const measure::Graph graph(stream, [&] { (void)quantize(problem, execution); });
  (void)graph.replay_ms(1);  // the first replay also sends the graph to the GPU
  constexpr double kUsPerMs = 1000;
  std::vector<double> times;
  for (std::int64_t i = 0; i < options.num_runs; ++i) {
    times.push_back(kUsPerMs * graph.replay_ms(1));
  }
  trial.timing = summarize(times);
  gpu_q.download(q);
  gpu_scale.download(scale);
  return trial;
}

QuantizeTrial run_trial(const RunQuantizeOptions& options, const QuantizeProblem& problem,
                        const HostTensor& x, HostTensor& q, HostTensor& scale) {
  if (placement_of(options.how) == Placement::kGpu) {
    try {
      return run_on_gpu(options, problem, x, q, scale);
    } catch (const Error& error) {
      // What no kernel is for runs on the CPU, unless the GPU was asked for by name.
      const bool refused = error.code() == ErrorCode::kUnsupported;
      if (!refused || options.how.backend == "cuda") throw;
    }
  }
  QuantizeTrial trial;
  std::vector<double> times;
  for (std::int64_t i = 0; i < options.num_runs; ++i) {
    times.push_back(time_us([&] { trial.report = quantize(problem, options.how.execution()); }));
  }
  trial.timing = summarize(times);
  return trial;
}

void run_quantize(const RunQuantizeOptions& options, Session& session) {
  constexpr double kBytesPerElement = 24;  // x in F32 and in its own type, codes, dequantized, amax
  require_memory("run quantize", static_cast<double>(options.rows) *
                                     static_cast<double>(options.cols) * kBytesPerElement);
  const HostTensor x = converted(
      random_tensor(options.data, options.seed, 0, {options.rows, options.cols}), options.x_dtype);
  HostTensor q(options.dtype, {options.rows, options.cols});
  const ScaleShape shape = scale_shape(options.granularity, options.rows, options.cols);
  const bool one_extent = options.granularity == ScaleGranularity::kTensor ||
                          options.granularity == ScaleGranularity::kRow;
  HostTensor scale(options.scale_dtype, one_extent
                                            ? std::vector<std::int64_t>{shape.rows}
                                            : std::vector<std::int64_t>{shape.rows, shape.cols});
  QuantizeProblem problem;
  problem.x = x.view();
  problem.q = q.mutable_view();
  problem.granularity = options.granularity;
  problem.scale = scale.mutable_view();
  const QuantizeTrial trial = run_trial(options, problem, x, q, scale);
  const QuantizeReport& report = trial.report;
  const Timing& timing = trial.timing;

  const Mismatches mismatches = compare_with_definition(options, x, q, scale);
  HostTensor back(DType::kF32, {options.rows, options.cols});
  DequantizeProblem inverse;
  inverse.q = q.view();
  inverse.scale = scale.view();
  inverse.granularity = options.granularity;
  inverse.x = back.mutable_view();
  dequantize(inverse, {.backend = "cpu", .num_threads = static_cast<int>(options.how.num_threads)});
  const ErrorMetrics error = compare(back.view(), x.view());
  const bool equal = mismatches.scales == 0 && mismatches.codes == 0;
  constexpr double kPerUsInGiga = 1e-3;
  const double bytes = static_cast<double>(x.bytes().size() + q.bytes().size());
  const double gbps = timing.median_us > 0 ? bytes / timing.median_us * kPerUsInGiga : 0;

  session.text(fmt::format(
      "quantize  [{}, {}] {} -> {}, {} scales {}, {} data\nran       {} on back end {}\n"
      "time      {:.1f} us (p10 {:.1f}, p90 {:.1f}, {} runs), {:.3g} GB/s read and written\n"
      "error     relative Frobenius {:.3e}, SQNR {:.1f} dB against the data\n"
      "verdict   {} (codes that differ from the definition: {}, scales: {})\n",
      options.rows, options.cols, to_string(options.x_dtype), to_string(options.dtype),
      to_string(options.granularity), to_string(options.scale_dtype), to_string(options.data),
      report.kernel, report.backend, timing.median_us, timing.p10_us, timing.p90_us,
      timing.num_runs, gbps, error.relative_frobenius, error.sqnr_db,
      equal ? "equal to the definition" : "NOT EQUAL TO THE DEFINITION", mismatches.codes,
      mismatches.scales));
  session.document({{"problem",
                     {{"op", "quantize"},
                      {"rows", options.rows},
                      {"cols", options.cols},
                      {"x_dtype", to_string(options.x_dtype)},
                      {"dtype", to_string(options.dtype)},
                      {"granularity", to_string(options.granularity)},
                      {"scales", to_string(options.scale_dtype)},
                      {"data", to_string(options.data)},
                      {"seed", options.seed}}},
                    {"backend", report.backend},
                    {"kernel", report.kernel},
                    {"us", to_json(timing)},
                    {"gbps", gbps},
                    {"error", to_json(error)},
                    {"different_codes", mismatches.codes},
                    {"different_scales", mismatches.scales},
                    {"equal_to_definition", equal}});
  if (!equal) session.finish_with(ExitCode::kCheckFailed);
}

}  // namespace

void add_run_quantize(CLI::App& run, Session& session) {
  auto options = std::make_shared<RunQuantizeOptions>();
  CLI::App& verb = add_verb(run, "quantize", "A matrix to FP8 codes and scales");
  constexpr Bounds<std::int64_t> kExtents{0, std::int64_t{1} << 24};
  constexpr Bounds<std::int64_t> kRuns{1, 100000};
  add_integer(verb, "--rows", options->rows, kExtents, "Rows");
  add_integer(verb, "--cols", options->cols, kExtents, "Columns");
  add_enum(verb, "--x-dtype", options->x_dtype, kQuantizeInputs, "Type of the data");
  add_enum(verb, "--dtype", options->dtype, kCodeTypes, "FP8 format");
  add_enum(verb, "--granularity", options->granularity, kGranularities, "What shares one scale");
  add_enum(verb, "--scales", options->scale_dtype, kScaleTypes, "Type of the scales");
  add_enum(verb, "--data", options->data, kDistributions, "Distribution of the random data");
  add_integer(verb, "--seed", options->seed, {0, INT64_MAX}, "Seed of the random data");
  add_integer(verb, "--repeat", options->num_runs, kRuns, "Timed runs");
  add_execution_options(verb, options->how);
  add_json_flag(verb);
  on_run(verb, [options, &session] { run_quantize(*options, session); });
}

}  // namespace octavo::cli
