// SPDX-License-Identifier: Apache-2.0
// Which kernels a quantization takes, and with how many threads. No GPU: nothing is started.
#include "cuda/quantize_launch.hpp"

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace octavo::cuda {
namespace {

constexpr Device kGpu{DeviceKind::kCuda, 0};
constexpr int kMultiprocessors = 132;

// Addresses that nobody reads.
void* at(std::uintptr_t address) { return reinterpret_cast<void*>(address); }
constexpr std::uintptr_t kX = 1U << 20U;
constexpr std::uintptr_t kQ = 1U << 28U;
constexpr std::uintptr_t kScale = 1U << 30U;

QuantizeProblem dense(ScaleGranularity granularity, std::int64_t rows, std::int64_t cols,
                      DType x = DType::kBF16) {
  const ScaleShape scales = scale_shape(granularity, rows, cols);
  QuantizeProblem problem;
  problem.x = make_view(at(kX), x, {rows, cols}, kGpu);
  problem.q = make_view(at(kQ), DType::kE4M3, {rows, cols}, kGpu);
  problem.granularity = granularity;
  problem.scale = make_view(at(kScale), DType::kF32, {scales.rows, scales.cols}, kGpu);
  return problem;
}

QuantizeLaunch only(const QuantizeProblem& problem) {
  const std::vector<QuantizeLaunch> launches = quantize_launches(problem, kMultiprocessors);
  EXPECT_EQ(launches.size(), 1U);
  return launches.empty() ? QuantizeLaunch{} : launches.front();
}

TEST(QuantizeLaunch, rows_are_held_by_a_warp_or_a_thread_block_or_read_twice) {
  EXPECT_EQ(only(dense(ScaleGranularity::kRow, 10, 1024)).config.step, QuantizeStep::kShortRow);
  const QuantizeLaunch row = only(dense(ScaleGranularity::kRow, 10, 7168));
  EXPECT_EQ(row.config.step, QuantizeStep::kRow);
  EXPECT_EQ(row.num_threads, 224);
  EXPECT_EQ(row.num_blocks, 10);
  const QuantizeLaunch longest = only(dense(ScaleGranularity::kRow, 10, 32768));
  EXPECT_EQ(longest.config.step, QuantizeStep::kRow);
  EXPECT_EQ(longest.num_threads, 1024);
  EXPECT_EQ(only(dense(ScaleGranularity::kRow, 10, 32769)).config.step, QuantizeStep::kLongRow);
}

// Every thread block that a kernel is started with holds what it was compiled for.
TEST(QuantizeLaunch, no_launch_has_more_threads_than_its_kernel_was_compiled_for) {
  for (const DType x : {DType::kBF16, DType::kF16, DType::kF32}) {
    for (const ScaleGranularity granularity :
         {ScaleGranularity::kTensor, ScaleGranularity::kRow, ScaleGranularity::kBlock1x128,
          ScaleGranularity::kBlock128x128}) {
      for (std::int64_t cols = 1; cols <= 40000; cols = cols * 3 / 2 + 1) {
        for (const QuantizeLaunch& launch :
             quantize_launches(dense(granularity, 3, cols, x), kMultiprocessors)) {
          EXPECT_LE(launch.num_threads, quantize_threads(launch.config)) << cols;
          EXPECT_EQ(launch.num_threads % kQuantizeWarp, 0) << cols;
          EXPECT_GT(launch.num_blocks, 0) << cols;
          if (launch.config.step != QuantizeStep::kRow) continue;
          EXPECT_GE(std::int64_t{launch.num_threads} * kChunksPerThread * kQuantizeChunk, cols);
        }
      }
    }
  }
}

TEST(QuantizeLaunch, vectors_want_contiguous_aligned_rows_of_both_matrices) {
  const QuantizeProblem aligned = dense(ScaleGranularity::kBlock1x128, 64, 256);
  EXPECT_EQ(only(aligned).config.access, QuantizeAccess::kVectors);
  QuantizeProblem shifted = aligned;
  shifted.x.data = at(kX + 2);
  EXPECT_EQ(only(shifted).config.access, QuantizeAccess::kElements);
  QuantizeProblem odd_rows = aligned;
  odd_rows.q.strides[0] = 260;
  EXPECT_EQ(only(odd_rows).config.access, QuantizeAccess::kElements);
  QuantizeProblem transposed = aligned;
  transposed.x.strides = {1, 64};
  EXPECT_EQ(only(transposed).config.access, QuantizeAccess::kElements);
  // A last chunk that is cut does not matter where rows are padded.
  QuantizeProblem padded = aligned;
  padded.x.shape[1] = padded.q.shape[1] = 251;
  EXPECT_EQ(only(padded).config.access, QuantizeAccess::kVectors);
}

TEST(QuantizeLaunch, tiles_follow_the_scales) {
  QuantizeProblem problem = dense(ScaleGranularity::kBlock1x128, 64, 2048);
  EXPECT_EQ(only(problem).params.has_long_tiles, 1);
  EXPECT_EQ(only(problem).num_blocks, 64 / 8 * 2);
  problem.scale.strides = {1, 64};
  EXPECT_EQ(only(problem).params.has_long_tiles, 0);
  EXPECT_EQ(only(problem).num_blocks, 64 / 16 * 4);
}

TEST(QuantizeLaunch, a_tensor_takes_two_passes_and_a_given_scale_one) {
  QuantizeProblem problem = dense(ScaleGranularity::kTensor, 8192, 4096);
  const std::vector<QuantizeLaunch> launches = quantize_launches(problem, kMultiprocessors);
  ASSERT_EQ(launches.size(), 2U);
  EXPECT_EQ(launches[0].config.step, QuantizeStep::kAmax);
  EXPECT_EQ(launches[1].config.step, QuantizeStep::kTensor);
  EXPECT_EQ(launches[0].num_blocks, launches[1].params.num_partials);
  problem.scale_source = ScaleSource::kGiven;
  EXPECT_EQ(only(problem).config.step, QuantizeStep::kGiven);
}

TEST(QuantizeLaunch, empty_matrices_have_scales_of_rows_and_tensors_alone) {
  EXPECT_EQ(only(dense(ScaleGranularity::kTensor, 0, 128)).config.step, QuantizeStep::kTensor);
  EXPECT_EQ(only(dense(ScaleGranularity::kRow, 5, 0)).config.step, QuantizeStep::kShortRow);
  for (const auto& problem :
       {dense(ScaleGranularity::kRow, 0, 128), dense(ScaleGranularity::kBlock1x128, 5, 0),
        dense(ScaleGranularity::kBlock128x128, 0, 128)}) {
    EXPECT_TRUE(quantize_launches(problem, kMultiprocessors).empty());
  }
}

TEST(QuantizeLaunch, host_memory_is_refused) {
  QuantizeProblem problem = dense(ScaleGranularity::kRow, 5, 128);
  EXPECT_TRUE(quantize_refusals(problem, {}).empty());
  EXPECT_EQ(quantize_refusals(problem, {.numerics = Numerics::kEmulated}).size(), 1U);
  problem.x.device = problem.q.device = {};
  EXPECT_EQ(quantize_refusals(problem, {}).size(), 2U);
}

}  // namespace
}  // namespace octavo::cuda
