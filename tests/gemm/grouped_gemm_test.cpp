// SPDX-License-Identifier: Apache-2.0
// Grouped products on the CPU: every group as a product by itself, and nothing else touched.
#include "octavo/grouped_gemm.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "octavo/error.hpp"
#include "support/grouped_data.hpp"

namespace octavo::test {
namespace {

constexpr Execution kEmulated{.backend = "cpu", .numerics = Numerics::kEmulated};

std::string message_of(const GroupedGemmProblem& problem) {
  try {
    (void)grouped_gemm(problem);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

// Both D's whole: rows of no group must be equal, too.
void expect_groups_alone(const GroupedSpec& spec, const Execution& execution) {
  GroupedData together(spec);
  GroupedData alone(spec);
  (void)grouped_gemm(together.problem(), execution);
  for (std::size_t g = 0; g < spec.rows.size(); ++g) {
    (void)gemm(alone.group(static_cast<std::int64_t>(g)), execution);
  }
  EXPECT_EQ(together.d.bytes(), alone.d.bytes()) << to_string(spec);
}

TEST(GroupedGemm, groups_have_the_bits_of_products_alone) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const std::int64_t capacity : {0, 40}) {
      for (const std::int64_t gap : {0, 3}) {
        GroupedSpec spec{.rows = {5, 0, 33, 1},
                         .n = 40,
                         .k = 200,
                         .capacity = capacity,
                         .gap = capacity > 0 ? 0 : gap,
                         .rest = capacity > 0 ? 0 : 2,
                         .recipe = recipe,
                         .bias = gap > 0};
        expect_groups_alone(spec, kEmulated);
        spec.output_mode = OutputMode::kAccumulate;
        spec.scales_by_k_block = true;
        expect_groups_alone(spec, {});
      }
    }
  }
}

// CASES C39, C40, C42: empty groups anywhere, no groups, boundaries at any row; weights that show
// a wrong group at once.
TEST(GroupedGemm, C42_every_row_has_its_groups_weights) {
  for (const std::vector<std::int64_t>& rows : {std::vector<std::int64_t>{128, 130, 65},
                                                {1},
                                                {1, 1, 1, 1},
                                                {0, 5, 0, 0, 128, 1, 0, 3},
                                                {0, 0, 0}}) {
    GroupedSpec spec{.rows = rows, .n = 16, .k = 16, .rest = 4, .recipe = ScaleRecipe::kNone};
    GroupedData data(spec);
    data.a.fill(1);
    data.b.fill(0);
    for (std::int64_t g = 0; g < static_cast<std::int64_t>(rows.size()); ++g) {
      for (std::int64_t i = 0; i < spec.n; ++i) {
        data.b.set((g * spec.n + i) * spec.k + i, static_cast<float>(g + 1));
      }
    }
    data.d.fill(-7);
    (void)grouped_gemm(data.problem(), kEmulated);
    std::int64_t row = 0;
    for (std::size_t g = 0; g < rows.size(); ++g) {
      for (const std::int64_t end = row + rows[g]; row < end; ++row) {
        ASSERT_EQ(data.d.at(row * spec.n), static_cast<float>(g + 1)) << "row " << row;
        ASSERT_EQ(data.d.at(row * spec.n + spec.n - 1), static_cast<float>(g + 1));
      }
    }
    for (; row * spec.n < data.d.size(); ++row) ASSERT_EQ(data.d.at(row * spec.n), -7.0F);
  }
}

TEST(GroupedGemm, C40_no_groups_is_nothing_to_do) {
  GroupedData data({.rows = {}, .n = 16, .k = 32, .rest = 3});
  const std::vector<std::uint8_t> before = data.d.bytes();
  EXPECT_EQ(grouped_gemm(data.problem()).kernel, "none");
  EXPECT_EQ(data.d.bytes(), before);
}

// CASES C45: what lies in rows of no group, and in their scales, does not reach the others.
TEST(GroupedGemm, C45_garbage_in_skipped_rows_stays_there) {
  for (const std::int64_t capacity : {0, 128}) {
    GroupedSpec spec{
        .rows = {7, 1}, .n = 24, .k = 256, .capacity = capacity, .gap = capacity > 0 ? 0 : 9};
    GroupedData clean(spec);
    GroupedData dirty(spec);
    const std::int64_t stride = capacity > 0 ? capacity : 16;
    for (std::int64_t row = 0; row < dirty.a.size() / spec.k; ++row) {
      if (row % stride < spec.rows[static_cast<std::size_t>(row / stride)]) continue;
      for (std::int64_t i = 0; i < spec.k; ++i) {
        dirty.a.bytes()[static_cast<std::size_t>(row * spec.k + i)] = 0x7F;
      }
    }
    (void)grouped_gemm(clean.problem());
    (void)grouped_gemm(dirty.problem());
    EXPECT_EQ(clean.d.bytes(), dirty.d.bytes());
  }
}

TEST(GroupedGemm, lists_in_host_memory_that_break_their_rule_are_refused) {
  GroupedData data({.rows = {3, 4, 5}, .n = 16, .k = 32, .gap = 1});
  GroupedGemmProblem problem = data.problem();
  GroupedData::set_list(data.ends, 1, 2);
  EXPECT_THAT(message_of(problem),
              testing::HasSubstr("grouped_gemm: group_ends[1] is 2; with 15 rows and the group "
                                 "before it ending at 4 it must be from 4 to 15"));
  GroupedData::set_list(data.ends, 1, 16);
  EXPECT_THAT(message_of(problem), testing::HasSubstr("group_ends[1] is 16"));
  GroupedData::set_list(data.ends, 1, 9);
  GroupedData::set_list(data.counts, 2, 7);
  EXPECT_THAT(message_of(problem), testing::HasSubstr("group_rows[2] is 7; the group has room for "
                                                      "6 rows"));
  GroupedData::set_list(data.counts, 2, -1);
  EXPECT_THAT(message_of(problem), testing::HasSubstr("group_rows[2] is -1"));
}

TEST(GroupedGemm, arguments_that_do_not_fit_are_refused_by_name) {
  GroupedData contiguous({.rows = {3, 4}, .n = 16, .k = 32, .bias = true});
  GroupedData masked({.rows = {3, 4}, .n = 16, .k = 32, .capacity = 8});
  const auto refuses = [](GroupedGemmProblem problem, auto change, const char* text) {
    change(problem);
    EXPECT_THAT(message_of(problem), testing::HasSubstr(text));
  };
  using P = GroupedGemmProblem;
  refuses(
      contiguous.problem(), [](P& p) { p.group_ends = {}; }, "group_ends is absent");
  refuses(
      masked.problem(), [](P& p) { p.group_rows = {}; }, "group_rows is absent");
  refuses(
      masked.problem(), [](P& p) { p.group_ends = p.group_rows; }, "group_ends is given");
  refuses(
      contiguous.problem(), [](P& p) { p.group_ends.shape[0] = 1; }, "with 2 groups it needs [2]");
  refuses(
      contiguous.problem(), [](P& p) { p.group_ends.dtype = DType::kF32; },
      "group_ends has dtype f32");
  refuses(
      contiguous.problem(), [](P& p) { p.b.rank = 2; },
      "b has shape [2, 16]; it is [groups, N, K]");
  refuses(
      contiguous.problem(), [](P& p) { p.bias.shape[1] = 15; }, "bias has shape [2, 15]");
  refuses(
      contiguous.problem(), [](P& p) { p.d.shape[1] = 15; }, "grouped_gemm: d has shape");
  refuses(
      contiguous.problem(), [](P& p) { p.a.shape[1] = 31; }, "grouped_gemm: a has shape");
  refuses(
      contiguous.problem(), [](P& p) { p.b_scale.shape[0] = 1; },
      "grouped_gemm: b_scale has shape");
  refuses(
      contiguous.problem(), [](P& p) { p.a_scale = {}; }, "grouped_gemm: a_scale is absent");
  refuses(
      contiguous.problem(), [](P& p) { p.accumulation = Accumulation::kFast; },
      "grouped_gemm: accumulation is fast");
  refuses(
      contiguous.problem(), [](P& p) { p.expected_rows = -1; }, "expected_rows is -1");
  refuses(
      contiguous.problem(), [](P& p) { p.d.data = const_cast<void*>(p.b.data); },
      "d overlaps b in memory");
  refuses(
      masked.problem(), [](P& p) { p.a.shape[0] = p.d.shape[0] = 1; },
      "their first extents must be equal");
  // A bad scale of any group's B.
  contiguous.b_scale.set(1, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(message_of(contiguous.problem()), testing::HasSubstr("b_scale[1, 0, 0] is nan"));
}

TEST(FusedGemm, products_have_the_bits_of_products_alone) {
  std::vector<GemmData> together;
  for (const GemmSpec& spec :
       {GemmSpec{.m = 5, .n = 24, .k = 130, .recipe = ScaleRecipe::kBlock},
        GemmSpec{.m = 1, .n = 7, .k = 64, .d = DType::kBF16, .recipe = ScaleRecipe::kRow},
        GemmSpec{.m = 3, .n = 9, .k = 0}, GemmSpec{.m = 0, .n = 9, .k = 16}}) {
    together.emplace_back(spec);
  }
  std::vector<GemmData> alone = together;
  std::vector<GemmProblem> problems;
  for (GemmData& data : together) problems.push_back(data.problem());
  const FusedGemmReport report = fused_gemm(problems, kEmulated);
  EXPECT_EQ(report.backend, "cpu");
  for (std::size_t i = 0; i < alone.size(); ++i) {
    (void)gemm(alone[i].problem(), kEmulated);
    EXPECT_EQ(together[i].d.bytes(), alone[i].d.bytes()) << i;
  }
  EXPECT_TRUE(fused_gemm({}).kernels.empty());
}

TEST(FusedGemm, problems_that_disagree_are_refused_by_place) {
  GemmData first({.m = 4, .n = 16, .k = 16});
  GemmData second({.m = 16, .n = 4, .k = 16});
  const auto message = [&](const std::vector<GemmProblem>& problems) -> std::string {
    try {
      (void)fused_gemm(problems);
    } catch (const Error& error) {
      return error.what();
    }
    return "no error";
  };
  GemmProblem wrong = second.problem();
  wrong.d.shape[0] = 15;
  EXPECT_THAT(message({first.problem(), wrong}),
              testing::HasSubstr("fused_gemm: problems[1]: d has shape"));
  GemmProblem reads = second.problem();
  reads.d = transposed(first.problem().d, 0, 1);
  EXPECT_THAT(message({first.problem(), reads}),
              testing::HasSubstr("problems[0].d overlaps problems[1].d in memory"));
  // Columns of one buffer side by side.
  GemmProblem left = first.problem();
  GemmProblem right = first.problem();
  left.b.shape[0] = right.b.shape[0] = 8;
  left.d.shape[1] = right.d.shape[1] = 8;
  right.d.data = static_cast<float*>(right.d.data) + 8;
  EXPECT_EQ(message({left, right}), "no error");
}

}  // namespace
}  // namespace octavo::test
