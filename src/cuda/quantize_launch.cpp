// SPDX-License-Identifier: Apache-2.0
#include "cuda/quantize_launch.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>

#include "cuda/jit/loaded_kernel.hpp"
#include "cuda/jit/quantize_source.hpp"
#include "cuda/launch/pool_memory.hpp"
#include "naming/quantize_name.hpp"

namespace octavo::cuda {
namespace {

constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

void refuse_unless_on_gpu(const char* field, Device device, std::vector<Reason>& reasons) {
  if (device.kind == DeviceKind::kCuda) return;
  reasons.push_back({"device", field, to_string(device), "device memory (cuda:N)"});
}

std::vector<Reason> refusals(Device x, Device q, Numerics numerics) {
  std::vector<Reason> reasons;
  refuse_unless_on_gpu("x", x, reasons);
  refuse_unless_on_gpu("q", q, reasons);
  if (reasons.empty() && numerics != Numerics::kDefault) {
    reasons.push_back({"numerics", "numerics", to_string(numerics), "default"});
  }
  return reasons;
}

// Whether every chunk of every row can be moved by one instruction (F32: two) that wants its
// address aligned to `bytes`.
bool rows_aligned(const TensorView& view, std::int64_t bytes) {
  const std::int64_t element = size_bytes(view.dtype);
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  return view.strides[1] == 1 && address % static_cast<std::uintptr_t>(bytes) == 0 &&
         (view.shape[0] == 1 || view.strides[0] * element % bytes == 0);
}

QuantizeAccess access_of(const TensorView& x, const TensorView& q) {
  constexpr std::int64_t kVectorBytes = 16;
  return rows_aligned(x, kVectorBytes) && rows_aligned(q, kQuantizeChunk)
             ? QuantizeAccess::kVectors
             : QuantizeAccess::kElements;
}

bool has_one_scale(ScaleGranularity granularity) {
  return granularity == ScaleGranularity::kTensor || granularity == ScaleGranularity::kNone;
}

QuantizeParams params_of(const TensorView& x, const TensorView& q, const TensorView& scale,
                         ScaleGranularity granularity) {
  QuantizeParams params{};
  params.x = const_cast<void*>(x.data);
  params.q = const_cast<void*>(q.data);
  params.scale = const_cast<void*>(scale.data);
  params.rows = x.shape[0];
  params.cols = x.shape[1];
  params.x_row_stride = x.strides[0];
  params.x_col_stride = x.strides[1];
  params.q_row_stride = q.strides[0];
  params.q_col_stride = q.strides[1];
  params.scale_is_ue8m0 = scale.dtype == DType::kUE8M0 ? 1 : 0;
  if (has_one_scale(granularity)) {
    // Dense matrices may be cut into rows anywhere: into such as fill tiles.
    if (x.contiguous() && q.contiguous() && x.num_elements() % kTileCols == 0) {
      params.rows = x.num_elements() / kTileCols;
      params.cols = params.x_row_stride = params.q_row_stride = kTileCols;
    }
    return params;
  }
  constexpr int kBlockShift = 7;
  static_assert(1 << kBlockShift == kScaleBlock);
  params.scale_row_stride = scale.strides[0];
  if (granularity == ScaleGranularity::kRow) return params;
  params.scale_col_stride = scale.strides[1];
  params.scale_col_shift = kBlockShift;
  if (granularity == ScaleGranularity::kBlock128x128) params.scale_row_shift = kBlockShift;
  return params;
}

QuantizeLaunch launch_of(const QuantizeConfig& config, const QuantizeParams& params,
                         std::int64_t num_blocks) {
  return {config, params, num_blocks, quantize_threads(config)};
}

std::int64_t num_tiles(const QuantizeConfig& config, const QuantizeParams& params) {
  return ceil_div(params.rows, quantize_tile_rows(config)) * ceil_div(params.cols, kTileCols);
}

QuantizeLaunch tile_launch(QuantizeConfig config, QuantizeStep step, const QuantizeParams& params) {
  config.step = step;
  if (step == QuantizeStep::kAmax) config.q = DType::kE4M3;  // it is the same kernel for all
  return launch_of(config, params, num_tiles(config, params));
}

std::vector<QuantizeLaunch> tensor_launches(const QuantizeConfig& config,
                                            const QuantizeParams& params, int num_multiprocessors) {
  // What fits on a multiprocessor at once by registers.
  constexpr std::int64_t kAmaxBlocksPerMultiprocessor = 4;
  QuantizeLaunch amax = tile_launch(config, QuantizeStep::kAmax, params);
  amax.num_blocks = std::min(amax.num_blocks, kAmaxBlocksPerMultiprocessor * num_multiprocessors);
  amax.params.num_partials = static_cast<int>(amax.num_blocks);
  QuantizeLaunch quantize = tile_launch(config, QuantizeStep::kTensor, amax.params);
  return {amax, quantize};
}

QuantizeLaunch block_1x128_launch(const QuantizeConfig& config, const QuantizeParams& params) {
  QuantizeLaunch launch = tile_launch(config, QuantizeStep::kBlock1x128, params);
  if (params.scale_col_stride == 1 && params.cols >= kLongTileCols) {
    launch.params.has_long_tiles = 1;
    launch.num_blocks = ceil_div(params.rows, kLongTileRows) * ceil_div(params.cols, kLongTileCols);
  }
  return launch;
}

QuantizeLaunch row_launch(QuantizeConfig config, const QuantizeParams& params) {
  if (params.cols <= kQuantizeWarp * kChunksPerThread * kQuantizeChunk) {
    config.step = QuantizeStep::kShortRow;
    return launch_of(config, params, ceil_div(params.rows, kQuantizeThreads / kQuantizeWarp));
  }
  config.step = params.cols <= kMaxRegisterRow ? QuantizeStep::kRow : QuantizeStep::kLongRow;
  QuantizeLaunch launch = launch_of(config, params, params.rows);
  if (config.step == QuantizeStep::kRow) {
    const std::int64_t row_chunks = ceil_div(params.cols, kQuantizeChunk);
    launch.num_threads =
        kQuantizeWarp * static_cast<int>(ceil_div(row_chunks, kChunksPerThread * kQuantizeWarp));
  }
  return launch;
}

// Scales of groups without elements: the tensor's, or the rows' where there are no columns.
std::vector<QuantizeLaunch> floor_launches(QuantizeConfig config, QuantizeParams params,
                                           ScaleGranularity granularity) {
  config.access = QuantizeAccess::kElements;
  if (granularity == ScaleGranularity::kTensor) {
    params.rows = params.cols = 0;
    config.step = QuantizeStep::kTensor;
    return {launch_of(config, params, 1)};
  }
  if (granularity == ScaleGranularity::kRow && params.rows > 0) return {row_launch(config, params)};
  return {};
}

}  // namespace

std::vector<Reason> quantize_refusals(const QuantizeProblem& problem, const Execution& execution) {
  return refusals(problem.x.device, problem.q.device, execution.numerics);
}

std::vector<Reason> quantize_refusals(const DequantizeProblem& problem,
                                      const Execution& execution) {
  return refusals(problem.x.device, problem.q.device, execution.numerics);
}

std::vector<QuantizeLaunch> quantize_launches(const QuantizeProblem& problem,
                                              int num_multiprocessors) {
  QuantizeConfig config;
  config.x = problem.x.dtype;
  config.q = problem.q.dtype;
  config.access = access_of(problem.x, problem.q);
  QuantizeParams params = params_of(problem.x, problem.q, problem.scale, problem.granularity);
  params.amax_floor = problem.amax_floor;
  const bool given = problem.scale_source == ScaleSource::kGiven;
  if (params.rows == 0 || params.cols == 0) {
    if (given) return {};
    return floor_launches(config, params, problem.granularity);
  }
  if (given) return {tile_launch(config, QuantizeStep::kGiven, params)};
  switch (problem.granularity) {
    case ScaleGranularity::kNone: return {};
    case ScaleGranularity::kTensor: return tensor_launches(config, params, num_multiprocessors);
    case ScaleGranularity::kRow: return {row_launch(config, params)};
    case ScaleGranularity::kBlock1x128: return {block_1x128_launch(config, params)};
    case ScaleGranularity::kBlock128x128:
      config.step = QuantizeStep::kBlock128x128;
      return {
          launch_of(config, params, num_scale_blocks(params.rows) * num_scale_blocks(params.cols))};
  }
  return {};
}

std::vector<QuantizeLaunch> quantize_launches(const DequantizeProblem& problem,
                                              int /*num_multiprocessors*/) {
  QuantizeConfig config;
  config.x = problem.x.dtype;
  config.q = problem.q.dtype;
  config.access = access_of(problem.x, problem.q);
  const QuantizeParams params = params_of(problem.x, problem.q, problem.scale, problem.granularity);
  if (params.rows == 0 || params.cols == 0) return {};
  return {tile_launch(config, QuantizeStep::kDequantize, params)};
}

Status launch_quantize(const DeviceInfo& device, const Execution& execution,
                       std::vector<QuantizeLaunch> launches) {
  const Driver& api = driver().value();
  const ContextScope scope(api, device.context);
  PoolMemory memory(device, execution.stream);
  float* partial_amax = nullptr;
  for (QuantizeLaunch& launch : launches) {
    Result<void*> function = loaded_kernel(
        device, quantize_kernel_name(launch.config),
        [&launch] { return quantize_source(launch.config); }, 0);
    if (!function.ok()) return function.error();
    if (launch.config.step == QuantizeStep::kAmax) {
      Result<std::byte*> partials =
          memory.allocate(static_cast<std::size_t>(launch.params.num_partials) * sizeof(float));
      if (!partials.ok()) return partials.error();
      partial_amax = reinterpret_cast<float*>(partials.value());
    }
    launch.params.partial_amax = partial_amax;
    // Kernels walk on by the grid's size, so a smaller grid does the same work.
    constexpr std::int64_t kMaxGrid = std::numeric_limits<std::int32_t>::max();
    const LaunchConfig config{{static_cast<unsigned>(std::min(launch.num_blocks, kMaxGrid)), 1, 1},
                              {static_cast<unsigned>(launch.num_threads), 1, 1},
                              0,
                              execution.stream,
                              nullptr,
                              0};
    void* arguments[] = {&launch.params};
    if (Status s = api.check(api.LaunchKernelEx(&config, function.value(), arguments, nullptr),
                             "cuLaunchKernelEx");
        !s.ok()) {
      return s;
    }
  }
  return Ok{};
}

}  // namespace octavo::cuda
