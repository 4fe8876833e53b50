// SPDX-License-Identifier: Apache-2.0
#include "unplaced_problem.hpp"

#include <cstdint>

#include "measure/gpu_stream.hpp"

namespace octavo::cli {
namespace {

// Far apart, so that no tensor seems to overlap the output.
constexpr std::uintptr_t kInputAddress = 1U << 20U;
constexpr std::uintptr_t kOutputAddress = std::uintptr_t{1} << 62U;

MutableTensorView unplaced(std::uintptr_t address, DType dtype,
                           const std::vector<std::int64_t>& shape) {
  MutableTensorView view;
  view.data = reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr)
  view.dtype = dtype;
  view.device = measure::kGpu;
  view.rank = static_cast<int>(shape.size());
  std::int64_t stride = 1;
  for (std::size_t i = shape.size(); i-- > 0;) {
    view.shape[i] = shape[i];
    view.strides[i] = stride;
    stride *= shape[i];
  }
  return view;
}

}  // namespace

std::vector<std::int64_t> scale_extents(ScaleGranularity granularity, std::int64_t rows,
                                        std::int64_t k) {
  const ScaleShape shape = scale_shape(granularity, rows, k);
  const bool block = granularity == ScaleGranularity::kBlock1x128 ||
                     granularity == ScaleGranularity::kBlock128x128;
  if (!block) return {shape.rows};
  return {shape.rows, shape.cols};
}

GemmProblem unplaced_problem(const GemmRequest& request) {
  const auto input = [&request](DType dtype, std::vector<std::int64_t> shape) {
    return unplaced(kInputAddress, dtype, with_batch(request.batch, std::move(shape)));
  };
  GemmProblem problem;
  problem.a = input(request.a_dtype, {request.m, request.k});
  problem.b = input(request.b_dtype, {request.n, request.k});
  problem.d =
      unplaced(kOutputAddress, request.d_dtype, with_batch(request.batch, {request.m, request.n}));
  problem.recipe = request.recipe;
  if (request.recipe != ScaleRecipe::kNone) {
    const auto scale = [&](DType operand, ScaleGranularity granularity, std::int64_t rows) {
      if (!is_fp8(operand)) return TensorView{};
      return TensorView(input(request.scale_dtype, scale_extents(granularity, rows, request.k)));
    };
    problem.a_scale = scale(request.a_dtype, a_granularity(request.recipe), request.m);
    problem.b_scale = scale(request.b_dtype, b_granularity(request.recipe), request.n);
  }
  problem.accumulation = request.accumulation;
  problem.output_mode = request.accumulate ? OutputMode::kAccumulate : OutputMode::kOverwrite;
  if (request.bias) problem.bias = unplaced(kInputAddress, DType::kF32, {request.n});
  problem.num_splits = static_cast<int>(request.num_splits);
  return problem;
}

}  // namespace octavo::cli
