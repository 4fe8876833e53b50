// SPDX-License-Identifier: Apache-2.0
// Plans are remembered for what they depend on, and for nothing else. No GPU is needed.
#include "cuda/prepared_gemm.hpp"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace octavo::cuda {
namespace {

DeviceInfo h200(int ordinal = 0) {
  DeviceInfo device;
  device.ordinal = ordinal;
  device.num_multiprocessors = 132;
  return device;
}

MutableTensorView view_of(DType dtype, std::int64_t rows, std::int64_t cols,
                          std::uintptr_t address = std::uintptr_t{1} << 20U) {
  return make_view(reinterpret_cast<void*>(address), dtype, {rows, cols}, {DeviceKind::kCuda, 0});
}

GemmProblem row_problem() {
  GemmProblem problem;
  problem.a = view_of(DType::kE4M3, 64, 256);
  problem.b = view_of(DType::kE4M3, 512, 256);
  problem.d = view_of(DType::kBF16, 64, 512);
  problem.recipe = ScaleRecipe::kRow;
  problem.a_scale = make_view(problem.a.data, DType::kF32, {64}, problem.a.device);
  problem.b_scale = make_view(problem.a.data, DType::kF32, {512}, problem.a.device);
  return problem;
}

TEST(PreparedGemm, is_the_same_for_other_memory_of_the_same_alignment) {
  const auto first = prepared_gemm(h200(), row_problem());
  GemmProblem problem = row_problem();
  constexpr std::uintptr_t kElsewhere = std::uintptr_t{1} << 30U;
  problem.a.data = reinterpret_cast<const void*>(kElsewhere);
  problem.d.data = reinterpret_cast<void*>(kElsewhere + 16);
  EXPECT_EQ(prepared_gemm(h200(), problem), first);
  EXPECT_EQ(first->plan.workspace_bytes(), 0U);
  EXPECT_FALSE(first->kernel.empty());
}

TEST(PreparedGemm, is_the_same_however_scales_lie) {
  const auto first = prepared_gemm(h200(), row_problem());
  GemmProblem problem = row_problem();
  problem.a_scale.dtype = DType::kUE8M0;
  problem.b_scale.data = static_cast<const char*>(problem.b_scale.data) + 4;
  problem.b_scale.strides[0] = 2;
  EXPECT_EQ(prepared_gemm(h200(), problem), first);
}

TEST(PreparedGemm, differs_if_block_scales_must_be_copied) {
  GemmProblem problem = row_problem();
  problem.recipe = ScaleRecipe::kBlock;
  problem.a_scale = view_of(DType::kF32, 64, 2);
  problem.b_scale = view_of(DType::kF32, 4, 2);
  std::set<std::shared_ptr<const PreparedGemm>> seen{prepared_gemm(h200(), problem)};
  problem.a_scale.strides = {1, 64};
  EXPECT_TRUE(seen.insert(prepared_gemm(h200(), problem)).second);
  problem.a_scale.strides = {1, 128};
  EXPECT_FALSE(seen.insert(prepared_gemm(h200(), problem)).second);
  problem.a_scale.dtype = DType::kUE8M0;
  EXPECT_TRUE(seen.insert(prepared_gemm(h200(), problem)).second);
}

TEST(PreparedGemm, differs_in_everything_that_a_plan_depends_on) {
  const std::vector<std::function<void(GemmProblem&)>> changes = {
      [](GemmProblem&) {},
      [](GemmProblem& p) { p.a.data = static_cast<const char*>(p.a.data) + 1; },
      [](GemmProblem& p) { p.b.data = static_cast<const char*>(p.b.data) + 8; },
      [](GemmProblem& p) { p.d.data = static_cast<char*>(p.d.data) + 2; },
      [](GemmProblem& p) { p.a.strides[0] = 257; },
      [](GemmProblem& p) {
        p.b.strides = {1, 512};
      },
      [](GemmProblem& p) {
        p.d.strides = {1, 64};
      },
      [](GemmProblem& p) { p.a.shape[0] = p.d.shape[0] = p.a_scale.shape[0] = 65; },
      [](GemmProblem& p) { p.b.shape[0] = p.d.shape[1] = p.b_scale.shape[0] = 511; },
      [](GemmProblem& p) { p.a.shape[1] = p.b.shape[1] = 255; },
      [](GemmProblem& p) { p.a.dtype = DType::kE5M2; },
      [](GemmProblem& p) { p.b.dtype = DType::kE5M2; },
      [](GemmProblem& p) { p.d.dtype = DType::kF16; },
      [](GemmProblem& p) { p.recipe = ScaleRecipe::kNone; },
      [](GemmProblem& p) { p.accumulation = Accumulation::kFast; },
      [](GemmProblem& p) { p.output_mode = OutputMode::kAccumulate; },
      [](GemmProblem& p) { p.num_splits = 2; },
      [](GemmProblem& p) { p.bias = make_view(p.a.data, DType::kF32, {512}, p.a.device); },
  };
  std::set<std::shared_ptr<const PreparedGemm>> seen;
  for (std::size_t i = 0; i < changes.size(); ++i) {
    GemmProblem problem = row_problem();
    changes[i](problem);
    EXPECT_TRUE(seen.insert(prepared_gemm(h200(), problem)).second) << "change " << i;
    EXPECT_EQ(prepared_gemm(h200(), problem)->plan.workspace_bytes(),
              plan_gemm(problem, h200().num_multiprocessors).workspace_bytes());
  }
  EXPECT_TRUE(seen.insert(prepared_gemm(h200(1), row_problem())).second);
}

TEST(PreparedGemm, says_what_runs_where_there_is_no_product) {
  GemmProblem problem = row_problem();
  problem.a.shape[1] = problem.b.shape[1] = 0;
  EXPECT_EQ(prepared_gemm(h200(), problem)->kernel, "octavo_finish_output");
  problem.output_mode = OutputMode::kAccumulate;
  EXPECT_EQ(prepared_gemm(h200(), problem)->kernel, "none");
}

// Also more shapes than are kept.
TEST(PreparedGemm, serves_many_threads_and_shapes) {
  const auto work = [] {
    for (std::int64_t m = 1; m <= 5000; ++m) {
      GemmProblem problem = row_problem();
      problem.a.shape[0] = problem.d.shape[0] = problem.a_scale.shape[0] = m;
      ASSERT_EQ(prepared_gemm(h200(), problem)->plan.config.cluster_m,
                plan_gemm(problem, h200().num_multiprocessors).config.cluster_m);
    }
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) threads.emplace_back(work);
}

}  // namespace
}  // namespace octavo::cuda
