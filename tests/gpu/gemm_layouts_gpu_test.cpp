// SPDX-License-Identifier: Apache-2.0
// Products whose operands the kernel cannot read in place or whose output it cannot write: every
// layout, FP8 outputs, empty products, and offsets beyond 2^31. Random ones: gemm_gpu_test.cpp.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "cuda/gemm_launch.hpp"
#include "cuda/plan/plan_parts.hpp"
#include "gpu/gemm_on_gpu.hpp"

namespace octavo::test {
namespace {

TEST_F(GemmOnGpu, C29_operands_in_every_layout) {
  const GemmSpec spec{.m = 131, .n = 259, .k = 391, .recipe = ScaleRecipe::kBlock};
  GemmData data(spec);
  std::mt19937_64 random(3);
  for (const Layout layout : kLayouts) {
    LaidOut a(spec.a, 0, spec.m, spec.k, layout);
    LaidOut b(spec.b, 0, spec.n, spec.k, layout);
    randomize(a.memory(), Data::kGaussian, random);
    randomize(b.memory(), Data::kGaussian, random);
    for (const Shifts shifts : {Shifts{0, 0}, Shifts{1, 4}, Shifts{15, 8}}) {
      GemmProblem problem = data.problem();
      problem.a = a.view();
      expect_equal_bits(spec, problem, shifts, std::string("; a ") + to_string(layout));
      problem = data.problem();
      problem.b = b.view();
      expect_equal_bits(spec, problem, shifts, std::string("; b ") + to_string(layout));
    }
  }
}

TEST_F(GemmOnGpu, C23_small_and_odd_m) {
  for (const std::int64_t m : {1, 2, 3, 5, 7, 13, 31, 33, 63, 65, 127, 129}) {
    expect_equal_bits({.m = m, .n = 2112, .k = 712, .recipe = ScaleRecipe::kBlock});
  }
}

TEST_F(GemmOnGpu, C27_k_not_a_multiple_of_16_or_128) {
  for (const std::int64_t k : {16, 48, 64, 112, 128, 144, 192, 712, 767}) {
    for (const std::int64_t m : {1, 50}) {
      for (const std::int64_t n : {15, 16, 712}) {
        expect_equal_bits({.m = m, .n = n, .k = k, .recipe = ScaleRecipe::kBlock});
      }
    }
  }
}

// A row of an odd number of bytes, padded to 16 by the caller, needs no copy: what lies between
// must not be read into the result.
TEST_F(GemmOnGpu, C27_odd_k_with_aligned_rows_is_read_in_place_and_its_padding_is_not_used) {
  for (const std::int64_t k : {1, 15, 17, 127, 129, 255, 385}) {
    const GemmSpec spec{.m = 150, .n = 140, .k = k, .recipe = ScaleRecipe::kRow};
    GemmData data(spec);
    const std::int64_t stride = (k + 15) / 16 * 16;
    HostTensor a(spec.a, {spec.m, stride});
    HostTensor b(spec.b, {spec.n, stride});
    constexpr std::uint8_t kNan = 0x7F;
    a.fill_bytes(kNan);
    b.fill_bytes(kNan);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t row = 0; row < spec.m; ++row)
        a.set(row * stride + i, data.a.at(row * k + i));
      for (std::int64_t row = 0; row < spec.n; ++row)
        b.set(row * stride + i, data.b.at(row * k + i));
    }
    GemmProblem problem = data.problem();
    problem.a = a.view();
    problem.a.shape[1] = k;
    problem.b = b.view();
    problem.b.shape[1] = k;
    EXPECT_EQ(workspace_bytes(DeviceGemm(problem).problem, {.backend = "cuda"}), 0U);
    expect_equal_bits(spec, problem);
  }
}

void try_output_layouts(DType type, OutputMode mode) {
  for (const Layout layout : kOutputLayouts) {
    const GemmSpec spec{.m = 133,
                        .n = 71,
                        .k = 272,
                        .d = type,
                        .recipe = ScaleRecipe::kRow,
                        .output_mode = mode,
                        .bias = layout != Layout::kUpwards};
    GemmData data(spec);
    LaidOut d(type, 0, spec.m, spec.n, layout);
    std::mt19937_64 random(4);
    randomize(d.memory(), Data::kGaussian, random);
    GemmProblem problem = data.problem();
    problem.d = d.view();
    expect_equal_bits(spec, problem, {}, std::string("; d ") + to_string(layout));
  }
}

TEST_F(GemmOnGpu, outputs_in_every_layout_and_type) {
  std::vector<std::jthread> threads;
  for (const DType type : {DType::kF32, DType::kBF16, DType::kF16}) {
    for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
      threads.emplace_back(try_output_layouts, type, mode);
    }
  }
}

// As of a product that takes so long that scales which bulk copies do not bring are copied first.
void expect_equal_bits_staged(const GemmSpec& spec, const GemmProblem& host,
                              const std::string& layout) {
  const cuda::DeviceInfo& gpu = cuda::device_info(0).value();
  const DeviceGemm device(host);
  cuda::GemmPlan plan = cuda::plan_gemm(device.problem, gpu.num_multiprocessors);
  constexpr double kLong = 1e6;
  plan.product_microseconds = kLong;
  cuda::plan_scales(spec.recipe, device.problem.a_scale, device.problem.b_scale, spec.n, plan);
  EXPECT_TRUE(plan.a_scale.is_staged || cuda::is_bulk(device.problem.a_scale)) << layout;
  cuda::PreparedGemm prepared;
  cuda::set_plan(plan, prepared);
  const Status launched = cuda::launch_gemm(gpu, device.problem, {}, prepared);
  ASSERT_TRUE(launched.ok()) << launched.error().what();
  Gpu::instance().synchronize();
  (void)gemm(host, kEmulated);
  EXPECT_TRUE(same_output(device, host, prepared.kernel + "; scales copied first" + layout));
}

// Scales of A and B in layouts of their own; more K-blocks than stages, ragged M and N.
TEST_F(GemmOnGpu, scales_in_every_layout_and_type) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const DType type : {DType::kF32, DType::kUE8M0}) {
      for (std::size_t i = 0; i < std::size(kLayouts); ++i) {
        const GemmSpec spec{
            .m = 300, .n = 388, .k = 1300, .recipe = recipe, .scale = type, .seed = 5};
        GemmData data(spec);
        GemmProblem problem = data.problem();
        LaidOut a(type, 0, problem.a_scale.shape[0], problem.a_scale.shape[1], kLayouts[i]);
        LaidOut b(type, 0, problem.b_scale.shape[0], problem.b_scale.shape[1],
                  kLayouts[(i + 2) % std::size(kLayouts)]);
        std::mt19937_64 random(8);
        std::uniform_real_distribution<float> exponent(-2.0F, 2.0F);
        for (LaidOut* scale : {&a, &b}) {
          HostTensor& memory = scale->memory();
          for (std::int64_t k = 0; k < memory.size(); ++k) {
            memory.set(k, std::exp2(exponent(random)));
          }
        }
        problem.a_scale = a.view();
        problem.b_scale = b.view();
        const std::string layout = std::string("; a_scale ") + to_string(kLayouts[i]);
        expect_equal_bits(spec, problem, {}, layout);
        expect_equal_bits_staged(spec, problem, layout);
      }
    }
  }
}

TEST_F(GemmOnGpu, fp8_outputs_round_as_the_cpu_does) {
  for (const DType type : {DType::kE4M3, DType::kE5M2}) {
    for (const Data kind : {Data::kGaussian, Data::kPositive, Data::kAnyBits}) {
      for (const Layout layout : kOutputLayouts) {
        // Positive sums of this K saturate both formats without a scale; small ones are subnormal.
        const GemmSpec spec{.m = 130,
                            .n = layout == Layout::kDense ? 600 : 97,
                            .k = 1025,
                            .d = type,
                            .recipe = ScaleRecipe::kBlock,
                            .bias = kind == Data::kGaussian,
                            .d_scale = layout != Layout::kDense,
                            .data = kind};
        GemmData data(spec);
        if (spec.d_scale) data.d_scale.set(0, kind == Data::kPositive ? 700.0F : 0.3F);
        LaidOut d(type, 0, spec.m, spec.n, layout);
        d.memory().fill_bytes(0xFF);
        GemmProblem problem = data.problem();
        problem.d = d.view();
        expect_equal_bits(spec, problem, {}, std::string("; d ") + to_string(layout));
      }
    }
  }
}

TEST_F(GemmOnGpu, batches_in_every_layout) {
  for (const ScaleRecipe recipe : kRecipes) {
    for (const Layout layout :
         {Layout::kDense, Layout::kPadded, Layout::kTransposed, Layout::kUpwards}) {
      for (const DType type : {DType::kF32, DType::kE4M3}) {
        const GemmSpec spec{
            .m = 37, .n = 45, .k = 133, .batch = 3, .d = type, .recipe = recipe, .seed = 9};
        GemmData data(spec);
        LaidOut a(spec.a, 3, spec.m, spec.k, layout, 3);
        LaidOut b(spec.b, 3, spec.n, spec.k, layout, 16);
        LaidOut d(spec.d, 3, spec.m, spec.n, layout, 1);
        std::mt19937_64 random(5);
        randomize(a.memory(), Data::kGaussian, random);
        randomize(b.memory(), Data::kGaussian, random);
        GemmProblem problem = data.problem();
        problem.a = a.view();
        problem.b = b.view();
        problem.d = d.view();
        expect_equal_bits(spec, problem, {}, std::string("; all ") + to_string(layout));
        problem.b.strides[0] = 0;  // one weight for the whole batch
        expect_equal_bits(spec, problem, {}, std::string("; b shared ") + to_string(layout));
      }
    }
  }
}

// CASES C22: nothing to add up, or nothing to write.
TEST_F(GemmOnGpu, C22_zero_m_or_n_or_k_or_batch) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kBlock}) {
    for (const DType type : {DType::kF32, DType::kBF16, DType::kE4M3}) {
      for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
        if (is_fp8(type) && mode == OutputMode::kAccumulate) continue;
        for (const bool bias : {false, true}) {
          const auto try_extents = [&](std::int64_t m, std::int64_t n, std::int64_t k,
                                       std::int64_t batch) {
            expect_equal_bits({.m = m,
                               .n = n,
                               .k = k,
                               .batch = batch,
                               .d = type,
                               .recipe = recipe,
                               .output_mode = mode,
                               .bias = bias,
                               .d_scale = is_fp8(type)});
          };
          try_extents(33, 65, 0, 0);
          try_extents(33, 65, 0, 2);
          try_extents(0, 65, 48, 0);
          try_extents(33, 0, 48, 0);
          try_extents(0, 0, 0, 0);
          try_extents(0, 65, 48, 2);
        }
      }
    }
  }
  GemmData data({.m = 4, .n = 8, .k = 16, .batch = 1});
  GemmProblem problem = data.problem();
  problem.a.shape[0] = problem.b.shape[0] = problem.d.shape[0] = 0;
  const DeviceGemm device(problem);
  EXPECT_EQ(gemm(device.problem, {.backend = "cuda"}).kernel, "none");
}

// Rows more than 2^31 elements apart, in memory of which only the rows are written.
class FarRows {
 public:
  FarRows(DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t row_stride)
      : near_(dtype, {rows, cols}), row_stride_(row_stride), cols_(cols), dtype_(dtype) {
    const auto bytes =
        static_cast<std::size_t>(((rows - 1) * row_stride + cols) * size_bytes(dtype));
    memory_ = Gpu::instance().allocate(bytes);
    view_ = near_.view();
    view_.strides[0] = row_stride;
    view_.data = reinterpret_cast<void*>(memory_);
    view_.device = {DeviceKind::kCuda, 0};
  }
  FarRows(const FarRows&) = delete;
  FarRows& operator=(const FarRows&) = delete;
  ~FarRows() { Gpu::instance().free(memory_); }

  [[nodiscard]] HostTensor& near() { return near_; }
  [[nodiscard]] MutableTensorView far() const { return view_; }
  void upload() {
    each_row([&](cuda::DevicePointer far, std::uint8_t* near, std::size_t bytes) {
      Gpu::instance().upload(far, near, bytes);
    });
  }
  void download() {
    each_row([&](cuda::DevicePointer far, std::uint8_t* near, std::size_t bytes) {
      Gpu::instance().download(near, far, bytes);
    });
  }

 private:
  template <typename F>
  void each_row(const F& f) {
    const auto bytes = static_cast<std::size_t>(cols_ * size_bytes(dtype_));
    for (std::int64_t row = 0; row < view_.shape[0]; ++row) {
      f(memory_ + static_cast<cuda::DevicePointer>(row * row_stride_ * size_bytes(dtype_)),
        near_.bytes().data() + static_cast<std::size_t>(row) * bytes, bytes);
    }
  }

  HostTensor near_;
  MutableTensorView view_;
  cuda::DevicePointer memory_ = 0;
  std::int64_t row_stride_;
  std::int64_t cols_;
  DType dtype_;
};

TEST_F(GemmOnGpu, more_than_2_to_the_31_elements_apart) {
  constexpr std::int64_t kFar = (std::int64_t{1} << 31) + 16;
  const GemmSpec spec{.m = 3, .n = 3, .k = 200, .recipe = ScaleRecipe::kTensor};
  GemmData data(spec);
  for (const std::int64_t odd : {0, 1}) {  // read in place, and repacked
    for (const DType type : {DType::kF32, DType::kE5M2}) {
      FarRows a(spec.a, spec.m, spec.k, kFar + odd);
      FarRows b(spec.b, spec.n, spec.k, kFar + odd);
      FarRows d(type, spec.m, spec.n, kFar + odd);
      std::mt19937_64 random(6);
      randomize(a.near(), Data::kGaussian, random);
      randomize(b.near(), Data::kGaussian, random);
      a.upload();
      b.upload();
      GemmProblem host = data.problem();
      host.a = a.near().view();
      host.b = b.near().view();
      HostTensor want(type, {spec.m, spec.n});
      host.d = want.view();
      (void)gemm(host, kEmulated);
      const DeviceTensor a_scale(host.a_scale);
      const DeviceTensor b_scale(host.b_scale);
      GemmProblem problem = host;
      problem.a = a.far();
      problem.b = b.far();
      problem.d = d.far();
      problem.a_scale = a_scale.view();
      problem.b_scale = b_scale.view();
      (void)gemm(problem, {.backend = "cuda"});
      Gpu::instance().synchronize();
      d.download();
      EXPECT_TRUE(same_bits(d.near().view(), want.view(), "far rows"));
    }
  }
}

}  // namespace
}  // namespace octavo::test
