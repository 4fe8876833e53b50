// SPDX-License-Identifier: Apache-2.0
// Products of few rows: what does and what does not change with their number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "gpu/gemm_on_gpu.hpp"

namespace octavo::test {
namespace {

// The first `rows` rows of A and D, without a copy.
GemmProblem first_rows(GemmProblem problem, std::int64_t rows) {
  problem.a.shape[0] = problem.d.shape[0] = rows;
  if (problem.a_scale.rank == 2) problem.a_scale.shape[0] = rows;
  return problem;
}

// CASES C35: with num_splits given, a row's bits are the same in a batch of any size, which the
// plan serves by half a dozen kernels.
TEST_F(GemmOnGpu, C35_bits_of_a_row_do_not_depend_on_the_number_of_rows) {
  constexpr std::int64_t kMostRows = 257;
  for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kTensor}) {
    for (const int num_splits : {1, 3}) {
      const GemmSpec spec{.m = kMostRows,
                          .n = 320,
                          .k = 1152,
                          .recipe = recipe,
                          .accumulation = recipe == ScaleRecipe::kTensor ? Accumulation::kFast
                                                                         : Accumulation::kPromoted,
                          .num_splits = num_splits,
                          .data = Data::kPositive,
                          .seed = 38};
      expect_equal_bits(spec);
      GemmData data(spec);
      const DeviceGemm device(data.problem());
      (void)gemm(device.problem, {.backend = "cuda"});
      Gpu::instance().synchronize();
      const std::vector<std::uint8_t> all = device.d.bytes();
      const auto row_bytes = static_cast<std::size_t>(spec.n) * sizeof(float);
      for (std::int64_t rows = 1; rows < kMostRows; ++rows) {
        device.d.set_bytes(std::vector<std::uint8_t>(all.size(), 0xFF));
        const GemmReport report = gemm(first_rows(device.problem, rows), {.backend = "cuda"});
        EXPECT_EQ(report.num_splits, num_splits);
        Gpu::instance().synchronize();
        const std::vector<std::uint8_t> some = device.d.bytes();
        ASSERT_EQ(std::memcmp(some.data(), all.data(), static_cast<std::size_t>(rows) * row_bytes),
                  0)
            << rows << " rows, " << report.kernel;
        ASSERT_EQ(some[static_cast<std::size_t>(rows) * row_bytes], 0xFF) << "a row too many";
      }
    }
  }
}

TEST_F(GemmOnGpu, automatic_splits_are_reported_and_the_cpu_gives_their_bits) {
  int most = 0;
  for (const std::int64_t m : {1, 16, 64, 128}) {
    GemmData data({.m = m, .n = 576, .k = 4200, .recipe = ScaleRecipe::kBlock, .seed = 4});
    GemmProblem host = data.problem();
    host.num_splits = kAutomaticSplits;
    const DeviceGemm device(host);
    const GemmReport report = gemm(device.problem, {.backend = "cuda"});
    Gpu::instance().synchronize();
    host.num_splits = report.num_splits;
    EXPECT_GE(report.num_splits, 1);
    most = std::max(most, report.num_splits);
    EXPECT_EQ(gemm(host, kEmulated).num_splits, report.num_splits);
    EXPECT_TRUE(same_output(device, host, report.kernel));
  }
  EXPECT_GT(most, 1) << "9 tiles of 64 columns on a whole GPU";
}

}  // namespace
}  // namespace octavo::test
