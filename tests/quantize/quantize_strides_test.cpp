// SPDX-License-Identifier: Apache-2.0
// Views that are not dense: slices, transposes, broadcasts, scale tensors in any strides; and
// offsets past 2^31.
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "cpu/element_offset.hpp"
#include "quantize/quantized_matrix.hpp"

namespace octavo {
namespace {

using test::Matrix;
using test::Quantized;
using test::Recipe;

MutableTensorView columns(MutableTensorView view, std::int64_t first, std::int64_t count) {
  view.data = static_cast<char*>(view.data) + first * view.strides[1] * size_bytes(view.dtype);
  view.shape[1] = count;
  return view;
}

// A dense copy of any view.
Matrix dense_copy(const TensorView& view) {
  Matrix copy(view.dtype, view.shape[0], view.shape[1]);
  const auto bytes = static_cast<std::size_t>(size_bytes(view.dtype));
  auto* out = static_cast<char*>(copy.data());
  for (std::int64_t row = 0; row < view.shape[0]; ++row) {
    for (std::int64_t col = 0; col < view.shape[1]; ++col) {
      const auto* in = static_cast<const char*>(cpu::element_address(view, row, col));
      out = std::copy_n(in, bytes, out);
    }
  }
  return copy;
}

void expect_same_as_dense(const TensorView& x) {
  Matrix dense = dense_copy(x);
  for (const ScaleGranularity granularity : test::kGranularities) {
    for (const DType scale_dtype : test::kScaleTypes) {
      const Recipe recipe{granularity, DType::kE4M3, scale_dtype};
      const Quantized strided = test::quantized(x, recipe);
      const Quantized wanted = test::quantized(dense.view(), recipe);
      ASSERT_EQ(strided.scale.codes(), wanted.scale.codes()) << describe(recipe);
      ASSERT_EQ(strided.q.codes(), wanted.q.codes()) << describe(recipe);
    }
  }
}

TEST(Quantize, C17_views_that_are_not_dense) {
  for (const DType dtype : test::kWideTypes) {
    SCOPED_TRACE(to_string(dtype));
    Matrix full(dtype, 64, 512, test::normal_values(64 * 512, 181));
    expect_same_as_dense(columns(full.view(), 128, 256));
    expect_same_as_dense(transposed(full.view(), 0, 1));

    // [2, 8, 256][:, 3:, :]: two matrices, and no merged one.
    Matrix batch(dtype, 16, 256, test::normal_values(16 * 256, 191));
    for (std::int64_t b = 0; b < 2; ++b) {
      MutableTensorView part = batch.view();
      part.data = cpu::element_address(part, b * 8 + 3, 0);
      part.shape[0] = 5;
      expect_same_as_dense(part);
    }

    MutableTensorView expanded = full.view();
    expanded.strides[0] = 0;
    expect_same_as_dense(expanded);

    constexpr std::int64_t kCols = 300;
    Matrix padded(dtype, 1, 20 * (kCols + 1), test::normal_values(20 * (kCols + 1), 193));
    MutableTensorView odd_rows = padded.view();
    odd_rows.shape = {20, kCols};
    odd_rows.strides = {kCols + 1, 1};
    expect_same_as_dense(odd_rows);

    // Rows and columns backwards, every second column; long enough for several gathers.
    Matrix wide(dtype, 3, 5000, test::normal_values(3 * 5000, 197));
    MutableTensorView backwards = wide.view();
    backwards.data = cpu::element_address(backwards, 2, 4999);
    backwards.shape = {3, 2500};
    backwards.strides = {-5000, -2};
    expect_same_as_dense(backwards);
  }
}

// Strided outputs: the elements of the view are written and nothing between them.
TEST(Quantize, C17_strided_outputs) {
  constexpr std::int64_t kRows = 40;
  constexpr std::int64_t kCols = 1500;
  Matrix x(DType::kBF16, kRows, kCols, test::normal_values(kRows * kCols, 199));
  for (const ScaleGranularity granularity : test::kGranularities) {
    const Recipe recipe{granularity};
    Quantized wanted = test::quantized(x.view(), recipe);
    const Matrix wanted_back = test::dequantized(wanted, granularity, DType::kBF16);
    const ScaleShape shape = scale_shape(granularity, kRows, kCols);

    // q column-major in a taller buffer, scales column-major (M-major), back with gaps.
    Matrix q(DType::kE4M3, kCols, kRows + 3);
    Matrix scale(DType::kF32, shape.cols, shape.rows + 4);
    QuantizeProblem problem;
    problem.x = x.view();
    problem.q = transposed(columns(q.view(), 2, kRows), 0, 1);
    problem.granularity = granularity;
    problem.scale = transposed(columns(scale.view(), 1, shape.rows), 0, 1);
    if (granularity == ScaleGranularity::kTensor) problem.scale.rank = 1;
    quantize(problem);
    EXPECT_EQ(dense_copy(problem.q).codes(), wanted.q.codes()) << describe(recipe);
    EXPECT_EQ(dense_copy(transposed(columns(scale.view(), 1, shape.rows), 0, 1)).codes(),
              wanted.scale.codes())
        << describe(recipe);
    for (std::int64_t col = 0; col < kCols; ++col) {
      for (const std::int64_t row : {std::int64_t{0}, std::int64_t{1}, kRows + 2}) {
        ASSERT_EQ(q.code(static_cast<std::size_t>(col * (kRows + 3) + row)), test::kPoison);
      }
    }
    EXPECT_TRUE(q.guards_intact());
    EXPECT_TRUE(scale.guards_intact());

    Matrix back(DType::kBF16, kRows, 2 * kCols);
    DequantizeProblem reverse;
    reverse.q = problem.q;
    reverse.scale = problem.scale;
    reverse.granularity = granularity;
    MutableTensorView sparse = back.view();
    sparse.shape[1] = kCols;
    sparse.strides[1] = 2;
    reverse.x = sparse;
    dequantize(reverse);
    EXPECT_EQ(dense_copy(sparse).codes(), wanted_back.codes()) << describe(recipe);
    for (std::size_t i = 1; i < back.size(); i += 2) ASSERT_EQ(back.code(i), 0xA5A5U);
    EXPECT_TRUE(back.guards_intact());
  }
}

// Codes and scales of a row side by side in one buffer, as some caches keep them.
TEST(Quantize, scales_may_lie_between_the_rows_of_codes) {
  constexpr std::int64_t kRows = 6;
  constexpr std::int64_t kCols = 128;
  constexpr std::int64_t kRowBytes = kCols + 4;
  Matrix x(DType::kBF16, kRows, kCols, test::normal_values(kRows * kCols, 211));
  const Quantized wanted = test::quantized(x.view(), Recipe{ScaleGranularity::kRow});
  std::vector<float> buffer(static_cast<std::size_t>(kRows * kRowBytes / 4));
  QuantizeProblem problem;
  problem.x = x.view();
  problem.q =
      make_view(reinterpret_cast<std::uint8_t*>(buffer.data()), DType::kE4M3, {kRows, kCols});
  problem.q.strides[0] = kRowBytes;
  problem.scale = make_view(buffer.data() + kCols / 4, DType::kF32, {kRows});
  problem.scale.strides[0] = kRowBytes / 4;
  quantize(problem);
  EXPECT_EQ(dense_copy(problem.q).codes(), wanted.q.codes());
  for (std::int64_t row = 0; row < kRows; ++row) {
    EXPECT_EQ(buffer[static_cast<std::size_t>(row * kRowBytes / 4 + kCols / 4)],
              wanted.scale.value(static_cast<std::size_t>(row)));
  }
}

// One given scale for all groups by strides of 0.
TEST(Quantize, given_scales_may_be_broadcast) {
  constexpr std::int64_t kRows = 5;
  constexpr std::int64_t kCols = 300;
  Matrix x(DType::kF32, kRows, kCols, test::normal_values(kRows * kCols, 223));
  float scale = 0.0123F;
  const Matrix wanted = test::quantized_with_scale(x, scale);
  Matrix q(DType::kE4M3, kRows, kCols);
  QuantizeProblem problem;
  problem.x = x.view();
  problem.q = q.view();
  problem.granularity = ScaleGranularity::kBlock1x128;
  problem.scale = make_view(&scale, DType::kF32, {kRows, 3});
  problem.scale.strides = {0, 0};
  problem.scale_source = ScaleSource::kGiven;
  quantize(problem);
  EXPECT_EQ(q.codes(), wanted.codes());
  EXPECT_EQ(scale, 0.0123F) << "given scales are only read";
}

// 61680 * 34816 still fits 31 bits, 61681 * 34816 does not; an expert stack has 6.4e9 elements.
TEST(Quantize, C19_offsets_have_64_bits) {
  TensorView view;
  view.rank = 2;
  view.shape = {61696, 34816};
  view.strides = {34816, 1};
  EXPECT_EQ(cpu::element_offset(view, 61680, 34815), 2'147'485'695);
  EXPECT_EQ(cpu::element_offset(view, 61681, 0), 2'147'485'696);
  EXPECT_EQ(cpu::element_offset(view, 61695, 34815), std::int64_t{61696} * 34816 - 1);
  view.shape = {256 * 4096, 6144};
  view.strides = {6144, 1};
  EXPECT_EQ(cpu::element_offset(view, 256 * 4096 - 1, 6143), 6'442'450'943);
  view.strides = {1, 256 * 4096};
  EXPECT_EQ(cpu::element_offset(view, 256 * 4096 - 1, 6143), 6'442'450'943);
  view.strides = {-6144, -1};
  EXPECT_EQ(cpu::element_offset(view, 256 * 4096 - 1, 6143), -6'442'450'943);
  EXPECT_EQ(scale_index(ScaleGranularity::kBlock128x128, 256 * 4096 - 1, 6143),
            (ScaleShape{8191, 47}));

  view.dtype = DType::kBF16;
  view.strides = {6144, 1};
  EXPECT_EQ(cpu::byte_offset(view, 1'000'000, 7), 12'288'000'014);
}

TEST(Quantize, no_rows_or_no_columns) {
  for (const ScaleGranularity granularity : test::kGranularities) {
    for (const DType scale_dtype : test::kScaleTypes) {
      for (const std::int64_t rows : {0, 3}) {
        for (const std::int64_t cols : {0, 200}) {
          if (rows != 0 && cols != 0) continue;
          const Recipe recipe{granularity, DType::kE4M3, scale_dtype};
          Matrix x(DType::kF32, rows, cols);
          Quantized result = test::quantized(x.view(), recipe);
          // A scale tensor's elements are written whether or not their group is empty.
          const float floor_scale =
              scale_dtype == DType::kF32 ? kDefaultAmaxFloor / 448.0F : 0x1p-22F;
          for (std::size_t i = 0; i < result.scale.size(); ++i) {
            ASSERT_EQ(result.scale.value(i), floor_scale) << describe(recipe);
          }
          (void)test::dequantized(result, granularity);
        }
      }
    }
  }
  // An empty view needs no memory.
  QuantizeProblem problem;
  problem.x = make_view(static_cast<const float*>(nullptr), DType::kF32, {0, 64});
  problem.q = make_view(static_cast<std::uint8_t*>(nullptr), DType::kE4M3, {0, 64});
  problem.scale = make_view(static_cast<float*>(nullptr), DType::kF32, {0});
  EXPECT_EQ(quantize(problem).kernel, "cpu_quantize");
}

}  // namespace
}  // namespace octavo
