// SPDX-License-Identifier: Apache-2.0
// Codes and scales changed together: to UE8M0, to other formats, in place.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "quantize/quantized_matrix.hpp"

namespace octavo {
namespace {

using test::Matrix;
using test::Quantized;
using test::Recipe;

Quantized requantized(Quantized& source, ScaleGranularity granularity, const Recipe& recipe) {
  Quantized result = test::empty_quantized(recipe, source.q.rows(), source.q.cols());
  RequantizeProblem problem;
  problem.q = source.q.view();
  problem.scale = test::scale_view(source.scale, granularity);
  problem.granularity = granularity;
  problem.new_q = result.q.view();
  problem.new_scale = test::scale_view(result.scale, granularity);
  requantize(problem);
  EXPECT_TRUE(result.q.guards_intact());
  EXPECT_TRUE(result.scale.guards_intact());
  return result;
}

// Block scales 0.75, 1, 1.01 and 1.99 become powers of two; the values stay.
TEST(Requantize, C13_power_of_two_scales_keep_the_values) {
  constexpr std::int64_t kExtent = 256;
  const Matrix x(DType::kF32, kExtent, kExtent, test::normal_values(kExtent * kExtent, 227));
  Quantized source{Matrix(DType::kE4M3, kExtent, kExtent),
                   Matrix(DType::kF32, 2, 2, {0.75F, 1.0F, 1.01F, 1.99F})};
  for (std::size_t i = 0; i < x.size(); ++i) source.q.set(i, 100 * x.value(i));
  constexpr ScaleGranularity kBlocks = ScaleGranularity::kBlock128x128;
  Quantized result = requantized(source, kBlocks, {kBlocks, DType::kE4M3, DType::kUE8M0});
  const Matrix before = test::dequantized(source, kBlocks);
  const Matrix after = test::dequantized(result, kBlocks);
  for (std::int64_t block_row = 0; block_row < 2; ++block_row) {
    for (std::int64_t block_col = 0; block_col < 2; ++block_col) {
      double error = 0;
      double total = 0;
      for (std::int64_t row = 0; row < kScaleBlock; ++row) {
        for (std::int64_t col = 0; col < kScaleBlock; ++col) {
          const std::int64_t r = block_row * kScaleBlock + row;
          const std::int64_t c = block_col * kScaleBlock + col;
          const double wanted = before.value(r, c);
          error += std::pow(after.value(r, c) - wanted, 2);
          total += wanted * wanted;
        }
      }
      EXPECT_LE(std::sqrt(error / total), 0.05) << block_row << " " << block_col;
    }
  }
}

// The same as dequantizing to FP32 and quantizing that, for every granularity and ragged shape.
TEST(Requantize, equals_dequantize_then_quantize) {
  struct Size {
    std::int64_t rows;
    std::int64_t cols;
  };
  for (const Size size : {Size{300, 200}, {128, 128}, {1, 1}, {257, 5}, {0, 64}, {64, 0}}) {
    for (const ScaleGranularity granularity : test::kGranularities) {
      for (const DType q_dtype : test::kFp8Types) {
        for (const DType scale_dtype : test::kScaleTypes) {
          Matrix x(DType::kF32, size.rows, size.cols,
                   test::normal_values(size.rows * size.cols, 229, 37.0F));
          Quantized source = test::quantized(x.view(), Recipe{granularity});
          const Recipe recipe{granularity, q_dtype, scale_dtype};
          const Quantized result = requantized(source, granularity, recipe);
          Matrix middle = test::dequantized(source, granularity);
          const Quantized wanted = test::quantized(middle.view(), recipe);
          ASSERT_EQ(result.scale.codes(), wanted.scale.codes()) << describe(recipe);
          ASSERT_EQ(result.q.codes(), wanted.q.codes()) << describe(recipe);
        }
      }
    }
  }
}

TEST(Requantize, in_place) {
  constexpr std::int64_t kRows = 300;
  constexpr std::int64_t kCols = 200;
  for (const ScaleGranularity granularity : test::kGranularities) {
    Matrix x(DType::kF32, kRows, kCols, test::normal_values(kRows * kCols, 233));
    Quantized source = test::quantized(x.view(), Recipe{granularity});
    const Recipe recipe{granularity, DType::kE5M2, DType::kF32};
    const Quantized wanted = requantized(source, granularity, recipe);

    RequantizeProblem problem;
    problem.q = source.q.view();
    problem.scale = test::scale_view(source.scale, granularity);
    problem.granularity = granularity;
    problem.new_q = source.q.view();
    problem.new_q.dtype = DType::kE5M2;
    problem.new_scale = test::scale_view(source.scale, granularity);
    const QuantizeReport report = requantize(problem);
    EXPECT_EQ(report.backend, "cpu");
    const auto* codes = static_cast<const std::uint8_t*>(source.q.data());
    for (std::size_t i = 0; i < wanted.q.size(); ++i) {
      ASSERT_EQ(codes[i], wanted.q.code(i)) << to_string(granularity) << " at " << i;
    }
    EXPECT_EQ(source.scale.codes(), wanted.scale.codes()) << to_string(granularity);
  }
}

// Extents at the edge of int64 in a matrix without elements: nothing to do, and no overflow.
TEST(Requantize, vast_empty_matrix) {
  constexpr std::int64_t kVast = std::numeric_limits<std::int64_t>::max();
  for (const ScaleGranularity granularity : test::kGranularities) {
    for (const bool no_rows : {true, false}) {
      // Scales of rows without columns exist, so that as many of them would need memory.
      if (!no_rows && granularity == ScaleGranularity::kRow) continue;
      const std::int64_t rows = no_rows ? 0 : kVast;
      const std::int64_t cols = no_rows ? kVast : 0;
      const ScaleShape shape = scale_shape(granularity, rows, cols);
      std::uint8_t old_scale = 127;
      std::uint8_t new_scale = 0;
      RequantizeProblem problem;
      problem.q.rank = 2;
      problem.q.dtype = DType::kE4M3;
      problem.q.shape = {rows, cols};
      problem.q.strides = {1, 1};
      problem.scale = make_view(&old_scale, DType::kUE8M0, {shape.rows, shape.cols});
      if (granularity == ScaleGranularity::kTensor) problem.scale.rank = 1;
      problem.granularity = granularity;
      problem.new_q.rank = 2;
      problem.new_q.dtype = DType::kE4M3;
      problem.new_q.shape = problem.q.shape;
      problem.new_q.strides = problem.q.strides;
      problem.new_scale = make_view(&new_scale, DType::kUE8M0, {shape.rows, shape.cols});
      problem.new_scale.rank = problem.scale.rank;
      requantize(problem);
      const bool has_scale = granularity == ScaleGranularity::kTensor;
      EXPECT_EQ(decode(DType::kUE8M0, new_scale), has_scale ? 0x1p-22F : 0x1p-127F)
          << to_string(granularity);
    }
  }
}

TEST(Requantize, nan_stays_and_infinity_saturates) {
  Quantized source{Matrix(DType::kE5M2, 1, 4), Matrix(DType::kF32, 1, 1, {2.0F})};
  auto* codes = static_cast<std::uint8_t*>(source.q.data());
  codes[0] = 0x3C;  // 1
  codes[1] = 0xFE;  // NaN
  codes[2] = 0xFC;  // -infinity
  codes[3] = 0x80;  // -0
  const Quantized result =
      requantized(source, ScaleGranularity::kRow, Recipe{ScaleGranularity::kRow});
  EXPECT_EQ(result.q.codes(), (std::vector<std::uint32_t>{0x7E, 0x7F, 0xFE, 0x80}));
  EXPECT_EQ(result.scale.value(0), 2.0F / 448.0F);
}

}  // namespace
}  // namespace octavo
