// SPDX-License-Identifier: Apache-2.0
#include "octavo/tensor_view.hpp"

#include <gtest/gtest.h>

#include <stdexcept>
#include <vector>

#include "octavo/scale.hpp"

namespace octavo {
namespace {

TEST(TensorView, MakesDenseRowMajorStrides) {
  std::vector<float> data(24);
  const MutableTensorView view = make_view(data.data(), DType::kF32, {2, 3, 4});
  EXPECT_EQ(view.rank, 3);
  EXPECT_EQ(view.strides[0], 12);
  EXPECT_EQ(view.strides[1], 4);
  EXPECT_EQ(view.strides[2], 1);
  EXPECT_EQ(view.num_elements(), 24);
  EXPECT_TRUE(view.contiguous());
  EXPECT_TRUE(view.present());
  EXPECT_TRUE(TensorView{}.absent());
}

TEST(TensorView, TransposeExchangesTwoDimensionsOnly) {
  const std::vector<float> data(24);
  const TensorView view = make_view(data.data(), DType::kF32, {2, 3, 4});
  const TensorView turned = transposed(view, 1, 2);
  EXPECT_EQ(turned.shape[1], 4);
  EXPECT_EQ(turned.shape[2], 3);
  EXPECT_EQ(turned.strides[1], 1);
  EXPECT_EQ(turned.strides[2], 4);
  EXPECT_FALSE(turned.contiguous());
  EXPECT_TRUE(transposed(turned, 1, 2).contiguous());
}

TEST(TensorView, LengthOneDimensionsDoNotBreakContiguity) {
  const std::vector<float> data(8);
  TensorView view = make_view(data.data(), DType::kF32, {1, 8});
  view.strides[0] = 1000;
  EXPECT_TRUE(view.contiguous());
  view.strides[1] = 2;
  EXPECT_FALSE(view.contiguous());
}

TEST(TensorView, RefusesTooManyDimensions) {
  float value = 0;
  EXPECT_THROW((void)make_view(&value, DType::kF32, {1, 1, 1, 1, 1}), std::length_error);
}

TEST(ScaleLayout, ShapesCoverEveryElementAndNothingElse) {
  using enum ScaleGranularity;
  for (const ScaleGranularity granularity : {kTensor, kRow, kBlock1x128, kBlock128x128}) {
    for (const long long rows : {1LL, 127LL, 128LL, 129LL, 300LL}) {
      for (const long long k : {1LL, 128LL, 129LL, 577LL}) {
        const ScaleShape shape = scale_shape(granularity, rows, k);
        std::vector<int> used(static_cast<std::size_t>(shape.rows * shape.cols));
        for (long long row = 0; row < rows; ++row) {
          for (long long col = 0; col < k; ++col) {
            const ScaleShape index = scale_index(granularity, row, col);
            ASSERT_LT(index.rows, shape.rows);
            ASSERT_LT(index.cols, shape.cols);
            used[static_cast<std::size_t>(index.rows * shape.cols + index.cols)] = 1;
          }
        }
        for (const int scale : used) ASSERT_EQ(scale, 1) << to_string(granularity);
      }
    }
  }
}

TEST(ScaleLayout, RecipesNameTheirOperandsGranularity) {
  EXPECT_EQ(a_granularity(ScaleRecipe::kBlock), ScaleGranularity::kBlock1x128);
  EXPECT_EQ(b_granularity(ScaleRecipe::kBlock), ScaleGranularity::kBlock128x128);
  EXPECT_EQ(b_granularity(ScaleRecipe::kBlock1d), ScaleGranularity::kBlock1x128);
  EXPECT_EQ(a_granularity(ScaleRecipe::kRow), ScaleGranularity::kRow);
  EXPECT_EQ(b_granularity(ScaleRecipe::kTensor), ScaleGranularity::kTensor);
  EXPECT_EQ(a_granularity(ScaleRecipe::kNone), ScaleGranularity::kNone);
}

}  // namespace
}  // namespace octavo
