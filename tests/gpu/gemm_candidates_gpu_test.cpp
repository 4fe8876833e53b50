// SPDX-License-Identifier: Apache-2.0
// Every kernel that a plan may choose, not only the one that it does, against the CPU's emulation.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/gemm_launch.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "gpu/gemm_on_gpu.hpp"

namespace octavo::test {
namespace {

// As if the GPU had few: then a small product, which the emulation is quick with, gives every
// thread block many tiles, and each of two consumers that take turns several.
constexpr int kMultiprocessors = 6;

// Ragged edges in M, N and K.
GemmSpec spec_of(ScaleRecipe recipe, Accumulation accumulation, DType d) {
  return {.m = 811,
          .n = 1104,
          .k = 1000,
          .d = d,
          .recipe = recipe,
          .accumulation = accumulation,
          .seed = 11};
}

// The same scales with neighbouring rows adjacent, which the kernel loads four at a time; what lies
// between the last row and the next multiple of four is poison.
HostTensor by_k_block(const HostTensor& scales, std::int64_t rows) {
  const std::int64_t k_blocks = scales.size() / rows;
  const std::int64_t stride = (rows + 3) / 4 * 4;
  HostTensor result(DType::kF32, {k_blocks, stride});
  result.fill_bytes(0xFF);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < k_blocks; ++k)
      result.set(k * stride + row, scales.at(row * k_blocks + k));
  }
  return result;
}

// As octavo/scale.hpp shapes them.
TensorView view_of(const HostTensor& by_k_block, std::int64_t rows) {
  TensorView view = transposed(by_k_block.view(), 0, 1);
  view.shape[0] = rows;
  return view;
}

void expect_every_candidate_equal(const GemmSpec& spec, bool scales_by_k_block) {
  cuda::DeviceInfo gpu = cuda::device_info(0).value();
  gpu.num_multiprocessors = kMultiprocessors;
  GemmData data(spec);
  GemmProblem host = data.problem();
  HostTensor a_scale;
  HostTensor b_scale;
  if (scales_by_k_block) {
    a_scale = by_k_block(data.a_scale, spec.m);
    host.a_scale = view_of(a_scale, spec.m);
    if (spec.recipe == ScaleRecipe::kBlock1d) {
      b_scale = by_k_block(data.b_scale, spec.n);
      host.b_scale = view_of(b_scale, spec.n);
    }
  }
  const DeviceGemm device(host);
  const std::vector<std::uint8_t> before = device.d.bytes();
  (void)gemm(host, kEmulated);
  const std::vector<cuda::GemmCandidate> candidates =
      cuda::gemm_candidates(device.problem, gpu.num_multiprocessors);
  cuda::GemmPlan plan = cuda::plan_gemm(device.problem, gpu.num_multiprocessors);
  std::vector<cuda::PreparedGemm> prepared(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    plan.config = candidates[i].config;
    cuda::set_plan(plan, prepared[i]);
  }
  // The first launch of each compiles it; they share D, which is set again and looked at one by one
  // below.
  std::atomic<std::size_t> next{0};
  const auto compile = [&] {
    for (std::size_t i = next++; i < prepared.size(); i = next++) {
      EXPECT_TRUE(cuda::launch_gemm(gpu, device.problem, {}, prepared[i]).ok());
    }
  };
  {
    constexpr int kThreads = 8;
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) threads.emplace_back(compile);
  }
  Gpu::instance().synchronize();
  for (const cuda::PreparedGemm& kernel : prepared) {
    device.d.set_bytes(before);  // poison, or what is added to
    ASSERT_TRUE(cuda::launch_gemm(gpu, device.problem, {}, kernel).ok());
    Gpu::instance().synchronize();
    EXPECT_TRUE(
        same_output(device, host, kernel.kernel + "\n" + repeat_line(spec, Numerics::kEmulated)));
  }
}

TEST_F(GemmOnGpu, every_candidate_of_a_plan_gives_the_emulations_bits) {
  for (const ScaleRecipe recipe : kRecipes) {
    for (const Accumulation accumulation : {Accumulation::kPromoted, Accumulation::kFast}) {
      if (is_block_scaled(recipe) && accumulation == Accumulation::kFast) continue;
      for (const DType d : {DType::kF32, DType::kBF16}) {
        GemmSpec spec = spec_of(recipe, accumulation, d);
        expect_every_candidate_equal(spec, false);
        if (is_block_scaled(recipe)) {
          expect_every_candidate_equal(spec, true);  // 811 rows: three behind the last four
          spec.n += 2;
          expect_every_candidate_equal(spec, true);
          spec.scale = DType::kUE8M0;
          expect_every_candidate_equal(spec, false);
        }
        // One K-block, fewer than a ring has stages.
        spec = spec_of(recipe, accumulation, d);
        spec.k = 100;
        spec.output_mode = OutputMode::kAccumulate;
        spec.bias = true;
        expect_every_candidate_equal(spec, false);
        // Few rows, streamed: every width of a tile, clusters of every kind of size, splits of
        // unequal length, with and without something to add.
        spec.k = 1000;
        for (const auto& [m, num_splits] : {std::pair{5, 2}, {16, 1}, {30, 8}, {40, 3}, {130, 4}}) {
          spec.m = m;
          spec.num_splits = num_splits;
          spec.bias = !spec.bias;
          spec.output_mode = spec.bias ? OutputMode::kAccumulate : OutputMode::kOverwrite;
          spec.scale = is_block_scaled(recipe) && m == 40 ? DType::kUE8M0 : DType::kF32;
          expect_every_candidate_equal(spec, false);
        }
      }
    }
  }
}

// Rings of stages that go round several times, of one team and of several, in one thread block and
// in a cluster of them.
TEST_F(GemmOnGpu, every_streamed_candidate_gives_the_emulations_bits_for_a_deep_k) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kTensor, ScaleRecipe::kBlock}) {
    for (const auto& [m, num_splits] :
         {std::pair{3, 4}, {9, 1}, {16, 3}, {20, 8}, {48, 1}, {50, 2}, {64, 6}, {70, 2}, {99, 5}}) {
      const GemmSpec spec{.m = m,
                          .n = 456,
                          .k = 7000,
                          .d = DType::kBF16,
                          .recipe = recipe,
                          .accumulation = recipe == ScaleRecipe::kTensor ? Accumulation::kFast
                                                                         : Accumulation::kPromoted,
                          .num_splits = num_splits,
                          .seed = 12};
      expect_every_candidate_equal(spec, false);
    }
  }
}

}  // namespace
}  // namespace octavo::test
