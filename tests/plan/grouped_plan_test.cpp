// SPDX-License-Identifier: Apache-2.0
// Which kernel serves many products, decided without a GPU.
#include "cuda/plan/grouped_plan.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <initializer_list>
#include <set>
#include <string>
#include <vector>

#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

constexpr int kH200Multiprocessors = 132;
constexpr Device kGpu{DeviceKind::kCuda, 0};

MutableTensorView view(DType dtype, std::initializer_list<std::int64_t> shape) {
  return make_view(reinterpret_cast<void*>(std::uintptr_t{1} << 20U), dtype, shape, kGpu);
}

GroupedGemmProblem grouped(std::int64_t groups, std::int64_t rows, std::int64_t n = 4096,
                           std::int64_t k = 7168) {
  GroupedGemmProblem problem;
  problem.a = view(DType::kE4M3, {groups * rows, k});
  problem.b = view(DType::kE4M3, {groups, n, k});
  problem.d = view(DType::kBF16, {groups * rows, n});
  problem.recipe = ScaleRecipe::kBlock;
  problem.group_ends = view(DType::kI32, {groups});
  return problem;
}

GemmProblem one(std::int64_t m, std::int64_t n, std::int64_t k, DType d = DType::kBF16) {
  GemmProblem problem;
  problem.a = view(DType::kE4M3, {m, k});
  problem.b = view(DType::kE4M3, {n, k});
  problem.d = view(d, {m, n});
  problem.recipe = ScaleRecipe::kBlock;
  return problem;
}

// What an H200 measured (bench/results, gpu_grouped): the tile of the quickest kernel.
TEST(GroupedPlan, tiles_follow_the_rows_of_a_group) {
  const auto tile_m = [](std::int64_t groups, std::int64_t rows) {
    return plan_grouped(grouped(groups, rows), kH200Multiprocessors).config.tile_m;
  };
  EXPECT_EQ(tile_m(32, 1), 8);
  EXPECT_EQ(tile_m(32, 16), 32);  // room for groups of up to twice as many
  EXPECT_EQ(tile_m(32, 64), 128);
  EXPECT_EQ(tile_m(256, 128), 256);
  EXPECT_EQ(tile_m(4, 8192), 256);
  // A guess in the place of rows / groups.
  GroupedGemmProblem problem = grouped(32, 4096);
  problem.expected_rows = 1;
  EXPECT_EQ(plan_grouped(problem, kH200Multiprocessors).config.tile_m, 8);
}

TEST(GroupedPlan, candidates_fit_and_have_names_of_their_own) {
  for (const ScaleRecipe recipe :
       {ScaleRecipe::kTensor, ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const std::int64_t rows : {1, 10, 40, 100, 5000}) {
      GroupedGemmProblem problem = grouped(16, rows);
      problem.recipe = recipe;
      std::set<std::string> names;
      for (const GemmCandidate& candidate : grouped_candidates(problem, kH200Multiprocessors)) {
        EXPECT_EQ(candidate.config.grouping, Grouping::kRows);
        EXPECT_LE(gemm_shared_memory(candidate.config).total_bytes, 227 * 1024);
        const std::string name = kernel_name(candidate.config);
        EXPECT_TRUE(names.insert(name).second) << name;
        EXPECT_EQ(parse_kernel_name(name).value(), candidate.config);
      }
      EXPECT_FALSE(names.empty());
    }
  }
}

TEST(GroupedPlan, what_no_kernel_serves_is_refused_with_reasons) {
  const auto reason = [](const GroupedGemmProblem& problem) -> std::string {
    const std::vector<Reason> reasons = grouped_refusals(problem, {});
    return reasons.empty() ? "" : reasons.back().kind + " " + reasons.back().field;
  };
  EXPECT_EQ(reason(grouped(4, 10)), "");
  GroupedGemmProblem problem = grouped(4, 10);
  problem.d.dtype = DType::kE4M3;
  EXPECT_EQ(reason(problem), "dtype d");
  problem = grouped(4, 10);
  problem.d = transposed(problem.d, 0, 1);
  problem.d.shape = {40, 4096};
  EXPECT_EQ(reason(problem), "layout d");
  problem = grouped(4, 10);
  problem.b.strides[0] = 0;
  EXPECT_EQ(reason(problem), "layout b");
  problem = grouped(4, 10, 64, 0);
  EXPECT_EQ(reason(problem), "layout a");
  problem = grouped(4, 10);
  problem.a.dtype = DType::kBF16;
  EXPECT_EQ(reason(problem), "dtype a");
}

TEST(FusedPlan, products_of_a_kind_share_a_launch) {
  std::vector<GemmProblem> problems = {one(64, 4096, 4096), one(64, 512, 4096), one(0, 64, 64),
                                       one(64, 100, 4096, DType::kF32), one(7, 64, 128)};
  problems.push_back(one(64, 64, 100));  // rows of A that TMA cannot read are copied first
  const std::vector<FusedLaunch> launches = plan_fused(problems, kH200Multiprocessors);
  ASSERT_EQ(launches.size(), 3U);
  EXPECT_EQ(launches[0].problems, (std::vector<std::size_t>{0, 1, 4}));
  EXPECT_EQ(launches[0].plan.config.grouping, Grouping::kProducts);
  EXPECT_EQ(launches[1].problems, (std::vector<std::size_t>{3}));
  EXPECT_EQ(launches[1].plan.config.grouping, Grouping::kNone);
  EXPECT_EQ(launches[2].problems, (std::vector<std::size_t>{5}));
  EXPECT_EQ(launches[2].plan.a.path, OperandPath::kRepacked);
  // A D that TMA cannot store is not joined with one that it can.
  EXPECT_EQ(
      plan_fused(std::vector{one(64, 64, 256), one(64, 61, 256)}, kH200Multiprocessors).size(), 2U);
  // More than a launch has arguments for.
  const std::vector<GemmProblem> many(50, one(16, 128, 256));
  EXPECT_EQ(plan_fused(many, kH200Multiprocessors).size(), 2U);
}

}  // namespace
}  // namespace octavo::cuda
