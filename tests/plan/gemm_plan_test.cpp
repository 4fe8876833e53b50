// SPDX-License-Identifier: Apache-2.0
// Plans are made on the host: pointers here are never followed.
#include "cuda/plan/gemm_plan.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>

#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

constexpr int kH200Multiprocessors = 132;
constexpr int kMaxSharedBytes = 232448;  // 227 KiB

TensorView device_matrix(DType dtype, std::int64_t rows, std::int64_t cols) {
  return make_view(reinterpret_cast<const void*>(std::uintptr_t{1} << 20U), dtype, {rows, cols},
                   {DeviceKind::kCuda, 0});
}

GemmProblem block_problem(std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmProblem problem;
  problem.a = device_matrix(DType::kE4M3, m, k);
  problem.b = device_matrix(DType::kE4M3, n, k);
  const TensorView d = device_matrix(DType::kBF16, m, n);
  problem.d = {const_cast<void*>(d.data), d.dtype, d.rank, d.shape, d.strides, d.device};
  problem.recipe = ScaleRecipe::kBlock;
  problem.a_scale = device_matrix(DType::kF32, m, (k + 127) / 128);
  problem.b_scale = device_matrix(DType::kF32, (n + 127) / 128, (k + 127) / 128);
  return problem;
}

TEST(GemmPlan, candidates_fit_into_shared_memory_and_have_names_of_their_own) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    GemmProblem problem = block_problem(4096, 7168, 2048);
    problem.recipe = recipe;
    const auto candidates = gemm_candidates(problem, kH200Multiprocessors);
    ASSERT_FALSE(candidates.empty());
    std::set<std::string> names;
    for (const GemmCandidate& candidate : candidates) {
      EXPECT_LE(gemm_shared_memory(candidate.config).total_bytes, kMaxSharedBytes);
      EXPECT_GE(candidate.config.stages, 3);
      const std::string name = kernel_name(candidate.config);
      EXPECT_TRUE(names.insert(name).second) << name;
      ASSERT_TRUE(parse_kernel_name(name).ok()) << name;
      EXPECT_EQ(parse_kernel_name(name).value(), candidate.config) << name;
    }
  }
}

TEST(GemmPlan, large_products_get_wide_tiles_in_clusters_and_small_ones_fill_the_gpu) {
  const GemmPlan large = plan_gemm(block_problem(4096, 7168, 16384), kH200Multiprocessors);
  EXPECT_EQ(large.config.tile_n, 256);
  EXPECT_EQ(large.config.cluster_m, 2);
  const GemmPlan small = plan_gemm(block_problem(64, 7168, 2048), kH200Multiprocessors);
  EXPECT_EQ(small.config.tile_n, 128);
  EXPECT_EQ(small.config.cluster_m, 1);
}

TEST(GemmPlan, scales_are_staged_only_where_the_kernel_cannot_read_them) {
  GemmProblem problem = block_problem(4096, 7168, 2048);
  GemmPlan plan = plan_gemm(problem, kH200Multiprocessors);
  EXPECT_EQ(plan.a_scale, ScalePath::kStaged);  // row-major: K-blocks are contiguous, rows are not
  EXPECT_EQ(plan.a_scale_bytes, 4096U * 16 * 4);
  EXPECT_EQ(plan.b_scale, ScalePath::kDirect);
  problem.a_scale = transposed(device_matrix(DType::kF32, 16, 4096), 0, 1);
  plan = plan_gemm(problem, kH200Multiprocessors);
  EXPECT_EQ(plan.a_scale, ScalePath::kDirect);
  EXPECT_EQ(plan.workspace_bytes(), 0U);
  problem.b_scale = device_matrix(DType::kUE8M0, 56, 16);
  EXPECT_EQ(plan_gemm(problem, kH200Multiprocessors).b_scale, ScalePath::kStaged);
}

TEST(GemmPlan, refusals_name_the_argument_and_the_rule) {
  GemmProblem problem = block_problem(64, 256, 256);
  EXPECT_TRUE(gemm_refusals(problem, {}).empty());
  const auto only_reason = [](const GemmProblem& p) {
    const std::vector<Reason> reasons = gemm_refusals(p, {});
    return reasons.size() == 1 ? to_string(reasons[0]) : "not one reason";
  };
  problem.a.data = static_cast<const std::uint8_t*>(problem.a.data) + 8;
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("16 bytes"));
  problem = block_problem(64, 256, 264);
  EXPECT_EQ(gemm_refusals(problem, {}).size(), 2U);  // a and b: rows of 264 bytes
  problem = block_problem(64, 256, 256);
  problem.num_splits = 2;
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("num_splits"));
  problem = block_problem(64, 256, 256);
  problem.d.dtype = DType::kE4M3;
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("e4m3"));
  problem = block_problem(64, 256, 256);
  problem.a.device = {};
  EXPECT_THAT(only_reason(problem), testing::HasSubstr("device memory"));
}

TEST(Rasterization, every_cluster_once_and_groups_of_rows_together) {
  for (const int clusters_m : {1, 2, 7, 8, 9, 16, 33}) {
    for (const int clusters_n : {1, 3, 28}) {
      for (const int group : {1, 4, 8}) {
        const Rasterization raster{clusters_m, clusters_n, group};
        std::set<std::pair<int, int>> seen;
        int group_now = 0;
        for (int i = 0; i < raster.num_clusters(); ++i) {
          const TileIndex at = raster.cluster(i);
          ASSERT_GE(at.m, 0);
          ASSERT_LT(at.m, clusters_m);
          ASSERT_GE(at.n, 0);
          ASSERT_LT(at.n, clusters_n);
          EXPECT_TRUE(seen.insert({at.m, at.n}).second);
          EXPECT_GE(at.m / group, group_now);  // a group is finished before the next begins
          group_now = at.m / group;
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::cuda
