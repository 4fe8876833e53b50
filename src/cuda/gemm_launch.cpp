// SPDX-License-Identifier: Apache-2.0
#include "cuda/gemm_launch.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "cuda/jit/gemm_source.hpp"
#include "cuda/jit/loaded_kernel.hpp"
#include "cuda/launch/tensor_map.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/contract/stage_scales_params.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

// Memory for staged scales: the caller's workspace, or the stream's pool for the time of the call.
class Scratch {
 public:
  Scratch(const Driver& api, const Execution& execution) : api_(api), execution_(execution) {}
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  ~Scratch() {
    if (own_ != 0) (void)api_.MemFreeAsync(own_, execution_.stream);
  }

  Result<std::byte*> get(std::size_t bytes) {
    if (bytes == 0) return static_cast<std::byte*>(nullptr);
    if (execution_.workspace != nullptr) {
      if (execution_.workspace_bytes < bytes) {
        return Error(ErrorCode::kInvalidArgument,
                     fmt::format("gemm: the workspace has {} bytes; this problem needs {}. Ask "
                                 "workspace_bytes(), or pass null to let the back end allocate.",
                                 execution_.workspace_bytes, bytes));
      }
      return static_cast<std::byte*>(execution_.workspace);
    }
    if (Status s =
            api_.check(api_.MemAllocAsync(&own_, bytes, execution_.stream), "cuMemAllocAsync");
        !s.ok()) {
      return s.error();
    }
    // A device address has no other form than this integer.
    return reinterpret_cast<std::byte*>(own_);  // NOLINT(performance-no-int-to-ptr)
  }

 private:
  const Driver& api_;
  const Execution& execution_;
  DevicePointer own_ = 0;
};

template <typename Params>
Status launch(const Driver& api, void* function, unsigned grid, unsigned block,
              unsigned shared_bytes, unsigned cluster, void* stream, Params& params) {
  LaunchAttribute attribute{};
  attribute.id = kClusterDimension;
  attribute.cluster = {cluster, 1, 1};
  LaunchConfig config{{grid, 1, 1}, {block, 1, 1}, shared_bytes, stream, &attribute, 1};
  void* arguments[] = {&params};
  return api.check(api.LaunchKernelEx(&config, function, arguments, nullptr), "cuLaunchKernelEx");
}

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

struct StagedScale {
  const float* data;
  std::int64_t stride;
};

// The scales of one matrix as the kernel reads them, [rows, cols] of it staged into `to` if the
// plan says so. `transposes`: the kernel's rows are the tensor's columns.
Result<StagedScale> stage(const DeviceInfo& device, const Driver& api, void* stream,
                          const TensorView& scale, ScalePath path, std::int64_t staged_stride,
                          bool transposes, float* to) {
  const std::int64_t row_stride = scale.strides[0];
  const std::int64_t col_stride = scale.rank > 1 ? scale.strides[1] : 0;
  if (path == ScalePath::kDirect) {
    return StagedScale{static_cast<const float*>(scale.data), transposes ? col_stride : row_stride};
  }
  const std::int64_t num_cols = scale.rank > 1 ? scale.shape[1] : 1;
  StageScalesParams params{};
  params.from = scale.data;
  params.to = to;
  params.rows = transposes ? num_cols : scale.shape[0];
  params.cols = transposes ? scale.shape[0] : num_cols;
  params.from_row_stride = transposes ? col_stride : row_stride;
  params.from_col_stride = transposes ? row_stride : col_stride;
  params.to_row_stride = staged_stride;
  params.from_is_ue8m0 = scale.dtype == DType::kUE8M0 ? 1 : 0;
  Result<void*> function = loaded_kernel(device, kStageScalesEntry, stage_scales_source, 0);
  if (!function.ok()) return function.error();
  constexpr std::int64_t kMaxBlocks = 1024;
  const std::int64_t blocks = std::clamp<std::int64_t>(
      (params.rows * params.cols + kStageScalesThreads - 1) / kStageScalesThreads, 1, kMaxBlocks);
  if (Status s = launch(api, function.value(), static_cast<unsigned>(blocks), kStageScalesThreads,
                        0, 1, stream, params);
      !s.ok()) {
    return s.error();
  }
  return StagedScale{to, staged_stride};
}

}  // namespace

Status launch_gemm(const DeviceInfo& device, const GemmProblem& problem, const Execution& execution,
                   const GemmPlan& plan) {
  const Driver& api = driver().value();
  const GemmConfig& config = plan.config;
  const bool batched = problem.a.rank == 3;
  const std::int64_t batch = batched ? problem.a.shape[0] : 1;
  const GemmSharedMemory shared = gemm_shared_memory(config);
  Result<void*> function = loaded_kernel(
      device, kernel_name(config), [&] { return gemm_source(config); }, shared.total_bytes);
  if (!function.ok()) return function.error();
  const ContextScope scope(api, device.context);
  Scratch scratch(api, execution);
  const Result<std::byte*> memory = scratch.get(plan.workspace_bytes());
  if (!memory.ok()) return memory.error();

  for (std::int64_t i = 0; i < batch; ++i) {
    const TensorView a = matrix_of(problem.a, batched, i);
    const TensorView b = matrix_of(problem.b, batched, i);
    const TensorView d = matrix_of(problem.d, batched, i);
    GemmParams params{};
    params.m = static_cast<int>(a.shape[0]);
    params.n = static_cast<int>(b.shape[0]);
    params.k = static_cast<int>(a.shape[1]);
    if (params.m == 0 || params.n == 0) return Ok{};
    // The stride of a single row may be anything; TMA asks for a multiple of 16 bytes.
    constexpr std::int64_t kAnyStride = 16;
    const auto map = [&](const TensorView& view, int box_rows) {
      return make_tensor_map(
          api, {view.data, view.dtype, view.shape[0], view.shape[1],
                view.shape[0] == 1 ? (view.shape[1] + kAnyStride - 1) / kAnyStride * kAnyStride
                                   : view.strides[0],
                box_rows});
    };
    Result<TensorMap> a_map = map(a, config.tile_m / config.cluster_n);
    if (!a_map.ok()) return a_map.error();
    Result<TensorMap> b_map = map(b, config.tile_n / config.cluster_m);
    if (!b_map.ok()) return b_map.error();
    params.a = a_map.value();
    params.b = b_map.value();
    params.stores_directly = plan.stores_directly ? 1 : 0;
    if (!plan.stores_directly) {
      Result<TensorMap> d_map = map(d, kWarpGroupRows);
      if (!d_map.ok()) return d_map.error();
      params.d = d_map.value();
    }
    params.output = const_cast<void*>(d.data);
    params.output_stride = d.strides[0];
    if (problem.recipe != ScaleRecipe::kNone) {
      const bool blocks = is_block_scaled(problem.recipe);
      const bool by_column = problem.recipe == ScaleRecipe::kBlock1d;
      std::byte* a_memory =
          memory.value() + i * static_cast<std::int64_t>(plan.a_scale_bytes) / batch;
      std::byte* b_memory = memory.value() + plan.a_scale_bytes +
                            i * static_cast<std::int64_t>(plan.b_scale_bytes) / batch;
      Result<StagedScale> a_scale =
          stage(device, api, execution.stream, matrix_of(problem.a_scale, batched, i), plan.a_scale,
                plan.a_scale_stride, blocks, reinterpret_cast<float*>(a_memory));
      if (!a_scale.ok()) return a_scale.error();
      Result<StagedScale> b_scale =
          stage(device, api, execution.stream, matrix_of(problem.b_scale, batched, i), plan.b_scale,
                plan.b_scale_stride, by_column, reinterpret_cast<float*>(b_memory));
      if (!b_scale.ok()) return b_scale.error();
      params.a_scale = a_scale.value().data;
      params.b_scale = b_scale.value().data;
      const bool one_scale = problem.recipe == ScaleRecipe::kTensor;
      params.a_scale_stride = one_scale ? 0 : a_scale.value().stride;
      params.b_scale_stride = one_scale ? 0 : b_scale.value().stride;
    }
    if (problem.bias.present()) {
      params.bias = problem.bias.data;
      params.bias_stride = problem.bias.strides[0];
      params.bias_dtype = static_cast<unsigned char>(problem.bias.dtype);
    }
    const int cluster = config.cluster_m * config.cluster_n;
    const int clusters = rasterization(params.m, params.n, config.tile_m, config.tile_n,
                                       config.cluster_m, config.cluster_n, config.raster_group_m)
                             .num_clusters();
    const int grid = cluster * std::min(clusters, device.num_multiprocessors / cluster);
    if (Status s = launch(api, function.value(), static_cast<unsigned>(grid),
                          static_cast<unsigned>(num_threads(config)),
                          static_cast<unsigned>(shared.total_bytes), static_cast<unsigned>(cluster),
                          execution.stream, params);
        !s.ok()) {
      return s;
    }
  }
  return Ok{};
}

}  // namespace octavo::cuda
