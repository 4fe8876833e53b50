// SPDX-License-Identifier: Apache-2.0
// The documented formula to the bit, on random shapes and every combination of types; and what
// follows from it: error bounds, idempotence, independence of the number of threads.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

#include "quantize/quantized_matrix.hpp"
#include "support/denormal_mode.hpp"
#include "support/test_level.hpp"

namespace octavo {
namespace {

using test::Matrix;
using test::Quantized;
using test::Recipe;

void expect_formula(Matrix& x, const Recipe& recipe) {
  const Quantized result = test::quantized(x.view(), recipe);
  const Quantized wanted = test::reference_quantized(x, recipe);
  ASSERT_EQ(result.scale.codes(), wanted.scale.codes()) << describe(recipe);
  ASSERT_EQ(result.q.codes(), wanted.q.codes()) << describe(recipe);
}

// bf16 activations in groups of 128, and products that land exactly on a tie.
TEST(Quantize, C16_bytes_follow_the_formula) {
  const std::int64_t rows = test::full_level() ? 512 : 96;
  constexpr std::int64_t kCols = 7168;
  for (const std::uint64_t seed : {0U, 1U, 2U, 3U}) {
    Matrix x(DType::kBF16, rows, kCols, test::normal_values(rows * kCols, seed));
    for (const DType scale_dtype : test::kScaleTypes) {
      expect_formula(x, {ScaleGranularity::kBlock1x128, DType::kE4M3, scale_dtype});
    }
  }

  // 168 lies between 160 (even code) and 176: x * (1 / scale) = 168 must give 160, however the
  // product came to be 168.
  constexpr float kTie = 168;
  constexpr std::uint32_t kEvenCode = 0x72;
  int num_ties = 0;
  for (const float amax : test::normal_values(2000, 151)) {
    const float scale = std::fabs(amax) / 448.0F;
    const float reciprocal = 1.0F / scale;
    for (const float candidate : {kTie * scale, std::nextafter(kTie * scale, 0.0F),
                                  std::nextafter(kTie * scale, 1000.0F)}) {
      if (candidate * reciprocal != kTie) continue;
      ++num_ties;
      Matrix x(DType::kF32, 1, 2, {amax, candidate});
      const Quantized result = test::quantized(x.view(), Recipe{ScaleGranularity::kRow});
      ASSERT_EQ(result.q.code(1), kEvenCode) << "amax " << amax;
    }
  }
  EXPECT_GT(num_ties, 1000);
}

TEST(Quantize, formula_on_random_shapes) {
  std::mt19937 generator(157);
  std::uniform_int_distribution<std::int64_t> extent(1, 300);
  std::uniform_int_distribution<int> exponent(-40, 40);
  for (const ScaleGranularity granularity : test::kGranularities) {
    for (const DType x_dtype : test::kWideTypes) {
      for (const DType q_dtype : test::kFp8Types) {
        for (const DType scale_dtype : test::kScaleTypes) {
          const std::int64_t rows = extent(generator);
          const std::int64_t cols = extent(generator);
          std::vector<float> values = test::normal_values(rows * cols, generator());
          // F16 holds nothing above 65504; the others take any magnitude.
          const int shift = x_dtype == DType::kF16 ? exponent(generator) / 4 : exponent(generator);
          for (float& value : values) value = std::ldexp(value, shift);
          Matrix x(x_dtype, rows, cols, values);
          expect_formula(x, {granularity, q_dtype, scale_dtype});
        }
      }
    }
  }
}

// Long enough rows, and tall enough matrices, to be cut into several tiles in both directions.
TEST(Quantize, formula_across_tiles) {
  struct Size {
    std::int64_t rows;
    std::int64_t cols;
  };
  for (const Size size : {Size{3, 40'000}, {300, 2200}, {700, 100}, {1, 4097}, {40'000, 1}}) {
    Matrix x(DType::kBF16, size.rows, size.cols, test::normal_values(size.rows * size.cols, 163));
    for (const ScaleGranularity granularity : test::kGranularities) {
      expect_formula(x, Recipe{granularity});
    }
  }
}

TEST(Quantize, round_trip_is_within_half_a_step) {
  constexpr std::int64_t kRows = 150;
  constexpr std::int64_t kCols = 333;
  std::mt19937 generator(167);
  std::uniform_int_distribution<int> exponent(-30, 10);
  std::vector<float> values = test::normal_values(kRows * kCols, 173);
  for (float& value : values) value = std::ldexp(value, exponent(generator));
  for (const DType x_dtype : test::kWideTypes) {
    Matrix x(x_dtype, kRows, kCols, values);
    for (const ScaleGranularity granularity : test::kGranularities) {
      for (const DType q_dtype : test::kFp8Types) {
        for (const DType scale_dtype : test::kScaleTypes) {
          const Recipe recipe{granularity, q_dtype, scale_dtype};
          Quantized result = test::quantized(x.view(), recipe);
          const Matrix back = test::dequantized(result, granularity);
          test::expect_within_bound(x, back, result, recipe);
        }
      }
    }
  }
}

// Quantizing what was dequantized, with the same scales, changes no code but the sign of NaN.
TEST(Quantize, is_idempotent_with_the_same_scales) {
  for (const DType q_dtype : test::kFp8Types) {
    for (const DType scale_dtype : test::kScaleTypes) {
      Quantized first{Matrix(q_dtype, 4, 64), Matrix(scale_dtype, 4, 1)};
      auto* codes = static_cast<std::uint8_t*>(first.q.data());
      for (int code = 0; code < 256; ++code) codes[code] = static_cast<std::uint8_t>(code);
      for (std::size_t row = 0; row < 4; ++row) {
        first.scale.set(row, std::ldexp(1.1F, static_cast<int>(row) * 20 - 30));
      }
      Matrix x = test::dequantized(first, ScaleGranularity::kRow);
      Matrix again(q_dtype, 4, 64);
      QuantizeProblem problem;
      problem.x = x.view();
      problem.q = again.view();
      problem.granularity = ScaleGranularity::kRow;
      problem.scale = test::scale_view(first.scale, ScaleGranularity::kRow);
      problem.scale_source = ScaleSource::kGiven;
      quantize(problem);
      for (std::size_t i = 0; i < 256; ++i) {
        const float value = first.q.value(i);
        const auto max_code = static_cast<std::uint32_t>(q_dtype == DType::kE4M3 ? 0x7E : 0x7B);
        std::uint32_t wanted = static_cast<std::uint32_t>(i);
        if (std::isnan(value)) wanted = 0x7F;
        if (std::isinf(value)) wanted = max_code | (value < 0 ? 0x80U : 0U);
        ASSERT_EQ(again.code(i), wanted) << to_string(q_dtype) << " code " << i;
      }
    }
  }
}

TEST(Quantize, same_bits_with_any_number_of_threads) {
  constexpr std::int64_t kRows = 500;
  constexpr std::int64_t kCols = 1000;
  Matrix x(DType::kBF16, kRows, kCols, test::normal_values(kRows * kCols, 179));
  for (const ScaleGranularity granularity : test::kGranularities) {
    const Recipe recipe{granularity};
    const Quantized one = test::quantized(x.view(), recipe, 1);
    for (const int num_threads : {0, 2, 7}) {
      const Quantized many = test::quantized(x.view(), recipe, num_threads);
      ASSERT_EQ(one.q.codes(), many.q.codes()) << describe(recipe);
      ASSERT_EQ(one.scale.codes(), many.scale.codes()) << describe(recipe);
    }
  }
}

// decode(q) * scale in FP32, rounded once to the output's type.
TEST(Dequantize, rounds_the_product_once) {
  constexpr std::int64_t kCols = 256;
  for (const DType q_dtype : test::kFp8Types) {
    for (const DType x_dtype : test::kWideTypes) {
      Quantized codes{Matrix(q_dtype, 1, kCols), Matrix(DType::kF32, 1, 1)};
      auto* bytes = static_cast<std::uint8_t*>(codes.q.data());
      for (std::int64_t i = 0; i < kCols; ++i) bytes[i] = static_cast<std::uint8_t>(i);
      for (const float scale : {1.0F, 0.37F, 1e-30F, 3e5F, 0x1p-130F}) {
        codes.scale.set(0, scale);
        const Matrix x = test::dequantized(codes, ScaleGranularity::kTensor, x_dtype);
        for (std::size_t i = 0; i < kCols; ++i) {
          const std::uint32_t wanted = encode(x_dtype, codes.q.value(i) * scale);
          ASSERT_EQ(x.code(i), wanted)
              << to_string(q_dtype) << " code " << i << " to " << to_string(x_dtype);
        }
      }
    }
  }
}

TEST(Dequantize, keeps_subnormals_for_a_caller_that_flushes_them) {
  Quantized codes{Matrix(DType::kE4M3, 8, 16), Matrix(DType::kF32, 8, 1)};
  for (std::size_t i = 0; i < codes.q.size(); ++i) codes.q.set(i, 1.0F + static_cast<float>(i % 7));
  for (std::size_t row = 0; row < 8; ++row) codes.scale.set(row, 0x1p-135F);
  const Matrix kept = test::dequantized(codes, ScaleGranularity::kRow);
  ASSERT_EQ(kept.value(1), 0x1p-134F);
  const test::FlushDenormals flush;
  EXPECT_EQ(test::dequantized(codes, ScaleGranularity::kRow).codes(), kept.codes());
}

TEST(Dequantize, without_scales_decodes) {
  Matrix q(DType::kE4M3, 2, 3, {1, -2, 0.5F, 448, -0.0F, 3});
  Matrix x(DType::kBF16, 2, 3);
  DequantizeProblem problem;
  problem.q = q.view();
  problem.granularity = ScaleGranularity::kNone;
  problem.x = x.view();
  const QuantizeReport report = dequantize(problem);
  EXPECT_EQ(report.backend, "cpu");
  EXPECT_EQ(report.kernel, "cpu_dequantize");
  for (std::size_t i = 0; i < q.size(); ++i) EXPECT_EQ(x.value(i), q.value(i));
}

}  // namespace
}  // namespace octavo
