// SPDX-License-Identifier: Apache-2.0
// The tuner on a GPU: every candidate checked, the record kept, and used by the next call.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gpu/gemm_on_gpu.hpp"
#include "octavo/tuning.hpp"

namespace octavo::test {
namespace {

TEST_F(GemmOnGpu, tuned_products_keep_their_bits_and_use_their_records) {
  std::vector<GemmData> data;
  for (const ScaleRecipe recipe : kRecipes) {
    for (const std::int64_t m : {5, 64, 300}) {
      for (const bool adds : {false, true}) {
        data.emplace_back(
            GemmSpec{.m = m,
                     .n = 520,
                     .k = 1000,
                     .d = adds ? DType::kF32 : DType::kBF16,
                     .recipe = recipe,
                     .accumulation = recipe == ScaleRecipe::kRow ? Accumulation::kFast
                                                                 : Accumulation::kPromoted,
                     .output_mode = adds ? OutputMode::kAccumulate : OutputMode::kOverwrite,
                     .bias = adds,
                     .num_splits = adds ? 2 : 1,
                     .seed = 70});
      }
    }
  }
  // An output that a kernel of its own writes.
  data.emplace_back(GemmSpec{.m = 64, .n = 520, .k = 1000, .d = DType::kE4M3});
  std::vector<std::unique_ptr<DeviceGemm>> device;
  std::vector<GemmProblem> problems;
  for (GemmData& one : data) {
    device.push_back(std::make_unique<DeviceGemm>(one.problem()));
    problems.push_back(device.back()->problem);
  }
  TuningOptions options;
  options.window_ms = 0.5;
  options.again = true;
  std::size_t last = 0;
  options.on_progress = [&](const TuningProgress& progress) { last = progress.problem; };
  const std::vector<TuningReport> reports = tune(problems, options);
  ASSERT_EQ(reports.size(), problems.size());
  EXPECT_EQ(last, problems.size() - 1);
  for (std::size_t i = 0; i < reports.size(); ++i) {
    EXPECT_EQ(reports[i].outcome, TuningOutcome::kMeasured) << i << ": " << reports[i].why;
    EXPECT_LE(reports[i].record.us, reports[i].record.model_us);
    EXPECT_GE(reports[i].record.num_candidates, 1);
  }
  options.again = false;
  for (const TuningReport& report : tune(problems, options)) {
    EXPECT_EQ(report.outcome, TuningOutcome::kKnown);
  }
  const TuningStatistics before = tuning_statistics();
  for (std::size_t i = 0; i < data.size(); ++i) {
    GemmProblem host = data[i].problem();
    const GemmReport report = gemm(device[i]->problem);
    Gpu::instance().synchronize();
    EXPECT_EQ(report.kernel, reports[i].record.kernel);
    (void)gemm(host, kEmulated);
    EXPECT_TRUE(same_output(*device[i], host, report.kernel));
  }
  EXPECT_EQ(tuning_statistics().records - before.records, problems.size());
  EXPECT_EQ(tuning_statistics().model, before.model);
}

}  // namespace
}  // namespace octavo::test
