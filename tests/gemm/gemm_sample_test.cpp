// SPDX-License-Identifier: Apache-2.0
// Faults that the comparison of products with literal FP64 must see.
#include "gemm/gemm_sample.hpp"

#include <gtest/gtest.h>

namespace octavo::test {
namespace {

TEST(SampledError, SeesSeededFaults) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kRow, ScaleRecipe::kBlock}) {
    const GemmSpec spec{.m = 20, .n = 260, .k = 300, .recipe = recipe};
    GemmData right(spec);
    gemm(right.problem(), on_cpu(Numerics::kReference));
    EXPECT_LE(sampled_error(right.problem()), 1e-7);
    // The loosest bound that a test here uses.
    const double bound = promoted_bound(Numerics::kEmulated, Data::kPositive);

    GemmData swapped_scales = right;
    const float first = swapped_scales.b_scale.at(0);
    swapped_scales.b_scale.set(0, swapped_scales.b_scale.at(1));
    swapped_scales.b_scale.set(1, first);
    EXPECT_GT(sampled_error(swapped_scales.problem()), bound);

    GemmData wrong_sign = right;
    for (std::int64_t i = 0; i < wrong_sign.d.size(); ++i) wrong_sign.d.set(i, -right.d.at(i));
    EXPECT_NEAR(sampled_error(wrong_sign.problem()), 2, 1e-6);

    // Both operands negated is the same product; one is not.
    GemmData negative = right;
    for (std::uint8_t& code : negative.a.bytes()) code ^= 0x80;
    EXPECT_NEAR(sampled_error(negative.problem()), 2, 1e-6);
    for (std::uint8_t& code : negative.b.bytes()) code ^= 0x80;
    EXPECT_LE(sampled_error(negative.problem()), 1e-7);

    GemmData last_row_lost = right;
    for (std::int64_t i = 19 * 260; i < last_row_lost.d.size(); ++i) last_row_lost.d.set(i, 0);
    EXPECT_GT(sampled_error(last_row_lost.problem()), bound);

    GemmData last_column_lost = right;
    for (std::int64_t i = 259; i < last_column_lost.d.size(); i += 260) {
      last_column_lost.d.set(i, 0);
    }
    EXPECT_GT(sampled_error(last_column_lost.problem()), bound);
  }
}

TEST(SampledError, IsNotANumberWhenAnElementIsNot) {
  GemmData data({.m = 4, .n = 4, .k = 32});
  gemm(data.problem(), on_cpu(Numerics::kReference));
  data.d.fill_bytes(0xFF);
  EXPECT_FALSE(sampled_error(data.problem()) <= 1);
}

}  // namespace
}  // namespace octavo::test
