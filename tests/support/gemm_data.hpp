// SPDX-License-Identifier: Apache-2.0
// A product with dense random operands that owns its memory, and two literal ways to compute one
// element of it: FP64, and docs/numerics.md read aloud. Neither shares code with src/cpu.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <random>
#include <sstream>
#include <string>

#include "numerics/tensor_core.hpp"
#include "octavo/gemm.hpp"
#include "support/host_tensor.hpp"

namespace octavo::test {

struct GemmSpec {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  std::int64_t batch = 0;  // 0: matrices
  DType a = DType::kE4M3;
  DType b = DType::kE4M3;
  DType d = DType::kF32;
  ScaleRecipe recipe = ScaleRecipe::kNone;
  DType scale = DType::kF32;
  Accumulation accumulation = Accumulation::kPromoted;
  OutputMode output_mode = OutputMode::kOverwrite;
  bool bias = false;
  DType bias_dtype = DType::kF32;
  bool d_scale = false;
  int num_splits = 1;
  Data data = Data::kGaussian;
  std::uint64_t seed = 1;
};

// The same shape and modes; `octavo run` draws its own random data from the seed.
[[nodiscard]] inline std::string repeat_line(const GemmSpec& spec, Numerics numerics) {
  std::ostringstream line;
  line << "octavo run gemm --m " << spec.m << " --n " << spec.n << " --k " << spec.k << " --recipe "
       << to_string(spec.recipe) << " --batch " << spec.batch << " --scales "
       << to_string(spec.scale) << " --a-dtype " << to_string(spec.a) << " --b-dtype "
       << to_string(spec.b) << " --d-dtype " << to_string(spec.d) << " --accumulation "
       << to_string(spec.accumulation) << (spec.bias ? " --bias" : "")
       << (spec.output_mode == OutputMode::kAccumulate ? " --accumulate" : "") << " --splits "
       << spec.num_splits << " --seed " << spec.seed << " --numerics " << to_string(numerics)
       << "  (data here: " << to_string(spec.data) << ")";
  return line.str();
}

struct GemmData {
  GemmSpec spec;
  HostTensor a, b, d, a_scale, b_scale, bias, d_scale;

  explicit GemmData(const GemmSpec& given) : spec(given) {
    std::mt19937_64 random(spec.seed);
    a = HostTensor(spec.a, shape({spec.m, spec.k}));
    b = HostTensor(spec.b, shape({spec.n, spec.k}));
    d = HostTensor(spec.d, shape({spec.m, spec.n}));
    randomize(a, spec.data, random);
    randomize(b, spec.data, random);
    // Poison that a product must overwrite, or an output to add to.
    if (spec.output_mode == OutputMode::kAccumulate) {
      randomize(d, Data::kGaussian, random);
    } else {
      d.fill_bytes(0xFF);
    }
    a_scale = scales(spec.a, a_granularity(spec.recipe), spec.m, random);
    b_scale = scales(spec.b, b_granularity(spec.recipe), spec.n, random);
    if (spec.bias) {
      bias = HostTensor(spec.bias_dtype, {spec.n});
      randomize(bias, Data::kGaussian, random);
    }
    if (spec.d_scale) {
      d_scale = HostTensor(DType::kF32, {1});
      d_scale.set(0, 0.3F);
    }
  }

  [[nodiscard]] GemmProblem problem() {
    GemmProblem p;
    p.a = a.view();
    p.b = b.view();
    p.d = d.view();
    p.recipe = spec.recipe;
    p.a_scale = a_scale.view();
    p.b_scale = b_scale.view();
    p.accumulation = spec.accumulation;
    p.output_mode = spec.output_mode;
    p.bias = bias.view();
    p.d_scale = d_scale.view();
    p.num_splits = spec.num_splits;
    return p;
  }

 private:
  [[nodiscard]] std::vector<std::int64_t> shape(std::vector<std::int64_t> last) const {
    if (spec.batch > 0) last.insert(last.begin(), spec.batch);
    return last;
  }

  [[nodiscard]] HostTensor scales(DType operand, ScaleGranularity granularity, std::int64_t rows,
                                  std::mt19937_64& random) const {
    if (granularity == ScaleGranularity::kNone || !is_fp8(operand)) return {};
    const ScaleShape extents = scale_shape(granularity, rows, spec.k);
    const bool one_dimension =
        granularity == ScaleGranularity::kTensor || granularity == ScaleGranularity::kRow;
    HostTensor scale(spec.scale,
                     shape(one_dimension ? std::vector<std::int64_t>{extents.rows}
                                         : std::vector<std::int64_t>{extents.rows, extents.cols}));
    std::uniform_real_distribution<float> exponent(-2.0F, 2.0F);
    for (std::int64_t i = 0; i < scale.size(); ++i) scale.set(i, std::exp2(exponent(random)));
    return scale;
  }
};

// Element [batch, row, col] of a view with or without a batch dimension.
template <typename Pointer>
[[nodiscard]] std::int64_t offset_of(const BasicTensorView<Pointer>& view, std::int64_t batch,
                                     std::int64_t row, std::int64_t col) {
  if (view.rank == 3)
    return batch * view.strides[0] + row * view.strides[1] + col * view.strides[2];
  return row * view.strides[0] + col * view.strides[1];
}

// The scale of element (row, k) of an operand, by octavo/scale.hpp.
[[nodiscard]] inline float scale_of(const TensorView& scale, ScaleGranularity granularity,
                                    bool batched, std::int64_t batch, std::int64_t row,
                                    std::int64_t k) {
  if (scale.absent()) return 1.0F;
  const ScaleShape at = scale_index(granularity, row, k);
  std::int64_t offset = batched ? batch * scale.strides[0] : 0;
  const std::size_t first = batched ? 1 : 0;
  offset += at.rows * scale.strides[first];
  if (scale.rank > static_cast<int>(first) + 1) offset += at.cols * scale.strides[first + 1];
  return load_element(scale.data, scale.dtype, offset);
}

// One element before rounding: FP64, with D read from `before` when accumulating.
[[nodiscard]] inline double literal_fp64(const GemmProblem& p, const TensorView& before,
                                         std::int64_t batch, std::int64_t row, std::int64_t col) {
  const bool batched = p.a.rank == 3;
  const std::int64_t depth = p.a.shape[static_cast<std::size_t>(p.a.rank - 1)];
  double sum = 0;
  for (std::int64_t k = 0; k < depth; ++k) {
    const double x = load_element(p.a.data, p.a.dtype, offset_of(p.a, batch, row, k));
    const double y = load_element(p.b.data, p.b.dtype, offset_of(p.b, batch, col, k));
    const double x_scale = scale_of(p.a_scale, a_granularity(p.recipe), batched, batch, row, k);
    const double y_scale = scale_of(p.b_scale, b_granularity(p.recipe), batched, batch, col, k);
    sum += x * x_scale * (y * y_scale);
  }
  if (p.output_mode == OutputMode::kAccumulate) {
    sum += load_element(before.data, before.dtype, offset_of(before, batch, row, col));
  }
  if (p.bias.present()) sum += load_element(p.bias.data, p.bias.dtype, col * p.bias.strides[0]);
  if (p.d_scale.present()) sum /= load_element(p.d_scale.data, DType::kF32, 0);
  return sum;
}

[[nodiscard]] inline float gpu_nan(float value) {
  return std::isnan(value) ? std::bit_cast<float>(0x7FFFFFFFU) : value;
}

// One element before rounding to D's type, as docs/numerics.md defines the emulated mode.
[[nodiscard]] inline float literal_emulated(const GemmProblem& p, const TensorView& before,
                                            std::int64_t batch, std::int64_t row,
                                            std::int64_t col) {
  const bool batched = p.a.rank == 3;
  const std::int64_t depth = p.a.shape[static_cast<std::size_t>(p.a.rank - 1)];
  const auto tc = [&](std::int64_t begin, std::int64_t end) {
    const auto last = static_cast<std::size_t>(p.a.rank - 1);
    const auto* a = static_cast<const std::uint8_t*>(p.a.data) + offset_of(p.a, batch, row, begin);
    const auto* b = static_cast<const std::uint8_t*>(p.b.data) + offset_of(p.b, batch, col, begin);
    return tensor_core_dot(kHopper, {a, p.a.dtype, 0, p.a.strides[last]}, 0,
                           {b, p.b.dtype, 0, p.b.strides[last]}, 0, end - begin, nullptr);
  };
  const auto scale = [&](std::int64_t k) {
    return scale_of(p.a_scale, a_granularity(p.recipe), batched, batch, row, k) *
           scale_of(p.b_scale, b_granularity(p.recipe), batched, batch, col, k);
  };
  const std::int64_t num_blocks = (depth + 127) / 128;
  float value = 0;
  for (std::int64_t split = 0; split < p.num_splits && depth > 0; ++split) {
    const std::int64_t begin = split * num_blocks / p.num_splits * 128;
    const std::int64_t end = std::min(depth, (split + 1) * num_blocks / p.num_splits * 128);
    float part = 0;
    if (is_block_scaled(p.recipe)) {
      for (std::int64_t k = begin; k < end; k += 128) {
        part = gpu_nan(std::fma(scale(k), tc(k, std::min(end, k + 128)), part));
      }
    } else if (p.accumulation == Accumulation::kFast) {
      part = gpu_nan(tc(begin, end) * scale(0));
    } else {
      part = tc(begin, std::min(end, begin + 128));
      for (std::int64_t k = begin + 128; k < end; k += 128) {
        part = gpu_nan(part + tc(k, std::min(end, k + 128)));
      }
      part = gpu_nan(part * scale(0));
    }
    value = split == 0 ? part : gpu_nan(value + part);
  }
  if (p.output_mode == OutputMode::kAccumulate) {
    const float d = load_element(before.data, before.dtype, offset_of(before, batch, row, col));
    value = gpu_nan(value + d);
  }
  if (p.bias.present()) {
    value = gpu_nan(value + load_element(p.bias.data, p.bias.dtype, col * p.bias.strides[0]));
  }
  if (p.d_scale.present()) {
    value = gpu_nan(value * (1.0F / load_element(p.d_scale.data, DType::kF32, 0)));
  }
  return value;
}

}  // namespace octavo::test
