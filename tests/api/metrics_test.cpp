// SPDX-License-Identifier: Apache-2.0
// compare(): its numbers by hand, and faults that it must see.
#include "octavo/metrics.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "octavo/error.hpp"
#include "support/bit_comparison.hpp"
#include "support/host_tensor.hpp"

namespace octavo::test {
namespace {

using ::testing::HasSubstr;

HostTensor random_tensor(std::uint64_t seed) {
  HostTensor tensor(DType::kF32, {40, 50});
  std::mt19937_64 random(seed);
  randomize(tensor, Data::kGaussian, random);
  return tensor;
}

TEST(Compare, NumbersByHand) {
  HostTensor reference(DType::kF32, {2, 2});
  HostTensor result(DType::kBF16, {2, 2});
  const float r[] = {3, 0, -4, 0};
  const float d[] = {3, 1, -2, 0};
  for (int i = 0; i < 4; ++i) {
    reference.set(i, r[i]);
    result.set(i, d[i]);
  }
  const ErrorMetrics metrics = compare(result.view(), reference.view());
  EXPECT_DOUBLE_EQ(metrics.relative_frobenius, std::sqrt(5.0) / 5);
  EXPECT_DOUBLE_EQ(metrics.sqnr_db, -20 * std::log10(std::sqrt(5.0) / 5));
  EXPECT_DOUBLE_EQ(metrics.max_abs, 2);
  EXPECT_DOUBLE_EQ(metrics.max_relative, 0.5);
  EXPECT_DOUBLE_EQ(metrics.cosine_distance, 1 - 17 / (std::sqrt(14.0) * 5));
  EXPECT_DOUBLE_EQ(metrics.mean_signed, 3.0 / 7);
  EXPECT_EQ(metrics.num_elements, 4);
  EXPECT_EQ(metrics.num_different_bits, 2);
  EXPECT_EQ(metrics.first_different, 1);
  EXPECT_EQ(metrics.worst, 2);
}

TEST(Compare, EqualTensorsHaveNoError) {
  const HostTensor tensor = random_tensor(1);
  const ErrorMetrics metrics = compare(tensor.view(), tensor.view());
  EXPECT_EQ(metrics.relative_frobenius, 0);
  EXPECT_EQ(metrics.sqnr_db, std::numeric_limits<double>::infinity());
  EXPECT_NEAR(metrics.cosine_distance, 0, 1e-15);
  EXPECT_EQ(metrics.num_different_bits, 0);
  EXPECT_EQ(metrics.first_different, -1);
  EXPECT_EQ(metrics.worst, -1);
}

TEST(Compare, SeesOneWrongElement) {
  const HostTensor reference = random_tensor(2);
  HostTensor result = reference;
  result.set(777, reference.at(777) + 1e-6F);
  const ErrorMetrics metrics = compare(result.view(), reference.view());
  EXPECT_EQ(metrics.num_different_bits, 1);
  EXPECT_EQ(metrics.first_different, 777);
  EXPECT_EQ(metrics.worst, 777);
  const ::testing::AssertionResult same = same_bits(result.view(), reference.view(), "how");
  EXPECT_FALSE(same);
  EXPECT_THAT(same.message(), HasSubstr("first [15, 27]"));
}

TEST(Compare, SeesAWrongSignEvenOfZero) {
  const HostTensor reference = random_tensor(3);
  HostTensor negative = reference;
  for (std::int64_t i = 0; i < negative.size(); ++i) negative.set(i, -reference.at(i));
  const ErrorMetrics metrics = compare(negative.view(), reference.view());
  EXPECT_NEAR(metrics.relative_frobenius, 2, 1e-12);
  EXPECT_NEAR(metrics.cosine_distance, 2, 1e-12);
  // Both negated is no fault.
  EXPECT_EQ(compare(negative.view(), negative.view()).num_different_bits, 0);
  HostTensor zero(DType::kF32, {1});
  HostTensor minus_zero(DType::kF32, {1});
  minus_zero.set(0, -0.0F);
  EXPECT_EQ(compare(zero.view(), minus_zero.view()).num_different_bits, 1);
}

TEST(Compare, SeesSwappedScalesThatACosineCannot) {
  const HostTensor reference = random_tensor(4);
  HostTensor doubled = reference;
  for (std::int64_t i = 0; i < doubled.size(); ++i) doubled.set(i, 2 * reference.at(i));
  ErrorMetrics metrics = compare(doubled.view(), reference.view());
  EXPECT_NEAR(metrics.cosine_distance, 0, 1e-12);
  EXPECT_NEAR(metrics.relative_frobenius, 1, 1e-12);
  // Two rows with each other's scale.
  HostTensor swapped = reference;
  for (std::int64_t col = 0; col < 50; ++col) {
    swapped.set(col, 3 * reference.at(col));
    swapped.set(50 + col, reference.at(50 + col) / 3);
  }
  metrics = compare(swapped.view(), reference.view());
  EXPECT_GT(metrics.relative_frobenius, 0.1);
  EXPECT_EQ(metrics.num_different_bits, 100);
}

TEST(Compare, CountsNotFiniteElementsAndLeavesThemOut) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const float infinity = std::numeric_limits<float>::infinity();
  const float d[] = {nan, nan, infinity, infinity, 1, 2};
  const float r[] = {nan, 1, infinity, -infinity, nan, 2};
  const ErrorMetrics metrics =
      compare(make_view(d, DType::kF32, {6}), make_view(r, DType::kF32, {6}));
  EXPECT_EQ(metrics.num_not_finite, 3);
  EXPECT_EQ(metrics.num_different_bits, 3);
  EXPECT_EQ(metrics.first_different, 1);
  EXPECT_EQ(metrics.relative_frobenius, 0);
  EXPECT_EQ(metrics.max_abs, 0);
}

TEST(Compare, AgainstZerosNumbersAreAbsolute) {
  const float d[] = {3, 4};
  const float r[] = {0, 0};
  const ErrorMetrics metrics =
      compare(make_view(d, DType::kF32, {2}), make_view(r, DType::kF32, {2}));
  EXPECT_EQ(metrics.relative_frobenius, 5);
  EXPECT_EQ(metrics.max_relative, 4);
  EXPECT_EQ(metrics.mean_signed, 7);
  EXPECT_EQ(metrics.cosine_distance, 1);
  EXPECT_EQ(compare(make_view(r, DType::kF32, {2}), make_view(r, DType::kF32, {2})).cosine_distance,
            0);
}

TEST(Compare, FollowsStrides) {
  const HostTensor tensor = random_tensor(5);
  HostTensor columns(DType::kF32, {50, 40});
  for (std::int64_t i = 0; i < 40; ++i) {
    for (std::int64_t j = 0; j < 50; ++j) columns.set(j * 40 + i, tensor.at(i * 50 + j));
  }
  EXPECT_EQ(compare(transposed(TensorView(columns.view()), 0, 1), tensor.view()).num_different_bits,
            0);
  EXPECT_EQ(compare(make_view(static_cast<const void*>(nullptr), DType::kF32, {0, 3}),
                    make_view(static_cast<const void*>(nullptr), DType::kF32, {0, 3}))
                .num_elements,
            0);
}

TEST(Compare, RefusesWhatItCannotCompare) {
  const HostTensor tensor = random_tensor(6);
  const auto refusal = [&](const TensorView& result) -> std::string {
    try {
      (void)compare(result, tensor.view());
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "accepted";
  };
  TensorView view = tensor.view();
  view.shape = {50, 40};
  EXPECT_THAT(refusal(view), HasSubstr("result has shape [50, 40] and reference [40, 50]"));
  view = tensor.view();
  view.dtype = DType::kI32;
  EXPECT_THAT(refusal(view), HasSubstr("result has dtype i32"));
  view = tensor.view();
  view.data = nullptr;
  EXPECT_THAT(refusal(view), HasSubstr("result has elements and no memory"));
  view = tensor.view();
  view.device = {DeviceKind::kCuda, 3};
  EXPECT_THAT(refusal(view), HasSubstr("result is on cuda:3"));
  view = tensor.view();
  view.shape[0] = -1;
  EXPECT_THAT(refusal(view), HasSubstr("an extent of -1"));
}

}  // namespace
}  // namespace octavo::test
