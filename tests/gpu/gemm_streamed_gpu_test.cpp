// SPDX-License-Identifier: Apache-2.0
// Products of few rows: what does and what does not change with their number.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>
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

// A product whose A another writes.
struct Reader {
  std::int64_t rows;
  ScaleRecipe recipe = ScaleRecipe::kBlock;
  int num_splits = 1;
  std::int64_t batch = 0;
  std::int64_t k = 1024;
};

// A is what the kernel before in the stream writes: B may be read before that has ended, A not.
void expect_a_is_not_read_early(const Reader& reader) {
  constexpr std::int64_t kColumns = 1024;  // that are written
  const std::int64_t matrices = std::max<std::int64_t>(reader.batch, 1);
  const auto writer = [&](std::uint64_t seed) {
    return GemmSpec{.m = matrices * reader.rows,
                    .n = kColumns,
                    .k = 512,
                    .d = DType::kE4M3,
                    .recipe = ScaleRecipe::kTensor,
                    .seed = seed};
  };
  GemmData one(writer(1));
  GemmData other(writer(2));
  const DeviceGemm writes_one(one.problem());
  DeviceGemm writes_other(other.problem());
  writes_other.problem.d = writes_one.problem.d;
  GemmData data({.m = reader.rows,
                 .n = 4096,
                 .k = reader.k,
                 .batch = reader.batch,
                 .d = DType::kBF16,
                 .recipe = reader.recipe,
                 .num_splits = reader.num_splits,
                 .seed = 3});
  DeviceGemm reads(data.problem());
  reads.problem.a.data = writes_one.problem.d.data;
  reads.problem.a.strides = {kColumns, 1};
  if (reader.batch > 0) reads.problem.a.strides = {reader.rows * kColumns, kColumns, 1};
  // D of each of the two, from A written while the stream stood still.
  std::vector<std::vector<std::uint8_t>> expected;
  for (const GemmProblem* writes :
       {&std::as_const(writes_one.problem), &std::as_const(writes_other.problem)}) {
    (void)gemm(*writes, {.backend = "cuda"});
    Gpu::instance().synchronize();
    (void)gemm(reads.problem, {.backend = "cuda"});
    Gpu::instance().synchronize();
    expected.push_back(reads.d.bytes());
  }
  ASSERT_NE(expected[0], expected[1]);
  reads.problem.b_is_constant = true;
  constexpr int kRounds = 200;
  for (int round = 0; round < kRounds; ++round) {
    for (int i = 0; i < 2; ++i) {
      (void)gemm((i == 0 ? writes_other : writes_one).problem, {.backend = "cuda"});
      (void)gemm(reads.problem, {.backend = "cuda"});
    }
    // The one that came last.
    if (round % 20 == 0) {
      Gpu::instance().synchronize();
      ASSERT_EQ(reads.d.bytes(), expected[0]) << round;
    }
  }
  (void)gemm(writes_other.problem, {.backend = "cuda"});
  (void)gemm(reads.problem, {.backend = "cuda"});
  Gpu::instance().synchronize();
  EXPECT_EQ(reads.d.bytes(), expected[1]);
}

TEST_F(GemmOnGpu, a_constant_b_is_read_early_and_a_is_not) {
  for (const Reader& reader : {Reader{.rows = 16, .recipe = ScaleRecipe::kTensor},
                               {.rows = 16, .recipe = ScaleRecipe::kTensor, .num_splits = 2},
                               {.rows = 16, .recipe = ScaleRecipe::kTensor, .num_splits = 8},
                               {.rows = 16},
                               {.rows = 48, .num_splits = 2},
                               {.rows = 128},
                               {.rows = 16, .batch = 3},
                               // B's rows are no whole vectors: it is copied by the kernel before.
                               {.rows = 16, .k = 1000}}) {
    SCOPED_TRACE(testing::Message()
                 << reader.rows << " rows, " << to_string(reader.recipe) << ", splits "
                 << reader.num_splits << ", batch " << reader.batch << ", K " << reader.k);
    expect_a_is_not_read_early(reader);
  }
}

}  // namespace
}  // namespace octavo::test
