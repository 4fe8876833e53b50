// SPDX-License-Identifier: Apache-2.0
// What a call of gemm() costs the calling thread on the "cuda" back end: the first call of a
// kernel in a process, and calls after it, from entry to return. bench/METHOD.md says how to run
// it.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "measure/gpu_stream.hpp"
#include "measure/quantile.hpp"
#include "octavo/octavo.hpp"

namespace octavo::bench {
namespace {

constexpr int kCalls = 10'000;
// The stream's queue must not fill up: a full one would make calls wait for the GPU.
constexpr int kCallsBetweenWaits = 50;
constexpr std::int64_t kN = 4096;
constexpr std::int64_t kK = 4096;

double seconds(std::chrono::steady_clock::time_point begin,
               std::chrono::steady_clock::time_point end) {
  return std::chrono::duration<double>(end - begin).count();
}

// A product whose memory holds zeros and scales that are not looked at: only the call is timed.
class Product {
 public:
  Product(std::int64_t m, ScaleRecipe recipe, bool m_major_scales)
      : memory_(measure::kGpu, static_cast<std::size_t>((m + kN) * kK + 2 * m * kN) + kSlack) {
    char* next = static_cast<char*>(memory_.data());
    const auto take = [&](DType dtype, std::initializer_list<std::int64_t> shape) {
      const MutableTensorView view =
          make_view(static_cast<void*>(next), dtype, shape, measure::kGpu);
      constexpr std::int64_t kAlignment = 256;
      const std::int64_t bytes = view.num_elements() * size_bytes(dtype);
      next += (bytes + kAlignment - 1) / kAlignment * kAlignment;
      return view;
    };
    problem_.a = take(DType::kE4M3, {m, kK});
    problem_.b = take(DType::kE4M3, {kN, kK});
    problem_.d = take(DType::kBF16, {m, kN});
    problem_.recipe = recipe;
    if (recipe == ScaleRecipe::kBlock) {
      constexpr std::int64_t kBlocks = kK / kScaleBlock;
      constexpr std::int64_t kPadded = 4;  // rows of scales at multiples of 16 bytes
      if (m_major_scales) {
        const std::int64_t stride = (m + kPadded - 1) / kPadded * kPadded;
        problem_.a_scale = take(DType::kF32, {kBlocks, stride});
        problem_.a_scale.shape = {m, kBlocks};
        problem_.a_scale.strides = {1, stride};
      } else {
        problem_.a_scale = take(DType::kF32, {m, kBlocks});
      }
      problem_.b_scale = take(DType::kF32, {kN / kScaleBlock, kBlocks});
    } else {
      problem_.a_scale = take(DType::kF32, {recipe == ScaleRecipe::kRow ? m : 1});
      problem_.b_scale = take(DType::kF32, {recipe == ScaleRecipe::kRow ? kN : 1});
    }
  }

  [[nodiscard]] const GemmProblem& problem() const { return problem_; }

 private:
  static constexpr std::size_t kSlack = std::size_t{1} << 20U;

  DeviceMemory memory_;
  GemmProblem problem_;
};

struct Case {
  const char* name;
  std::int64_t m;
  ScaleRecipe recipe;
  bool m_major_scales;
};

void time_calls(const measure::GpuStream& gpu, const Case& one) {
  const Product product(one.m, one.recipe, one.m_major_scales);
  const Execution execution{.backend = "cuda", .stream = gpu.stream()};
  const auto call = [&] {
    const auto begin = std::chrono::steady_clock::now();
    (void)gemm(product.problem(), execution);
    return seconds(begin, std::chrono::steady_clock::now());
  };
  const double first = call();
  gpu.wait();
  std::vector<double> microseconds;
  for (int i = 0; i < kCalls; ++i) {
    microseconds.push_back(call() * 1e6);
    if (i % kCallsBetweenWaits == 0) gpu.wait();
  }
  gpu.wait();
  fmt::print("{:34} first {:8.1f} ms   warm: median {:5.2f} us, p10 {:5.2f} us, p90 {:5.2f} us\n",
             one.name, first * 1e3, measure::quantile(microseconds, 0.5),
             measure::quantile(microseconds, 0.1), measure::quantile(microseconds, 0.9));
}

void run() {
  const measure::GpuStream gpu;
  const GpuDescription description = gpus().front();
  fmt::print("{}, CUDA {}, N = {}, K = {}, bf16 output, {} calls each\n", description.name,
             description.cuda, kN, kK, kCalls);
  // The first case also pays for what a process pays once: NVRTC is opened, the GPU looked up.
  for (const Case& one : {
           Case{"block, M = 1, scales M-major", 1, ScaleRecipe::kBlock, true},
           Case{"block, M = 1, scales row-major", 1, ScaleRecipe::kBlock, false},
           Case{"row, M = 1", 1, ScaleRecipe::kRow, false},
           Case{"tensor, M = 1", 1, ScaleRecipe::kTensor, false},
           Case{"block, M = 4096, scales M-major", 4096, ScaleRecipe::kBlock, true},
       }) {
    time_calls(gpu, one);
  }
}

}  // namespace
}  // namespace octavo::bench

int main() {
  try {
    octavo::bench::run();
  } catch (const std::exception& error) {
    fmt::print(stderr, "gpu_call_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
