// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm_launch.hpp"

#include <cstddef>
#include <cstdint>
#include <future>
#include <utility>
#include <vector>

#include "cuda/jit/gemm_source.hpp"
#include "cuda/jit/loaded_kernel.hpp"
#include "cuda/launch/gemm_operand.hpp"
#include "cuda/launch/kernel_launch.hpp"
#include "cuda/launch/scratch.hpp"
#include "kernels/contract/finish_output_params.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/repack_params.hpp"

namespace octavo::cuda {
namespace {

// Puts the kernels of one call on its stream.
class Launcher {
 public:
  Launcher(const DeviceInfo& device, const GemmProblem& problem, const Execution& execution,
           const PreparedGemm& prepared)
      : launcher_(device, execution.stream),
        device_(device),
        problem_(problem),
        execution_(execution),
        prepared_(prepared),
        plan_(prepared.plan),
        batched_(problem.a.rank == 3),
        batch_(batched_ ? problem.a.shape[0] : 1) {}

  Status run() {
    if (plan_.work == GemmWork::kNothing) return Ok{};
    if (Status s = load_kernels(device_, prepared_); !s.ok()) return s;
    const ContextScope scope(launcher_.api(), device_.context);
    if (plan_.work == GemmWork::kEpilogue) {
      for (std::int64_t i = 0; i < batch_; ++i) {
        if (Status s = finish(i, nullptr); !s.ok()) return s;
      }
      return Ok{};
    }
    Scratch scratch("gemm", device_, execution_);
    if (Status s = scratch.reserve(plan_.workspace_bytes()); !s.ok()) return s;
    std::byte* const a_memory = scratch.take(plan_.a.bytes);
    std::byte* const b_memory = scratch.take(plan_.b.bytes);
    std::byte* const a_scale_memory = scratch.take(plan_.a_scale.bytes);
    std::byte* const b_scale_memory = scratch.take(plan_.b_scale.bytes);
    auto* const sums = reinterpret_cast<float*>(scratch.take(plan_.sums_bytes));
    const Result<Operand> a = place_operand(launcher_, problem_.a, plan_.a, a_memory);
    if (!a.ok()) return a.error();
    const Result<Operand> b = place_operand(launcher_, problem_.b, plan_.b, b_memory);
    if (!b.ok()) return b.error();
    const Result<PlacedScales> a_scale =
        place_scales(launcher_, problem_.a_scale, batched_, plan_.a_scale, a_scale_memory);
    if (!a_scale.ok()) return a_scale.error();
    const Result<PlacedScales> b_scale =
        place_scales(launcher_, problem_.b_scale, batched_, plan_.b_scale, b_scale_memory);
    if (!b_scale.ok()) return b_scale.error();
    for (std::int64_t i = 0; i < batch_; ++i) {
      GemmParams params{};
      params.a_scale = matrix_of(a_scale.value(), i);
      params.b_scale = matrix_of(b_scale.value(), i);
      if (Status s = multiply(i, a.value(), b.value(), sums, params); !s.ok()) return s;
      if (plan_.output == OutputPath::kFinished) {
        if (Status s = finish(i, sums); !s.ok()) return s;
      }
    }
    return Ok{};
  }

 private:
  // One matrix's product, to D or to `sums`. `params` has its scales.
  Status multiply(std::int64_t index, const Operand& a, const Operand& b, float* sums,
                  GemmParams& params) const {
    const GemmConfig& config = plan_.config;
    if (Status s =
            set_operands(launcher_.api(), config, matrix_of(a, index), matrix_of(b, index), params);
        !s.ok()) {
      return s;
    }
    const TensorView d = matrix_of(problem_.d, batched_, index);
    const bool to_sums = plan_.output == OutputPath::kFinished;
    params.output = to_sums ? sums : const_cast<void*>(d.data);
    params.output_stride = to_sums ? plan_.sums_stride : d.strides[0];
    params.stores_directly = plan_.stores_directly ? 1 : 0;
    // A repacked B is written by the kernel before.
    params.loads_b_early = problem_.b_is_constant && plan_.b.path == OperandPath::kDirect ? 1 : 0;
    if (Status s = set_output_map(launcher_.api(), config, params); !s.ok()) return s;
    if (config.has_bias) set_bias(problem_.bias, params);
    return launch_product(launcher_, prepared_, params.raster.num_clusters(), params);
  }

  // One matrix of D from its sums; null where K is 0.
  Status finish(std::int64_t index, const float* sums) const {
    const TensorView d = matrix_of(problem_.d, batched_, index);
    FinishOutputParams params{};
    params.sums = sums;
    params.sums_stride = plan_.sums_stride;
    params.output = const_cast<void*>(d.data);
    params.m = d.shape[0];
    params.n = d.shape[1];
    params.output_row_stride = d.strides[0];
    params.output_col_stride = d.strides[1];
    if (problem_.bias.present()) {
      params.bias = problem_.bias.data;
      params.bias_stride = problem_.bias.strides[0];
      params.bias_dtype = static_cast<unsigned char>(problem_.bias.dtype);
    }
    params.output_scale = static_cast<const float*>(problem_.d_scale.data);
    params.output_dtype = static_cast<unsigned char>(d.dtype);
    params.accumulates = problem_.output_mode == OutputMode::kAccumulate ? 1 : 0;
    const auto magnitude = [](std::int64_t stride) { return stride < 0 ? -stride : stride; };
    params.down_columns = magnitude(d.strides[0]) < magnitude(d.strides[1]) ? 1 : 0;
    return launcher_.launch_small(kFinishOutputEntry, finish_output_source,
                                  num_finish_tiles(params), kFinishThreads, params);
  }

  KernelLauncher launcher_;
  const DeviceInfo& device_;
  const GemmProblem& problem_;
  const Execution& execution_;
  const PreparedGemm& prepared_;
  const GemmPlan& plan_;
  bool batched_;
  std::int64_t batch_;
};

}  // namespace

Status load_kernels(const DeviceInfo& device, const PreparedGemm& prepared) {
  const GemmPlan& plan = prepared.plan;
  if (prepared.function.load(std::memory_order_acquire) != nullptr) return Ok{};
  std::vector<std::future<Result<void*>>> small;
  const auto start = [&](const char* entry, KernelSource (*source)()) {
    small.push_back(std::async(std::launch::async, [&device, entry, source] {
      return loaded_kernel(device, entry, source, 0);
    }));
  };
  if (plan.a.path == OperandPath::kRepacked || plan.b.path == OperandPath::kRepacked) {
    start(kRepackOperandEntry, repack_operand_source);
  }
  if (plan.a_scale.is_staged || plan.b_scale.is_staged) {
    start(kStageScalesEntry, stage_scales_source);
  }
  const bool multiplies = plan.work == GemmWork::kProduct;
  if (multiplies && plan.output == OutputPath::kFinished) {
    start(kFinishOutputEntry, finish_output_source);
  }
  Result<void*> function = loaded_kernel(
      device, prepared.kernel,
      [&] { return multiplies ? gemm_source(plan.config) : finish_output_source(); },
      prepared.shared_bytes);
  for (std::future<Result<void*>>& kernel : small) {
    Result<void*> loaded = kernel.get();
    if (function.ok() && !loaded.ok()) function = std::move(loaded);
  }
  if (!function.ok()) return function.error();
  prepared.function.store(function.value(), std::memory_order_release);
  return Ok{};
}

Status launch_gemm(const DeviceInfo& device, const GemmProblem& problem, const Execution& execution,
                   const PreparedGemm& prepared) {
  return Launcher(device, problem, execution, prepared).run();
}

}  // namespace octavo::cuda
