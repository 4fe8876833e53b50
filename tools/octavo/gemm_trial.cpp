// SPDX-License-Identifier: Apache-2.0
#include "gemm_trial.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "gpu_placement.hpp"
#include "measure/gpu_stream.hpp"
#include "octavo/gemm.hpp"
#include "octavo/quantize.hpp"

namespace octavo::cli {
namespace {

std::int64_t num_batches(const GemmRequest& request) {
  return std::max<std::int64_t>(request.batch, 1);
}

// The step between checked rows.
std::int64_t row_step(const GemmRequest& request, CheckScope scope) {
  if (scope == CheckScope::kAll) return 1;
  // FP64 loops do some 10^8 to 10^9 multiplications a second on a few cores.
  constexpr double kMaxProducts = 1 << 29;
  const double row = static_cast<double>(num_batches(request)) * static_cast<double>(request.n) *
                     static_cast<double>(std::max<std::int64_t>(request.k, 1));
  const double rows = std::max(1.0, std::floor(kMaxProducts / std::max(row, 1.0)));
  return std::max<std::int64_t>(
      1, static_cast<std::int64_t>(std::ceil(static_cast<double>(request.m) / rows)));
}

// A view of every step-th row of a [rows, cols] or [batch, rows, cols] tensor.
template <typename Pointer>
BasicTensorView<Pointer> rows_of(BasicTensorView<Pointer> view, std::int64_t step) {
  return every(view, view.rank - 2, step);
}

TensorView scale_rows_of(const TensorView& scale, ScaleGranularity granularity, std::int64_t step,
                         bool batched) {
  const bool per_row =
      granularity == ScaleGranularity::kRow || granularity == ScaleGranularity::kBlock1x128;
  return per_row && scale.present() ? every(scale, batched ? 1 : 0, step) : scale;
}

// Every step-th row of what is added to, in its own type.
void copy_rows(const HostTensor& from, std::int64_t step, HostTensor& to) {
  const TensorView source = rows_of(from.view(), step);
  const MutableTensorView target = to.mutable_view();
  const bool batched = source.rank > 2;
  const std::int64_t batches = batched ? source.shape[0] : 1;
  const auto row = static_cast<std::size_t>(source.rank - 2);
  const std::int64_t element_bytes = size_bytes(from.dtype());
  for (std::int64_t i = 0; i < batches; ++i) {
    for (std::int64_t j = 0; j < source.shape[row]; ++j) {
      const auto first = (batched ? i * source.strides[0] : 0) + j * source.strides[row];
      const auto place = (batched ? i * target.strides[0] : 0) + j * target.strides[row];
      std::copy_n(static_cast<const std::byte*>(source.data) + first * element_bytes,
                  source.shape[row + 1] * element_bytes,
                  static_cast<std::byte*>(target.data) + place * element_bytes);
    }
  }
}

// Every step-th row of `problem` by the CPU, its D of type `d_dtype`.
HostTensor rows_on_cpu(GemmProblem problem, const HostTensor& added, std::int64_t step,
                       DType d_dtype, Execution execution) {
  const bool batched = problem.a.rank > 2;
  problem.a = rows_of(problem.a, step);
  problem.a_scale = scale_rows_of(problem.a_scale, a_granularity(problem.recipe), step, batched);
  const MutableTensorView d = rows_of(problem.d, step);
  HostTensor result(d_dtype,
                    {d.shape.begin(), d.shape.begin() + static_cast<std::ptrdiff_t>(d.rank)});
  if (added.present()) copy_rows(converted(added, d_dtype), step, result);
  problem.d = result.mutable_view();
  execution.backend = "cpu";
  gemm(problem, execution);
  return result;
}

Execution cpu_execution(const ExecutionRequest& how, Numerics numerics) {
  Execution execution;
  execution.numerics = numerics;
  execution.num_threads = static_cast<int>(how.num_threads);
  return execution;
}

// The FP64 result, rounded once to F32.
HostTensor reference_rows(GemmProblem problem, const HostTensor& added, std::int64_t step,
                          const ExecutionRequest& how) {
  problem.d_scale = {};
  problem.accumulation = Accumulation::kPromoted;
  return rows_on_cpu(problem, added, step, DType::kF32, cpu_execution(how, Numerics::kReference));
}

double norm(std::span<const float> values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * static_cast<double>(value);
  return std::sqrt(sum);
}

// D as F32: the codes of an FP8 D times its scale.
HostTensor widened(const HostTensor& d, const HostTensor& d_scale) {
  HostTensor wide = converted(d, DType::kF32);
  if (d_scale.present()) {
    for (float& value : wide.f32()) value *= d_scale.f32()[0];
  }
  return wide;
}

// Few outputs may all happen to be near zero, which says nothing about the sums; so the error is
// taken relative to at least the size that independent random operands would give.
double expected_norm(const GemmOperands& operands, const GemmRequest& request, double num_outputs) {
  if (operands.exact_a.absent() || request.k == 0) return 0;
  const auto mean_square = [](const HostTensor& tensor) {
    const auto count = static_cast<double>(std::max<std::int64_t>(tensor.num_elements(), 1));
    const double length = norm(tensor.f32());
    return length * length / count;
  };
  return std::sqrt(mean_square(operands.exact_a) * mean_square(operands.exact_b) *
                   static_cast<double>(request.k) * num_outputs);
}

GemmCheck check_result(const GemmRequest& request, const GemmOperands& operands,
                       const ExecutionRequest& how, const GemmReport& report, const HostTensor& d,
                       const HostTensor& d_scale, const HostTensor& reference, std::int64_t step) {
  GemmCheck check;
  const HostTensor wide = widened(d, d_scale);
  const TensorView rows = rows_of(wide.view(), step);
  check.rows = rows.shape[static_cast<std::size_t>(rows.rank - 2)];
  check.error = compare(rows, reference.view());

  const bool on_gpu = report.backend == "cuda";
  const Numerics own = on_gpu ? Numerics::kEmulated : Numerics::kBlocked;
  const Numerics numerics = how.numerics == Numerics::kDefault ? own : how.numerics;
  check.bound = accumulation_bound(request, numerics);
  const double reference_norm = norm(reference.f32());
  const auto num_outputs = static_cast<double>(reference.num_elements());
  const double size = std::max(reference_norm, expected_norm(operands, request, num_outputs));
  if (size > 0) {
    if (request.d_dtype != DType::kF32) {
      const RoundingCost cost = rounding_cost(request.d_dtype);
      const double scale = d_scale.present() ? static_cast<double>(d_scale.f32()[0]) : 1.0;
      check.bound.relative_frobenius = check.bound.relative_frobenius * (1 + cost.relative) +
                                       cost.relative +
                                       cost.absolute * scale * std::sqrt(num_outputs) / size;
      check.bound.rule += std::string(", and one rounding to ") + to_string(request.d_dtype);
    }
    // relative_frobenius is the plain norm of the difference where the reference is all zeros.
    check.judged_error =
        check.error.relative_frobenius * (reference_norm > 0 ? reference_norm : 1) / size;
  } else {
    check.judged_error = check.error.relative_frobenius;
  }
  check.within =
      check.error.num_not_finite == 0 && check.judged_error <= check.bound.relative_frobenius;

  if (on_gpu) {
    HostTensor like = d;  // for its shape
    GemmProblem same = make_problem(request, operands, like, d_scale);
    same.num_splits = report.num_splits;
    const HostTensor emulated = rows_on_cpu(same, operands.added, step, request.d_dtype,
                                            cpu_execution(how, Numerics::kEmulated));
    check.different_from_emulation =
        compare(rows_of(d.view(), step), emulated.view()).num_different_bits;
    check.within = check.within && check.different_from_emulation == 0;
  }

  if (operands.exact_a.present()) {
    GemmProblem exact;
    HostTensor ignored(request.d_dtype, d.shape());
    exact = make_problem(request, operands, ignored, {});
    exact.a = operands.exact_a.view();
    exact.b = operands.exact_b.view();
    exact.recipe = ScaleRecipe::kNone;
    exact.a_scale = {};
    exact.b_scale = {};
    const HostTensor exact_rows = reference_rows(exact, operands.added, step, how);
    check.exact = compare(rows, exact_rows.view());
  }
  return check;
}

// A problem's tensors in the memory of GPU 0.
struct GemmOnGpu {
  GemmOnGpu(const GemmOperands& operands, const HostTensor& output, const HostTensor& scale_of_d,
            const GemmProblem& host)
      : a(operands.a),
        b(operands.b),
        d(output),
        a_scale(operands.a_scale),
        b_scale(operands.b_scale),
        bias(operands.bias),
        d_scale(scale_of_d),
        problem(host) {
    problem.a = a.view();
    problem.b = b.view();
    problem.d = d.mutable_view();
    problem.a_scale = a_scale.view();
    problem.b_scale = b_scale.view();
    problem.bias = bias.view();
    problem.d_scale = d_scale.view();
  }

  GpuTensor a, b, d, a_scale, b_scale, bias, d_scale;
  GemmProblem problem;
};

bool cuda_serves(const GemmProblem& problem) {
  Execution execution;
  execution.backend = "cuda";
  return supports(problem, execution).front().supported;
}

void run_on_gpu(const GemmOperands& operands, GemmOnGpu& gpu, const ExecutionRequest& how,
                std::int64_t num_runs, HostTensor& d, GemmTrial& trial) {
  const measure::GpuStream stream;
  Execution execution = how.execution();
  execution.backend = "cuda";
  execution.stream = stream.stream();
  const DeviceMemory workspace(measure::kGpu, workspace_bytes(gpu.problem, execution));
  execution.workspace = workspace.data();
  execution.workspace_bytes = workspace.num_bytes();
  // Compiles and loads the kernels: neither may happen while a graph is captured.
  trial.report = gemm(gpu.problem, execution);
  stream.wait();
  const measure::Graph graph(stream, [&] { (void)gemm(gpu.problem, execution); });
  (void)graph.replay_ms(1);  // the first replay also sends the graph to the GPU
  std::vector<double> times;
  for (std::int64_t i = 0; i < num_runs; ++i) {
    // Adding again must start from the same D.
    if (operands.added.present()) gpu.d.upload(operands.added);
    constexpr double kUsPerMs = 1000;
    times.push_back(kUsPerMs * graph.replay_ms(1));
  }
  gpu.d.download(d);
  trial.timing = summarize(times);
  trial.time_source = TimeSource::kGpuEvents;
}

void run_on_host(const GemmProblem& problem, const GemmOperands& operands,
                 const ExecutionRequest& how, std::int64_t num_runs, HostTensor& d,
                 GemmTrial& trial) {
  std::vector<double> times;
  for (std::int64_t i = 0; i < num_runs; ++i) {
    // Accumulating again must start from the same D; the copy is not timed.
    if (i > 0 && operands.added.present()) {
      std::copy(operands.added.bytes().begin(), operands.added.bytes().end(),
                d.mutable_bytes().begin());
    }
    times.push_back(time_us([&] { trial.report = gemm(problem, how.execution()); }));
  }
  trial.timing = summarize(times);
}

}  // namespace

GemmTrial run_gemm_trial(const GemmRequest& request, const GemmOperands& operands,
                         const ExecutionRequest& how, std::int64_t num_runs, CheckScope scope) {
  GemmTrial trial;
  const std::int64_t step = row_step(request, scope);
  const bool checked = scope != CheckScope::kNone;
  HostTensor d = make_output(request, operands);
  HostTensor d_scale;
  HostTensor reference;
  if (checked) {
    reference =
        reference_rows(make_problem(request, operands, d, d_scale), operands.added, step, how);
  }
  if (is_fp8(request.d_dtype)) {
    // As a calibration would choose it: the largest result lands on the largest code.
    float amax = kDefaultAmaxFloor;
    for (const float value : reference.f32()) amax = std::max(amax, std::fabs(value));
    d_scale = HostTensor(DType::kF32, {1});
    d_scale.f32()[0] = amax / max_finite_fp8(request.d_dtype);
  }

  const GemmProblem problem = make_problem(request, operands, d, d_scale);
  std::optional<GemmOnGpu> gpu;
  if (placement_of(how) == Placement::kGpu) {
    gpu.emplace(operands, d, d_scale, problem);
    // What no kernel is for runs on the CPU, unless the GPU was asked for by name.
    if (how.backend != "cuda" && !cuda_serves(gpu->problem)) gpu.reset();
  }
  if (gpu) {
    run_on_gpu(operands, *gpu, how, num_runs, d, trial);
  } else {
    run_on_host(problem, operands, how, num_runs, d, trial);
  }
  if (checked) {
    trial.check = check_result(request, operands, how, trial.report, d, d_scale, reference, step);
  }
  return trial;
}

Json to_json(const ErrorMetrics& metrics) {
  return {{"relative_frobenius", metrics.relative_frobenius},
          {"sqnr_db", metrics.sqnr_db},
          {"max_abs", metrics.max_abs},
          {"max_relative", metrics.max_relative},
          {"cosine_distance", metrics.cosine_distance},
          {"mean_signed", metrics.mean_signed},
          {"num_elements", metrics.num_elements},
          {"num_not_finite", metrics.num_not_finite},
          {"num_different_bits", metrics.num_different_bits},
          {"worst", metrics.worst}};
}

}  // namespace octavo::cli
