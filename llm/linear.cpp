// SPDX-License-Identifier: Apache-2.0
#include "llm/linear.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "llm/element_decode.hpp"
#include "llm/elementwise.hpp"
#include "llm/weight_scales.hpp"
#include "octavo/error.hpp"
#include "octavo/quantize.hpp"

namespace octavo::llm {
namespace {

TensorView scale_view_of(const float* scales, octavo::ScaleGranularity granularity,
                         std::int64_t rows, std::int64_t cols) {
  const ScaleShape shape = scale_shape(granularity, rows, cols);
  if (granularity == octavo::ScaleGranularity::kRow) {
    return make_view(scales, DType::kF32, {shape.rows});
  }
  return make_view(scales, DType::kF32, {shape.rows, shape.cols});
}

std::size_t num_scales(octavo::ScaleGranularity granularity, std::int64_t rows, std::int64_t cols) {
  const ScaleShape shape = scale_shape(granularity, rows, cols);
  return static_cast<std::size_t>(shape.rows * shape.cols);
}

MutableTensorView writable(const TensorView& view, void* data) {
  return {data, view.dtype, view.rank, view.shape, view.strides, view.device};
}

}  // namespace

void ActivationScratch::reserve(std::int64_t max_rows, std::int64_t max_cols) {
  max_rows_ = std::max(max_rows_, max_rows);
  max_cols_ = std::max(max_cols_, max_cols);
  values_.resize(static_cast<std::size_t>(max_rows_ * max_cols_));
  // 1x128 scales are the most that either recipe needs.
  scales_.resize(static_cast<std::size_t>(max_rows_ * num_scale_blocks(max_cols_)));
}

Linear Linear::from_f32(std::span<const float> weight, Shape shape, const Formats& formats,
                        WeightArena& arena, const Execution& execution) {
  Linear linear;
  linear.shape_ = shape;
  linear.formats_ = formats;
  const auto count = static_cast<std::size_t>(shape.rows * shape.cols);
  linear.values_ = arena.allocate(
      count * static_cast<std::size_t>(octavo::size_bytes(dtype_of(formats.weights))));
  switch (formats.weights) {
    case NumberFormat::kF32:
      std::memcpy(linear.values_.as<float>(), weight.data(), count * sizeof(float));
      break;
    case NumberFormat::kBf16: to_bf16(weight, linear.values_.as<std::uint16_t>()); break;
    case NumberFormat::kFp8: {
      const octavo::ScaleGranularity granularity = b_granularity(formats.fp8_recipe);
      linear.scales_.resize(num_scales(granularity, shape.rows, shape.cols));
      QuantizeProblem problem;
      problem.x = make_view(weight.data(), DType::kF32, {shape.rows, shape.cols});
      problem.q =
          make_view(linear.values_.as<std::uint8_t>(), DType::kE4M3, {shape.rows, shape.cols});
      problem.granularity = granularity;
      problem.scale = writable(linear.scale_view(), linear.scales_.data());
      if (granularity == octavo::ScaleGranularity::kRow) {
        fit_row_scales(weight, shape.cols, linear.scales_);
        problem.scale_source = ScaleSource::kGiven;
      }
      (void)quantize(problem, execution);
      break;
    }
  }
  return linear;
}

Linear Linear::from_fp8(std::span<const std::uint8_t> codes, std::span<const float> scales,
                        Shape shape, const Formats& formats, WeightArena& arena) {
  Linear linear;
  linear.shape_ = shape;
  linear.formats_ = formats;
  linear.values_ = arena.allocate(codes.size());
  std::memcpy(linear.values_.as<std::uint8_t>(), codes.data(), codes.size());
  linear.scales_.assign(scales.begin(), scales.end());
  const std::size_t expected =
      num_scales(b_granularity(formats.fp8_recipe), shape.rows, shape.cols);
  if (codes.size() != static_cast<std::size_t>(shape.rows * shape.cols) ||
      scales.size() != expected) {
    throw Error(ErrorCode::kInternal,
                fmt::format("linear: {} codes and {} scales were given; [{}, {}] needs {} and {}.",
                            codes.size(), scales.size(), shape.rows, shape.cols,
                            shape.rows * shape.cols, expected));
  }
  return linear;
}

TensorView Linear::weight_view() const {
  return make_view(values_.as<std::byte>(), dtype_of(formats_.weights), {shape_.rows, shape_.cols});
}

TensorView Linear::scale_view() const {
  return scale_view_of(scales_.data(), b_granularity(formats_.fp8_recipe), shape_.rows,
                       shape_.cols);
}

std::int64_t Linear::size_bytes() const noexcept {
  return static_cast<std::int64_t>(values_.size_bytes() + scales_.size() * sizeof(float));
}

void Linear::read_row(std::int64_t row, std::span<float> out) const {
  const std::size_t first = static_cast<std::size_t>(row * shape_.cols);
  if (formats_.weights == NumberFormat::kF32) {
    std::copy_n(values_.as<float>() + first, out.size(), out.begin());
  } else if (formats_.weights == NumberFormat::kBf16) {
    const std::uint16_t* values = values_.as<std::uint16_t>() + first;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = bf16_to_f32(values[i]);
  } else {
    throw Error(ErrorCode::kInternal, "linear: read_row was called for an FP8 weight.");
  }
}

void Linear::apply(const float* x, std::int64_t rows_of_x, float* d, ActivationScratch& scratch,
                   const Execution& execution) const {
  if (rows_of_x > scratch.max_rows_ || shape_.cols > scratch.max_cols_) {
    throw Error(ErrorCode::kInternal,
                fmt::format("linear: [{}, {}] activations were given; the scratch was reserved for "
                            "[{}, {}].",
                            rows_of_x, shape_.cols, scratch.max_rows_, scratch.max_cols_));
  }
  GemmProblem problem;
  problem.b = weight_view();
  problem.d = make_view(d, DType::kF32, {rows_of_x, shape_.rows});
  if (formats_.weights == NumberFormat::kFp8) {
    problem.recipe = formats_.fp8_recipe;
    problem.b_scale = scale_view();
  }
  if (!bias_.empty()) problem.bias = make_view(bias_.data(), DType::kF32, {shape_.rows});
  const TensorView x_view = make_view(x, DType::kF32, {rows_of_x, shape_.cols});
  switch (formats_.activations) {
    case NumberFormat::kF32: problem.a = x_view; break;
    case NumberFormat::kBf16:
      to_bf16({x, static_cast<std::size_t>(rows_of_x * shape_.cols)}, scratch.values_.data());
      problem.a = make_view(static_cast<const std::uint16_t*>(scratch.values_.data()), DType::kBF16,
                            {rows_of_x, shape_.cols});
      break;
    case NumberFormat::kFp8: {
      const octavo::ScaleGranularity granularity = a_granularity(formats_.fp8_recipe);
      problem.recipe = formats_.fp8_recipe;
      problem.a = make_view(static_cast<const std::uint16_t*>(scratch.values_.data()), DType::kE4M3,
                            {rows_of_x, shape_.cols});
      problem.a_scale = scale_view_of(scratch.scales_.data(), granularity, rows_of_x, shape_.cols);
      QuantizeProblem rounding;
      rounding.x = x_view;
      rounding.q = writable(problem.a, scratch.values_.data());
      rounding.granularity = granularity;
      rounding.scale = writable(problem.a_scale, scratch.scales_.data());
      (void)quantize(rounding, execution);
      break;
    }
  }
  (void)gemm(problem, execution);
}

}  // namespace octavo::llm
