// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <future>
#include <span>
#include <string>
#include <vector>

#include "cuda/jit/gemm_source.hpp"
#include "cuda/jit/loaded_kernel.hpp"
#include "cuda/launch/pool_memory.hpp"
#include "cuda/launch/tensor_map.hpp"
#include "kernels/contract/finish_output_params.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/repack_params.hpp"

namespace octavo::cuda {
namespace {

// The workspace: the caller's, or memory of the device's pool for the time of the call.
class Scratch {
 public:
  Scratch(const DeviceInfo& device, const Execution& execution)
      : execution_(execution), own_(device, execution.stream) {}

  Status reserve(std::size_t bytes) {
    if (bytes == 0) return Ok{};
    if (execution_.workspace != nullptr) {
      if (execution_.workspace_bytes < bytes) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("gemm: the workspace has {} bytes; this problem needs {}. Ask "
                                 "workspace_bytes(), or pass null to let the back end allocate.",
                                 execution_.workspace_bytes, bytes));
      }
      const auto address = reinterpret_cast<std::uintptr_t>(execution_.workspace);
      if (address % kWorkspaceAlignment != 0) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("gemm: the workspace begins {} bytes past a multiple of {}; "
                                 "kernels read it in vectors. Align it.",
                                 address % kWorkspaceAlignment, kWorkspaceAlignment));
      }
      next_ = static_cast<std::byte*>(execution_.workspace);
      return Ok{};
    }
    const Result<std::byte*> memory = own_.allocate(bytes);
    if (!memory.ok()) return memory.error();
    next_ = memory.value();
    return Ok{};
  }

  // The next part of what was reserved.
  std::byte* take(std::size_t bytes) {
    std::byte* part = next_;
    if (next_ != nullptr) next_ += bytes;
    return part;
  }

 private:
  const Execution& execution_;
  PoolMemory own_;
  std::byte* next_ = nullptr;
};

const std::byte* offset(const TensorView& view, std::int64_t elements) {
  return static_cast<const std::byte*>(view.data) + elements * size_bytes(view.dtype);
}

// One matrix of a batch.
TensorView matrix_of(const TensorView& view, bool batched, std::int64_t index) {
  if (view.absent() || !batched) return view;
  TensorView one = view;
  one.data = offset(view, index * view.strides[0]);
  one.rank = view.rank - 1;
  for (std::size_t i = 0; i + 1 < view.shape.size(); ++i) {
    one.shape[i] = view.shape[i + 1];
    one.strides[i] = view.strides[i + 1];
  }
  return one;
}

// An FP8 operand as the kernel reads it: K-major, every matrix of the batch at batch_stride.
struct Operand {
  const std::byte* data;
  DType dtype;
  std::int64_t rows;
  std::int64_t k;
  std::int64_t row_stride;
  std::int64_t batch_stride;
};

// One matrix's scales as the kernel reads them; null without scales.
ScaleParams scale_params(const TensorView& scale) {
  ScaleParams params{};
  if (scale.absent()) return params;
  params.data = scale.data;
  params.row_stride = scale.strides[0];
  params.k_stride = scale.rank > 1 ? scale.strides[1] : 0;
  params.is_ue8m0 = scale.dtype == DType::kUE8M0 ? 1 : 0;
  return params;
}

// Puts the kernels of one call on its stream.
class Launcher {
 public:
  Launcher(const DeviceInfo& device, const GemmProblem& problem, const Execution& execution,
           const PreparedGemm& prepared)
      : api_(driver().value()),
        device_(device),
        problem_(problem),
        execution_(execution),
        prepared_(prepared),
        plan_(prepared.plan),
        batched_(problem.a.rank == 3),
        batch_(batched_ ? problem.a.shape[0] : 1) {}

  Status run() {
    if (plan_.work == GemmWork::kNothing) return Ok{};
    if (Status s = load_kernels(); !s.ok()) return s;
    const ContextScope scope(api_, device_.context);
    if (plan_.work == GemmWork::kEpilogue) {
      for (std::int64_t i = 0; i < batch_; ++i) {
        if (Status s = finish(i, nullptr); !s.ok()) return s;
      }
      return Ok{};
    }
    Scratch scratch(device_, execution_);
    if (Status s = scratch.reserve(plan_.workspace_bytes()); !s.ok()) return s;
    std::byte* const a_memory = scratch.take(plan_.a.bytes);
    std::byte* const b_memory = scratch.take(plan_.b.bytes);
    auto* const sums = reinterpret_cast<float*>(scratch.take(plan_.sums_bytes));
    const Result<Operand> a = operand(problem_.a, plan_.a, a_memory);
    if (!a.ok()) return a.error();
    const Result<Operand> b = operand(problem_.b, plan_.b, b_memory);
    if (!b.ok()) return b.error();
    for (std::int64_t i = 0; i < batch_; ++i) {
      if (Status s = multiply(i, a.value(), b.value(), sums); !s.ok()) return s;
      if (plan_.output == OutputPath::kFinished) {
        if (Status s = finish(i, sums); !s.ok()) return s;
      }
    }
    return Ok{};
  }

 private:
  // Every kernel of the call, those that must be compiled all at once.
  Status load_kernels() {
    if (prepared_.function.load(std::memory_order_acquire) != nullptr) return Ok{};
    std::vector<std::future<Result<void*>>> small;
    const auto start = [&](const char* entry, KernelSource (*source)()) {
      small.push_back(std::async(std::launch::async, [this, entry, source] {
        return loaded_kernel(device_, entry, source, 0);
      }));
    };
    if (plan_.a.path == OperandPath::kRepacked || plan_.b.path == OperandPath::kRepacked) {
      start(kRepackOperandEntry, repack_operand_source);
    }
    const bool multiplies = plan_.work == GemmWork::kProduct;
    if (multiplies && plan_.output == OutputPath::kFinished) {
      start(kFinishOutputEntry, finish_output_source);
    }
    Result<void*> function = loaded_kernel(
        device_, prepared_.kernel,
        [&] { return multiplies ? gemm_source(plan_.config) : finish_output_source(); },
        prepared_.shared_bytes);
    for (std::future<Result<void*>>& kernel : small) {
      Result<void*> loaded = kernel.get();
      if (function.ok() && !loaded.ok()) function = std::move(loaded);
    }
    if (!function.ok()) return function.error();
    prepared_.function.store(function.value(), std::memory_order_release);
    return Ok{};
  }

  // Every kernel here may start early: each begins by waiting for the ones before it.
  static LaunchAttribute serialization() {
    LaunchAttribute attribute{};
    attribute.id = kProgrammaticSerialization;
    attribute.programmatic_serialization = 1;
    return attribute;
  }

  template <typename Params>
  Status launch(void* function, std::int64_t grid, int block, int shared_bytes,
                std::span<LaunchAttribute> attributes, Params& params) const {
    const LaunchConfig config{{static_cast<unsigned>(grid), 1, 1},
                              {static_cast<unsigned>(block), 1, 1},
                              static_cast<unsigned>(shared_bytes),
                              execution_.stream,
                              attributes.data(),
                              static_cast<unsigned>(attributes.size())};
    void* arguments[] = {&params};
    return api_.check(api_.LaunchKernelEx(&config, function, arguments, nullptr),
                      "cuLaunchKernelEx");
  }

  // A small kernel whose thread blocks take `tiles` pieces of work in turn.
  template <typename Params>
  Status launch_small(const char* entry, KernelSource (*source)(), std::int64_t tiles, int block,
                      Params& params) const {
    const Result<void*> function = loaded_kernel(device_, entry, source, 0);
    if (!function.ok()) return function.error();
    // More than run at once: the last ones to finish are then short.
    constexpr std::int64_t kBlocksPerMultiprocessor = 16;
    const std::int64_t grid =
        std::clamp<std::int64_t>(tiles, 1, kBlocksPerMultiprocessor * device_.num_multiprocessors);
    std::array<LaunchAttribute, 1> attributes{serialization()};
    return launch(function.value(), grid, block, 0, attributes, params);
  }

  // An operand in place, or copied to `memory`.
  Result<Operand> operand(const TensorView& view, const OperandPlan& plan,
                          std::byte* memory) const {
    const auto row = static_cast<std::size_t>(view.rank - 2);
    Operand result{static_cast<const std::byte*>(view.data),
                   view.dtype,
                   view.shape[row],
                   view.shape[row + 1],
                   view.strides[row],
                   batched_ ? view.strides[0] : 0};
    if (plan.path == OperandPath::kDirect) {
      // The stride of a single row may be anything; TMA asks for a multiple of 16 bytes.
      if (result.rows == 1) {
        result.row_stride = (result.k + kRepackAlignment - 1) / kRepackAlignment * kRepackAlignment;
      }
      return result;
    }
    RepackParams params{};
    params.from = view.data;
    params.to = memory;
    params.batch = plan.num_copies;
    params.rows = result.rows;
    params.k = result.k;
    params.from_batch_stride = result.batch_stride;
    params.from_row_stride = result.row_stride;
    params.from_k_stride = view.strides[row + 1];
    params.to_batch_stride = plan.batch_stride;
    params.to_row_stride = plan.row_stride;
    params.layout = plan.from;
    if (Status s = launch_small(kRepackOperandEntry, repack_operand_source,
                                num_repack_tiles(params), kRepackThreads, params);
        !s.ok()) {
      return s.error();
    }
    result.data = memory;
    result.row_stride = plan.row_stride;
    result.batch_stride = plan.batch_stride;
    return result;
  }

  // One matrix's product, to D or to `sums`.
  Status multiply(std::int64_t index, const Operand& a, const Operand& b, float* sums) const {
    const GemmConfig& config = plan_.config;
    GemmParams params{};
    params.a_scale = scale_params(matrix_of(problem_.a_scale, batched_, index));
    params.b_scale = scale_params(matrix_of(problem_.b_scale, batched_, index));
    params.m = static_cast<int>(a.rows);
    params.n = static_cast<int>(b.rows);
    params.k = static_cast<int>(a.k);
    const auto map = [&](const Operand& operand, int box_rows) {
      return make_tensor_map(api_, {operand.data + index * operand.batch_stride, operand.dtype,
                                    operand.rows, operand.k, operand.row_stride, box_rows});
    };
    const Result<TensorMap> a_map = map(a, config.tile_m / config.cluster_n);
    if (!a_map.ok()) return a_map.error();
    const Result<TensorMap> b_map = map(b, config.tile_n / config.cluster_m);
    if (!b_map.ok()) return b_map.error();
    params.a = a_map.value();
    params.b = b_map.value();

    const TensorView d = matrix_of(problem_.d, batched_, index);
    const bool to_sums = plan_.output == OutputPath::kFinished;
    params.output = to_sums ? sums : const_cast<void*>(d.data);
    params.output_stride = to_sums ? plan_.sums_stride : d.strides[0];
    params.stores_directly = plan_.stores_directly ? 1 : 0;
    if (!plan_.stores_directly && config.schedule != Schedule::kStreamed) {
      // As for operands: a single row's stride may be anything.
      constexpr std::int64_t kAnyStride = 16;
      const std::int64_t stride = params.m == 1
                                      ? (params.n + kAnyStride - 1) / kAnyStride * kAnyStride
                                      : params.output_stride;
      const Result<TensorMap> d_map = make_tensor_map(
          api_, {params.output, config.d, params.m, params.n, stride, kWarpGroupRows});
      if (!d_map.ok()) return d_map.error();
      params.d = d_map.value();
    }
    if (config.has_bias) {
      params.bias = problem_.bias.data;
      params.bias_stride = problem_.bias.strides[0];
      params.bias_dtype = static_cast<unsigned char>(problem_.bias.dtype);
    }
    params.raster = rasterization(params.m, params.n, config.tile_m, config.tile_n,
                                  config.cluster_m, config.cluster_n, config.raster_group_m);
    const int cluster = cluster_size(config);
    const int blocks = blocks_per_multiprocessor(config) * device_.num_multiprocessors;
    const int grid = cluster * std::min(params.raster.num_clusters(), blocks / cluster);
    std::array<LaunchAttribute, 2> attributes{};
    attributes[0].id = kClusterDimension;
    attributes[0].cluster = {static_cast<unsigned>(cluster), 1, 1};
    attributes[1] = serialization();
    return launch(prepared_.function.load(std::memory_order_acquire), grid, num_threads(config),
                  prepared_.shared_bytes, attributes, params);
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
    return launch_small(kFinishOutputEntry, finish_output_source, num_finish_tiles(params),
                        kFinishThreads, params);
  }

  const Driver& api_;
  const DeviceInfo& device_;
  const GemmProblem& problem_;
  const Execution& execution_;
  const PreparedGemm& prepared_;
  const GemmPlan& plan_;
  bool batched_;
  std::int64_t batch_;
};

}  // namespace

Status launch_gemm(const DeviceInfo& device, const GemmProblem& problem, const Execution& execution,
                   const PreparedGemm& prepared) {
  return Launcher(device, problem, execution, prepared).run();
}

}  // namespace octavo::cuda
