// SPDX-License-Identifier: Apache-2.0
// Every kernel that a plan may choose, not only the one that it does, against the CPU's emulation.
#include <gtest/gtest.h>

#include <atomic>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gemm_launch.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "gpu/gemm_on_gpu.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "naming/kernel_name.hpp"

namespace octavo::test {
namespace {

// More tiles than two consumers on each multiprocessor begin with, ragged edges in M, N and K, and
// fewer K-blocks than some rings have stages.
GemmSpec spec_of(ScaleRecipe recipe, Accumulation accumulation, DType d) {
  return {.m = 2111,
          .n = 2904,
          .k = 400,
          .d = d,
          .recipe = recipe,
          .accumulation = accumulation,
          .seed = 11};
}

// The same scales with neighbouring rows adjacent, which the kernel loads four at a time.
HostTensor by_k_block(const HostTensor& scales, std::int64_t rows) {
  const std::int64_t k_blocks = scales.size() / rows;
  HostTensor result(DType::kF32, {k_blocks, rows});
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t k = 0; k < k_blocks; ++k)
      result.set(k * rows + row, scales.at(row * k_blocks + k));
  }
  return result;
}

void expect_every_candidate_equal(const GemmSpec& spec, bool scales_by_k_block) {
  const cuda::DeviceInfo& gpu = cuda::device_info(0).value();
  GemmData data(spec);
  GemmProblem host = data.problem();
  HostTensor a_scale;
  HostTensor b_scale;
  if (scales_by_k_block) {
    a_scale = by_k_block(data.a_scale, spec.m);
    host.a_scale = transposed(TensorView(a_scale.view()), 0, 1);
    if (spec.recipe == ScaleRecipe::kBlock1d) {
      b_scale = by_k_block(data.b_scale, spec.n);
      host.b_scale = transposed(TensorView(b_scale.view()), 0, 1);
    }
  }
  const DeviceGemm device(host);
  (void)gemm(host, kEmulated);
  const std::vector<cuda::GemmCandidate> candidates =
      cuda::gemm_candidates(device.problem, gpu.num_multiprocessors);
  std::vector<cuda::PreparedGemm> prepared(candidates.size());
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    prepared[i].plan = cuda::plan_gemm(device.problem, gpu.num_multiprocessors);
    prepared[i].plan.config = candidates[i].config;
    prepared[i].kernel = kernel_name(candidates[i].config);
    prepared[i].shared_bytes = gemm_shared_memory(candidates[i].config).total_bytes;
  }
  // The first launch of each compiles it; they share D, which is looked at one by one below.
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
    device.d.fill_bytes(0xFF);  // poison
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
        spec.m += 1;  // a multiple of 4
        if (is_block_scaled(recipe)) expect_every_candidate_equal(spec, true);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::test
