// SPDX-License-Identifier: Apache-2.0
// The teaching kernels (kernels/naive) against the CPU. Those on ordinary FP32 units are held to
// twice the error of the CPU's FP32 sums; the one on the tensor core to the emulation's bits.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "cuda/jit/loaded_kernel.hpp"
#include "cuda/launch/tensor_map.hpp"
#include "kernels/naive/naive_gemm_params.hpp"
#include "octavo/gemm.hpp"
#include "octavo/metrics.hpp"
#include "support/bit_comparison.hpp"
#include "support/device_tensor.hpp"
#include "support/gemm_data.hpp"
#include "support/naive_kernels.hpp"

namespace octavo::test {
namespace {

class NaiveOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::driver().ok()) GTEST_SKIP() << cuda::driver().error().what();
    ASSERT_TRUE(cuda::device_info(0).ok()) << cuda::device_info(0).error().what();
  }
};

// D as the kernel leaves it, its bytes.
std::vector<std::uint8_t> run(const NaiveKernel& kernel, const GemmProblem& host) {
  const cuda::DeviceInfo& device = cuda::device_info(0).value();
  const cuda::Driver& api = cuda::driver().value();
  const DeviceTensor a(host.a);
  const DeviceTensor b(host.b);
  const DeviceTensor d(host.d);
  const DeviceTensor a_scale(host.a_scale);
  const DeviceTensor b_scale(host.b_scale);
  NaiveGemmParams params{};
  params.m = static_cast<int>(host.a.shape[0]);
  params.n = static_cast<int>(host.b.shape[0]);
  params.k = static_cast<int>(host.a.shape[1]);
  params.a = static_cast<const unsigned char*>(a.view().data);
  params.b = static_cast<const unsigned char*>(b.view().data);
  params.a_scale = static_cast<const float*>(a_scale.view().data);
  params.b_scale = static_cast<const float*>(b_scale.view().data);
  params.d = static_cast<float*>(d.mutable_view().data);
  if (kernel.name == kWgmmaGemm.name) {
    const auto map = [&](const void* data, int rows, int box_rows) {
      return cuda::make_tensor_map(api, {data, DType::kE4M3, rows, params.k, params.k, box_rows})
          .value();
    };
    params.a_map = map(params.a, params.m, kernel.tile_m);
    params.b_map = map(params.b, params.n, kernel.tile_n);
  }
  const KernelSource source = kernel.source();
  void* const function = cuda::loaded_kernel(
                             device, source.entry, [&] { return source; }, 0)
                             .value();
  const auto blocks = [](int extent, int tile) {
    return static_cast<unsigned>((extent + tile - 1) / tile);
  };
  cuda::LaunchConfig config{};
  config.grid[0] = blocks(params.n, kernel.tile_n);
  config.grid[1] = blocks(params.m, kernel.tile_m);
  config.grid[2] = 1;
  config.block[0] = kernel.block_x;
  config.block[1] = kernel.block_y;
  config.block[2] = 1;
  void* arguments[] = {&params};
  const cuda::ContextScope scope(api, device.context);
  (void)api.check(api.LaunchKernelEx(&config, function, arguments, nullptr), "cuLaunchKernelEx")
      .value();
  Gpu::instance().synchronize();
  return d.bytes();
}

// Sizes around every tile, a last block of K that is short, more than one of each.
std::vector<GemmSpec> specs() {
  std::vector<GemmSpec> specs;
  std::uint64_t seed = 7;
  for (const Data data : {Data::kGaussian, Data::kPositive}) {
    for (const std::int64_t m : {1, 63, 64, 65, 200}) {
      for (const std::int64_t n : {1, 127, 129, 300}) {
        for (const std::int64_t k : {16, 128, 144, 1024}) {
          specs.push_back({.m = m,
                           .n = n,
                           .k = k,
                           .recipe = ScaleRecipe::kBlock,
                           .data = data,
                           .seed = seed++});
        }
      }
    }
  }
  return specs;
}

double error_of(const void* result, const GemmProblem& like, const HostTensor& reference) {
  TensorView view = like.d;
  view.data = result;
  return compare(view, reference.view()).relative_frobenius;
}

TEST_F(NaiveOnGpu, fp32_sums_are_no_worse_than_twice_the_cpus) {
  for (const GemmSpec& spec : specs()) {
    GemmData data(spec);
    GemmProblem problem = data.problem();
    const std::vector<std::uint8_t> naive = run(kNaiveGemm, problem);
    const std::vector<std::uint8_t> tiled = run(kTiledGemm, problem);
    EXPECT_EQ(naive, tiled) << "both add in the same order; "
                            << repeat_line(spec, Numerics::kReference);
    HostTensor reference(DType::kF32, {spec.m, spec.n});
    HostTensor honest(DType::kF32, {spec.m, spec.n});
    problem.d = reference.view();
    (void)gemm(problem, {.backend = "cpu", .numerics = Numerics::kReference});
    problem.d = honest.view();
    (void)gemm(problem, {.backend = "cpu", .numerics = Numerics::kBlocked});
    // One rounding of a block's sum for each of its 128 products, one for each promotion; signs of
    // rounding errors are random, so they add up like the square root of their number.
    const double rounding = std::ldexp(std::sqrt(static_cast<double>(spec.k)) + 8, -24);
    const double bound =
        2 * error_of(std::as_const(honest).view().data, problem, reference) + rounding;
    EXPECT_LE(error_of(naive.data(), problem, reference), bound)
        << repeat_line(spec, Numerics::kReference);
    if (HasFailure()) return;
  }
}

TEST_F(NaiveOnGpu, tensor_core_sums_are_the_emulations_bits) {
  for (const GemmSpec& spec : specs()) {
    GemmData data(spec);
    const GemmProblem problem = data.problem();
    const std::vector<std::uint8_t> bytes = run(kWgmmaGemm, problem);
    (void)gemm(problem, {.backend = "cpu", .numerics = Numerics::kEmulated});
    TensorView got = problem.d;
    got.data = bytes.data();
    EXPECT_TRUE(same_bits(got, problem.d, repeat_line(spec, Numerics::kEmulated)));
    if (HasFailure()) return;
  }
}

// The bound of the FP32 kernels is no empty one: the tensor core's sums of positive data break it.
TEST_F(NaiveOnGpu, fp32_sums_are_not_the_tensor_cores) {
  GemmData data({.m = 64,
                 .n = 128,
                 .k = 1024,
                 .recipe = ScaleRecipe::kBlock,
                 .data = Data::kPositive,
                 .seed = 3});
  const GemmProblem problem = data.problem();
  EXPECT_NE(run(kNaiveGemm, problem), run(kWgmmaGemm, problem));
}

}  // namespace
}  // namespace octavo::test
