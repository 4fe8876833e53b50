// SPDX-License-Identifier: Apache-2.0
// Warm-up for a GPU that is only described: it takes NVRTC and no GPU.
#include "octavo/warm_up.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "cuda/jit/nvrtc_compiler.hpp"
#include "octavo/error.hpp"
#include "octavo/explain.hpp"

namespace octavo {
namespace {

// Never followed.
MutableTensorView unplaced(DType dtype, std::initializer_list<std::int64_t> shape,
                           std::uintptr_t address) {
  return make_view(reinterpret_cast<void*>(address), dtype, shape, {DeviceKind::kCuda, 0});
}

GemmProblem row_product(std::int64_t m, std::int64_t n, std::int64_t k) {
  constexpr std::uintptr_t kInput = 1U << 20U;
  GemmProblem problem;
  problem.a = unplaced(DType::kE4M3, {m, k}, kInput);
  problem.b = unplaced(DType::kE4M3, {n, k}, kInput);
  problem.d = unplaced(DType::kBF16, {m, n}, std::uintptr_t{1} << 40U);
  problem.recipe = ScaleRecipe::kRow;
  problem.a_scale = unplaced(DType::kF32, {m}, kInput);
  problem.b_scale = unplaced(DType::kF32, {n}, kInput);
  problem.accumulation = Accumulation::kFast;
  return problem;
}

GpuDescription h200() {
  GpuDescription gpu;
  gpu.name = "NVIDIA H200";
  gpu.compute_major = 9;
  gpu.num_multiprocessors = 132;
  gpu.clock_mhz = 1980;
  return gpu;
}

class WarmUp : public testing::Test {
 protected:
  void SetUp() override {
    if (const Result<std::string> nvrtc = nvrtc_description(); !nvrtc.ok()) {
      GTEST_SKIP() << nvrtc.error().what();
    }
  }
};

TEST_F(WarmUp, compiles_each_kernel_once_and_reports_every_problem) {
  const GpuDescription gpu = h200();
  std::vector<GemmProblem> problems = {row_product(1024, 6144, 4096), row_product(1024, 6144, 4096),
                                       row_product(1024, 6144, 4096)};
  problems[1].num_splits = 9;                                                         // refused
  problems[2].a = transposed(unplaced(DType::kE4M3, {4096, 1024}, 1U << 20U), 0, 1);  // repacked
  const WarmUpReports reports = warm_up(problems, &gpu);
  ASSERT_EQ(reports.problems.size(), 3U);
  EXPECT_EQ(reports.problems[0].error, "");
  EXPECT_EQ(reports.problems[0].kernel, explain(problems[0], gpu).candidates.front().kernel);
  EXPECT_EQ(reports.problems[1].kernel, "");
  EXPECT_NE(reports.problems[1].error.find("num_splits"), std::string::npos);
  EXPECT_EQ(reports.problems[2].error, "");
  EXPECT_EQ(reports.problems[2].kernel, reports.problems[0].kernel);
  std::set<std::string> names;
  for (const WarmedKernel& kernel : reports.kernels) {
    EXPECT_EQ(kernel.error, "") << kernel.kernel;
    EXPECT_TRUE(names.insert(kernel.kernel).second) << kernel.kernel;
  }
  EXPECT_EQ(names.size(), 2U);
  // A second time nothing is compiled.
  for (const WarmedKernel& kernel : warm_up(problems, &gpu).kernels) {
    EXPECT_LT(kernel.seconds, 0.1) << kernel.kernel;
  }
}

TEST_F(WarmUp, a_problem_that_breaks_a_rule_is_an_error) {
  const GpuDescription gpu = h200();
  std::vector<GemmProblem> problems = {row_product(64, 64, 128)};
  problems[0].b.shape[1] = 64;
  EXPECT_THROW((void)warm_up(problems, &gpu), Error);
  EXPECT_TRUE(warm_up({}, &gpu).problems.empty());
}

TEST(Explain, C72_a_gpu_of_another_architecture_is_refused_with_reasons) {
  GpuDescription gpu = h200();
  EXPECT_TRUE(explain(row_product(64, 64, 128), gpu).refusals.empty());
  constexpr int kOthers[][2] = {{8, 0}, {8, 6}, {8, 9}, {10, 0}, {12, 0}, {12, 1}};
  for (const auto& [major, minor] : kOthers) {
    gpu.compute_major = major;
    gpu.compute_minor = minor;
    const GemmExplanation explanation = explain(row_product(64, 64, 128), gpu);
    ASSERT_EQ(explanation.refusals.size(), 1U) << major << '.' << minor;
    EXPECT_EQ(explanation.refusals.front().kind, "device");
    EXPECT_TRUE(explanation.candidates.empty());
  }
  gpu = h200();
  gpu.num_multiprocessors = 1;
  EXPECT_FALSE(explain(row_product(64, 64, 128), gpu).refusals.empty());
}

TEST(Explain, candidates_are_sorted_and_say_what_the_model_counts) {
  const GemmExplanation explanation = explain(row_product(4096, 7296, 2048), h200());
  EXPECT_EQ(explanation.chosen_by, ChosenBy::kModel);
  ASSERT_GE(explanation.candidates.size(), 2U);
  double last = 0;
  for (const GemmCandidateReport& candidate : explanation.candidates) {
    EXPECT_GE(candidate.estimated_us, last);
    last = candidate.estimated_us;
    EXPECT_GT(candidate.estimated_cycles, 0);
    EXPECT_GT(candidate.waves, 0);
    EXPECT_GT(candidate.shared_bytes, 0);
  }
  EXPECT_FALSE(explanation.steps.empty());
  EXPECT_TRUE(explanation.refused_candidates.empty());
  const GemmExplanation one_row = explain(row_product(100, 28672, 2048), h200());
  ASSERT_FALSE(one_row.refused_candidates.empty());
  for (const RefusedCandidateReport& candidate : one_row.refused_candidates) {
    EXPECT_GT(candidate.cluster_m, 1);
    EXPECT_NE(candidate.reason.find("M=100"), std::string::npos) << candidate.reason;
  }
  for (const GemmCandidateReport& candidate :
       explain(row_product(64, 28672, 2048), h200()).candidates) {
    EXPECT_NE(candidate.kernel.find("streamed"), std::string::npos) << candidate.kernel;
  }
}

}  // namespace
}  // namespace octavo
