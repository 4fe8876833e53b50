// SPDX-License-Identifier: Apache-2.0
// Test matrices, quantizing them with guard bands round every output, and a quantizer that shares
// no code with the library's.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "octavo/octavo.hpp"
#include "support/nearest_encoder.hpp"

namespace octavo::test {

inline constexpr DType kWideTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
inline constexpr DType kFp8Types[] = {DType::kE4M3, DType::kE5M2};
inline constexpr DType kScaleTypes[] = {DType::kF32, DType::kUE8M0};
inline constexpr ScaleGranularity kGranularities[] = {
    ScaleGranularity::kTensor, ScaleGranularity::kRow, ScaleGranularity::kBlock1x128,
    ScaleGranularity::kBlock128x128};

inline constexpr std::uint8_t kPoison = 0xA5;
inline constexpr std::size_t kGuardBytes = 64;

// A dense matrix in any type, between guard bands.
class Matrix {
 public:
  Matrix(DType dtype, std::int64_t rows, std::int64_t cols)
      : dtype_(dtype),
        rows_(rows),
        cols_(cols),
        bytes_(2 * kGuardBytes + static_cast<std::size_t>(rows * cols) *
                                     static_cast<std::size_t>(size_bytes(dtype)),
               kPoison) {}

  Matrix(DType dtype, std::int64_t rows, std::int64_t cols, const std::vector<float>& values)
      : Matrix(dtype, rows, cols) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

  [[nodiscard]] DType dtype() const { return dtype_; }
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t cols() const { return cols_; }
  [[nodiscard]] std::size_t size() const { return static_cast<std::size_t>(rows_ * cols_); }
  [[nodiscard]] void* data() { return bytes_.data() + kGuardBytes; }
  [[nodiscard]] MutableTensorView view() {
    return make_view(static_cast<char*>(data()), dtype_, {rows_, cols_});
  }

  [[nodiscard]] std::uint32_t code(std::size_t i) const {
    std::uint32_t code = 0;
    const auto bytes = static_cast<std::size_t>(size_bytes(dtype_));
    std::copy_n(bytes_.data() + kGuardBytes + i * bytes, bytes,
                reinterpret_cast<std::uint8_t*>(&code));
    return code;
  }
  [[nodiscard]] float value(std::size_t i) const { return decode(dtype_, code(i)); }
  [[nodiscard]] float value(std::int64_t row, std::int64_t col) const {
    return value(static_cast<std::size_t>(row * cols_ + col));
  }
  void set(std::size_t i, float value) {
    const std::uint32_t code = encode(dtype_, value);
    const auto bytes = static_cast<std::size_t>(size_bytes(dtype_));
    std::copy_n(reinterpret_cast<const std::uint8_t*>(&code), bytes,
                bytes_.data() + kGuardBytes + i * bytes);
  }
  [[nodiscard]] std::vector<std::uint32_t> codes() const {
    std::vector<std::uint32_t> all(size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = code(i);
    return all;
  }
  [[nodiscard]] bool guards_intact() const {
    const auto poisoned = [](std::uint8_t byte) { return byte == kPoison; };
    return std::all_of(bytes_.begin(), bytes_.begin() + kGuardBytes, poisoned) &&
           std::all_of(bytes_.end() - kGuardBytes, bytes_.end(), poisoned);
  }

 private:
  DType dtype_;
  std::int64_t rows_;
  std::int64_t cols_;
  std::vector<std::uint8_t> bytes_;
};

[[nodiscard]] inline std::vector<float> normal_values(std::int64_t count, std::uint64_t seed,
                                                      float sigma = 1.0F) {
  std::mt19937_64 generator(seed);
  std::normal_distribution<float> normal(0.0F, sigma);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

// A view of the scale tensor with the rank that quantize() asks for.
[[nodiscard]] inline MutableTensorView scale_view(Matrix& scale, ScaleGranularity granularity) {
  MutableTensorView view = scale.view();
  if (granularity == ScaleGranularity::kTensor || granularity == ScaleGranularity::kRow) {
    view.rank = 1;
  }
  return view;
}

struct Recipe {
  ScaleGranularity granularity = ScaleGranularity::kRow;
  DType q_dtype = DType::kE4M3;
  DType scale_dtype = DType::kF32;
  float amax_floor = kDefaultAmaxFloor;
};

[[nodiscard]] inline std::string describe(const Recipe& recipe) {
  return std::string(to_string(recipe.granularity)) + " " + to_string(recipe.q_dtype) + " " +
         to_string(recipe.scale_dtype);
}

struct Quantized {
  Matrix q;
  Matrix scale;

  [[nodiscard]] float scale_of(ScaleGranularity granularity, std::int64_t row,
                               std::int64_t col) const {
    const ScaleShape index = scale_index(granularity, row, col);
    return scale.value(index.rows, index.cols);
  }
};

[[nodiscard]] inline Quantized empty_quantized(const Recipe& recipe, std::int64_t rows,
                                               std::int64_t cols) {
  const ScaleShape shape = scale_shape(recipe.granularity, rows, cols);
  return {Matrix(recipe.q_dtype, rows, cols), Matrix(recipe.scale_dtype, shape.rows, shape.cols)};
}

// Dynamic scales, through the public call.
[[nodiscard]] inline Quantized quantized(const TensorView& x, const Recipe& recipe,
                                         int num_threads = 0) {
  Quantized result = empty_quantized(recipe, x.shape[0], x.shape[1]);
  QuantizeProblem problem;
  problem.x = x;
  problem.q = result.q.view();
  problem.granularity = recipe.granularity;
  problem.scale = scale_view(result.scale, recipe.granularity);
  problem.amax_floor = recipe.amax_floor;
  Execution execution;
  execution.num_threads = num_threads;
  quantize(problem, execution);
  EXPECT_TRUE(result.q.guards_intact()) << describe(recipe);
  EXPECT_TRUE(result.scale.guards_intact()) << describe(recipe);
  return result;
}

// One given scale for the whole matrix.
[[nodiscard]] inline Matrix quantized_with_scale(Matrix& x, float scale,
                                                 DType q_dtype = DType::kE4M3) {
  Matrix q(q_dtype, x.rows(), x.cols());
  QuantizeProblem problem;
  problem.x = x.view();
  problem.q = q.view();
  problem.granularity = ScaleGranularity::kTensor;
  problem.scale = make_view(&scale, DType::kF32, {1});
  problem.scale_source = ScaleSource::kGiven;
  quantize(problem);
  EXPECT_TRUE(q.guards_intact());
  return q;
}

[[nodiscard]] inline Matrix dequantized(Quantized& quantized, ScaleGranularity granularity,
                                        DType x_dtype = DType::kF32) {
  Matrix x(x_dtype, quantized.q.rows(), quantized.q.cols());
  DequantizeProblem problem;
  problem.q = quantized.q.view();
  problem.scale = scale_view(quantized.scale, granularity);
  problem.granularity = granularity;
  problem.x = x.view();
  dequantize(problem);
  EXPECT_TRUE(x.guards_intact());
  return x;
}

// The documented formula, element by element, with the independent encoders.
[[nodiscard]] inline Quantized reference_quantized(const Matrix& x, const Recipe& recipe) {
  Quantized result = empty_quantized(recipe, x.rows(), x.cols());
  const ScaleShape shape = scale_shape(recipe.granularity, x.rows(), x.cols());
  std::vector<float> amax(static_cast<std::size_t>(shape.rows * shape.cols), 0.0F);
  const auto group = [&](std::int64_t row, std::int64_t col) {
    const ScaleShape index = scale_index(recipe.granularity, row, col);
    return static_cast<std::size_t>(index.rows * shape.cols + index.cols);
  };
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t col = 0; col < x.cols(); ++col) {
      const float magnitude = std::fabs(x.value(row, col));
      float& largest = amax[group(row, col)];
      if (std::isfinite(magnitude) && magnitude > largest) largest = magnitude;
    }
  }
  const bool e4m3 = recipe.q_dtype == DType::kE4M3;
  std::vector<float> reciprocals(amax.size());
  for (std::size_t i = 0; i < amax.size(); ++i) {
    float scale = std::max(amax[i], recipe.amax_floor) / (e4m3 ? 448.0F : 57344.0F);
    if (recipe.scale_dtype == DType::kUE8M0) {
      const std::uint32_t code = std::clamp(ceil_power_of_two_code(scale), 1U, 254U);
      scale = std::ldexp(1.0F, static_cast<int>(code) - 127);
    }
    result.scale.set(i, scale);
    reciprocals[i] = 1.0F / scale;
  }
  const NearestEncoder format = e4m3 ? NearestEncoder::e4m3() : NearestEncoder::e5m2();
  auto* codes = static_cast<std::uint8_t*>(result.q.data());
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t col = 0; col < x.cols(); ++col) {
      const float product = x.value(row, col) * reciprocals[group(row, col)];
      *codes++ = static_cast<std::uint8_t>(format.encode(product));
    }
  }
  return result;
}

// |dequantized - x| <= max(half a step of a normal number, half the least subnormal), scaled. A
// bf16 or f16 x adds nothing: the comparison is in FP32.
inline void expect_within_bound(const Matrix& x, const Matrix& back, const Quantized& quantized,
                                const Recipe& recipe) {
  const bool e4m3 = recipe.q_dtype == DType::kE4M3;
  const double relative = e4m3 ? 0x1p-4 : 0x1p-3;
  const double absolute = e4m3 ? 0x1p-10 : 0x1p-17;
  // The product with a rounded reciprocal, and the rounding of the result, add a few ulp.
  constexpr double kRoundings = 1 + 0x1p-20;
  for (std::int64_t row = 0; row < x.rows(); ++row) {
    for (std::int64_t col = 0; col < x.cols(); ++col) {
      const double value = x.value(row, col);
      const double scale = quantized.scale_of(recipe.granularity, row, col);
      const double bound = std::max(relative * std::fabs(value), scale * absolute) * kRoundings;
      ASSERT_LE(std::fabs(back.value(row, col) - value), bound)
          << describe(recipe) << " at [" << row << ", " << col << "] of " << value;
    }
  }
}

// sqrt(sum (a - b)^2 / sum b^2) over a range of rows.
[[nodiscard]] inline double relative_rms(const Matrix& result, const Matrix& reference,
                                         std::int64_t first_row, std::int64_t last_row) {
  double error = 0;
  double total = 0;
  for (std::int64_t row = first_row; row < last_row; ++row) {
    for (std::int64_t col = 0; col < reference.cols(); ++col) {
      const double wanted = reference.value(row, col);
      const double difference = result.value(row, col) - wanted;
      error += difference * difference;
      total += wanted * wanted;
    }
  }
  return std::sqrt(error / total);
}

}  // namespace octavo::test
