// SPDX-License-Identifier: Apache-2.0
// A product on seeded random data that owns its memory: operands in any layout with NaN in every
// gap, and an output inside guard bands. Not a test; blocked_gemm_test.cpp and its neighbours use
// it.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "numerics/codec.hpp"
#include "octavo/gemm.hpp"

namespace octavo::testing {

enum class Layout {
  kDense,       // row-major
  kPadded,      // row-major with gaps between rows
  kTransposed,  // the first of the two dimensions is contiguous
  kSpread,      // no stride is 1
  kReversed,    // rows and columns run backwards
};

enum class Sign { kBoth, kPositive };

struct ProblemSpec {
  std::int64_t m = 1;
  std::int64_t n = 1;
  std::int64_t k = 1;
  std::int64_t batch = 0;  // 0: rank 2
  DType a = DType::kE4M3;
  DType b = DType::kE4M3;
  DType d = DType::kF32;
  ScaleRecipe recipe = ScaleRecipe::kNone;
  DType scale = DType::kF32;
  Layout a_layout = Layout::kDense;
  Layout b_layout = Layout::kDense;
  Layout d_layout = Layout::kDense;
  Layout scale_layout = Layout::kDense;
  OutputMode output_mode = OutputMode::kOverwrite;
  bool bias = false;
  bool d_scale = false;
  int num_splits = 1;
  Sign sign = Sign::kBoth;
};

// Memory for a [batch, rows, cols] tensor with room around it.
class OwnedTensor {
 public:
  OwnedTensor() = default;
  OwnedTensor(DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t cols, Layout layout)
      : dtype_(dtype) {
    const std::int64_t num_batches = batch == 0 ? 1 : batch;
    std::int64_t row_stride = cols;
    std::int64_t col_stride = 1;
    std::int64_t extent = rows * cols;
    switch (layout) {
      case Layout::kDense: break;
      case Layout::kPadded:
        row_stride = cols + 3;
        extent = rows * row_stride;
        break;
      case Layout::kTransposed:
        row_stride = 1;
        col_stride = rows;
        break;
      case Layout::kSpread:
        col_stride = 2;
        row_stride = 2 * cols + 1;
        extent = rows * row_stride;
        break;
      case Layout::kReversed:
        row_stride = -cols;
        col_stride = -1;
        break;
    }
    const std::int64_t batch_stride = extent + 5;
    const std::int64_t first =
        kGuard + (layout == Layout::kReversed ? std::max<std::int64_t>(0, rows * cols - 1) : 0);
    bytes_.assign(
        static_cast<std::size_t>((2 * kGuard + num_batches * batch_stride) * size_bytes(dtype)),
        kNanByte);
    first_ = first;
    view_.dtype = dtype;
    const auto add_dimension = [this](std::int64_t length, std::int64_t stride) {
      view_.shape[static_cast<std::size_t>(view_.rank)] = length;
      view_.strides[static_cast<std::size_t>(view_.rank)] = stride;
      ++view_.rank;
    };
    if (batch > 0) add_dimension(batch, batch_stride);
    add_dimension(rows, row_stride);
    add_dimension(cols, col_stride);
  }

  // Made anew each time: a copy of this object has memory of its own.
  [[nodiscard]] MutableTensorView view() const {
    MutableTensorView view = view_;
    if (view.rank > 0) view.data = data();
    return view;
  }
  [[nodiscard]] const std::vector<unsigned char>& bytes() const { return bytes_; }
  [[nodiscard]] std::vector<unsigned char>& bytes() { return bytes_; }

  [[nodiscard]] std::int64_t offset(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    const auto last = static_cast<std::size_t>(view_.rank - 1);
    return (view_.rank > 2 ? batch * view_.strides[0] : 0) + row * view_.strides[last - 1] +
           col * view_.strides[last];
  }
  [[nodiscard]] float at(std::int64_t batch, std::int64_t row, std::int64_t col) const {
    return load_element(data(), dtype_, offset(batch, row, col));
  }
  void set(std::int64_t batch, std::int64_t row, std::int64_t col, float value) {
    store_element(data(), dtype_, offset(batch, row, col), value);
  }
  template <typename F>
  void for_each(const F& f) const {
    const auto last = static_cast<std::size_t>(view_.rank - 1);
    const std::int64_t num_batches = view_.rank > 2 ? view_.shape[0] : 1;
    for (std::int64_t batch = 0; batch < num_batches; ++batch) {
      for (std::int64_t row = 0; row < view_.shape[last - 1]; ++row) {
        for (std::int64_t col = 0; col < view_.shape[last]; ++col) f(batch, row, col);
      }
    }
  }

  // The bytes outside the tensor's elements, in order.
  [[nodiscard]] std::vector<unsigned char> gaps() const {
    std::vector<unsigned char> inside(bytes_.size(), 0);
    for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      const std::int64_t begin = (first_ + offset(batch, row, col)) * size_bytes(dtype_);
      std::fill_n(inside.begin() + begin, size_bytes(dtype_), static_cast<unsigned char>(1));
    });
    std::vector<unsigned char> outside;
    for (std::size_t i = 0; i < bytes_.size(); ++i) {
      if (inside[i] == 0) outside.push_back(bytes_[i]);
    }
    return outside;
  }

 private:
  [[nodiscard]] void* data() const {
    return const_cast<unsigned char*>(bytes_.data()) + first_ * size_bytes(dtype_);  // NOLINT
  }

  static constexpr std::int64_t kGuard = 32;       // elements before and behind
  static constexpr unsigned char kNanByte = 0xFF;  // NaN in every type, repeated
  DType dtype_ = DType::kF32;
  std::vector<unsigned char> bytes_;
  std::int64_t first_ = 0;  // position of the tensor's element [0, 0, 0], in elements
  MutableTensorView view_;
};

struct RandomProblem {
  ProblemSpec spec;
  OwnedTensor a, b, d, a_scale, b_scale, bias, d_scale;

  RandomProblem(const ProblemSpec& given, unsigned seed) : spec(given), random_(seed) {
    a = OwnedTensor(spec.a, spec.batch, spec.m, spec.k, spec.a_layout);
    b = OwnedTensor(spec.b, spec.batch, spec.n, spec.k, spec.b_layout);
    d = OwnedTensor(spec.d, spec.batch, spec.m, spec.n, spec.d_layout);
    fill(a, 1.0F);
    fill(b, 1.0F);
    if (spec.output_mode == OutputMode::kAccumulate) fill(d, 1.0F);
    a_scale = scales(spec.a, a_granularity(spec.recipe), spec.m);
    b_scale = scales(spec.b, b_granularity(spec.recipe), spec.n);
    if (spec.bias) {
      bias = OwnedTensor(DType::kBF16, 0, 1, spec.n, spec.scale_layout);
      fill(bias, 1.0F);
    }
    if (spec.d_scale) {
      d_scale = OwnedTensor(DType::kF32, 0, 1, 1, Layout::kDense);
      d_scale.set(0, 0, 0, 0.37F);
    }
  }

  // The problem with its results going to `out`.
  [[nodiscard]] GemmProblem problem(const OwnedTensor& out) const {
    GemmProblem p;
    p.a = a.view();
    p.b = b.view();
    p.d = out.view();
    p.recipe = spec.recipe;
    p.a_scale = scale_view(a_scale, a_granularity(spec.recipe));
    p.b_scale = scale_view(b_scale, b_granularity(spec.recipe));
    p.output_mode = spec.output_mode;
    if (spec.bias) p.bias = vector_view(bias);
    if (spec.d_scale) p.d_scale = vector_view(d_scale);
    p.num_splits = spec.num_splits;
    return p;
  }

 private:
  void fill(OwnedTensor& tensor, float sigma) {
    std::normal_distribution<float> normal(0.0F, sigma);
    tensor.for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      const float value = normal(random_);
      tensor.set(batch, row, col, spec.sign == Sign::kPositive ? std::fabs(value) : value);
    });
  }

  OwnedTensor scales(DType operand, ScaleGranularity granularity, std::int64_t rows) {
    if (granularity == ScaleGranularity::kNone || !is_fp8(operand)) return {};
    const ScaleShape shape = scale_shape(granularity, rows, spec.k);
    OwnedTensor tensor(spec.scale, spec.batch, shape.rows, shape.cols, spec.scale_layout);
    std::uniform_real_distribution<float> exponent(-3.0F, 3.0F);
    tensor.for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      tensor.set(batch, row, col, std::exp2(exponent(random_)));
    });
    return tensor;
  }

  // A [1, n] or [n, 1] matrix as the rank-1 view the API takes.
  static TensorView vector_view(const OwnedTensor& tensor) {
    TensorView view = tensor.view();
    const std::size_t long_dim = view.shape[0] == 1 ? 1 : 0;
    view.shape[0] = view.shape[long_dim];
    view.strides[0] = view.strides[long_dim];
    view.rank = 1;
    return view;
  }

  static TensorView scale_view(const OwnedTensor& tensor, ScaleGranularity granularity) {
    TensorView view = tensor.view();
    // Tensor and row scales have no second dimension.
    if (view.rank > 0 &&
        (granularity == ScaleGranularity::kTensor || granularity == ScaleGranularity::kRow)) {
      --view.rank;
    }
    return view;
  }

  std::mt19937 random_;
};

}  // namespace octavo::testing
