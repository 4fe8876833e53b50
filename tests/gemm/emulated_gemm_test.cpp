// SPDX-License-Identifier: Apache-2.0
// The emulated product: its bits against docs/numerics.md read aloud, its error against FP64.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/gemm.hpp"
#include "octavo/metrics.hpp"
#include "support/bit_comparison.hpp"
#include "support/gemm_data.hpp"
#include "support/test_level.hpp"

namespace octavo::test {
namespace {

constexpr Execution kEmulated{.backend = "cpu", .numerics = Numerics::kEmulated};
constexpr Execution kReference{.backend = "cpu", .numerics = Numerics::kReference};

void expect_literal_bits(const GemmProblem& problem, const HostTensor& d_before,
                         const std::string& repeat) {
  HostTensor before = d_before;
  TensorView before_view = problem.d;
  const std::ptrdiff_t first =
      static_cast<const std::uint8_t*>(problem.d.data) - d_before.bytes().data();
  before_view.data = before.bytes().data() + first;
  gemm(problem, kEmulated);

  const bool batched = problem.d.rank == 3;
  const auto rows = problem.d.shape[static_cast<std::size_t>(problem.d.rank - 2)];
  const auto cols = problem.d.shape[static_cast<std::size_t>(problem.d.rank - 1)];
  const std::int64_t num_batches = batched ? problem.d.shape[0] : 1;
  std::vector<std::int64_t> shape{rows, cols};
  if (batched) shape.insert(shape.begin(), num_batches);
  HostTensor want(problem.d.dtype, shape);
  for (std::int64_t batch = 0; batch < num_batches; ++batch) {
    for (std::int64_t row = 0; row < rows; ++row) {
      for (std::int64_t col = 0; col < cols; ++col) {
        want.set((batch * rows + row) * cols + col,
                 literal_emulated(problem, before_view, batch, row, col));
      }
    }
  }
  EXPECT_TRUE(same_bits(problem.d, want.view(), repeat));
}

template <typename T, std::size_t kCount>
T pick(const T (&choices)[kCount], std::mt19937_64& random) {
  return choices[random() % kCount];
}

GemmSpec random_spec(std::mt19937_64& random) {
  constexpr std::int64_t kExtents[] = {1, 2, 7, 63, 64, 65, 80};
  constexpr std::int64_t kDepths[] = {1, 31, 32, 33, 127, 128, 129, 300, 513};
  constexpr DType kFp8[] = {DType::kE4M3, DType::kE5M2};
  constexpr DType kOutputs[] = {DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3, DType::kE5M2};
  constexpr ScaleRecipe kRecipes[] = {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                      ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};
  GemmSpec spec;
  spec.m = 1 + static_cast<std::int64_t>(random() % 12);
  spec.n = pick(kExtents, random);
  if (random() % 2 == 0) std::swap(spec.m, spec.n);
  spec.k = pick(kDepths, random);
  spec.batch = random() % 4 == 0 ? 2 : 0;
  spec.a = pick(kFp8, random);
  spec.b = pick(kFp8, random);
  spec.d = random() % 2 == 0 ? DType::kF32 : pick(kOutputs, random);
  spec.recipe = pick(kRecipes, random);
  spec.scale = random() % 2 == 0 ? DType::kF32 : DType::kUE8M0;
  if (!is_block_scaled(spec.recipe) && random() % 2 == 0) spec.accumulation = Accumulation::kFast;
  if (!is_fp8(spec.d) && random() % 3 == 0) spec.output_mode = OutputMode::kAccumulate;
  spec.bias = random() % 3 == 0;
  constexpr DType kBiases[] = {DType::kF32, DType::kBF16, DType::kF16};
  spec.bias_dtype = pick(kBiases, random);
  spec.d_scale = is_fp8(spec.d) && random() % 2 == 0;
  spec.num_splits =
      static_cast<int>(1 + random() % static_cast<std::uint64_t>((spec.k + 127) / 128));
  constexpr Data kData[] = {Data::kGaussian, Data::kPositive, Data::kAnyBits};
  spec.data = pick(kData, random);
  spec.seed = random();
  return spec;
}

TEST(EmulatedGemm, EveryModeHasTheDocumentedBits) {
  std::mt19937_64 random(2026);
  const int num_problems = full_level() ? 3000 : 150;
  for (int i = 0; i < num_problems; ++i) {
    const GemmSpec spec = random_spec(random);
    GemmData data(spec);
    expect_literal_bits(data.problem(), data.d, repeat_line(spec, Numerics::kEmulated));
    if (HasFailure()) return;
  }
}

TEST(EmulatedGemm, AnyStridesHaveTheDocumentedBits) {
  GemmData data({.m = 9, .n = 70, .k = 200, .recipe = ScaleRecipe::kBlock1d, .seed = 3});
  HostTensor a_transposed(DType::kE4M3, {200, 9});
  for (std::int64_t i = 0; i < 9; ++i) {
    for (std::int64_t k = 0; k < 200; ++k) a_transposed.set(k * 9 + i, data.a.at(i * 200 + k));
  }
  GemmProblem problem = data.problem();
  problem.a = transposed(TensorView(a_transposed.view()), 0, 1);
  // B backwards in both dimensions, the scales K-major, D with gaps and backwards columns.
  problem.b.data = static_cast<const std::uint8_t*>(problem.b.data) + 70 * 200 - 1;
  problem.b.strides = {-200, -1};
  HostTensor scale_transposed(DType::kF32, {2, 70});
  for (std::int64_t i = 0; i < 140; ++i) scale_transposed.set(i, 0.5F + static_cast<float>(i % 9));
  problem.b_scale = transposed(TensorView(scale_transposed.view()), 0, 1);
  HostTensor d(DType::kF32, {9, 80});
  d.fill(-3.0F);
  problem.d = d.view();
  problem.d.data = static_cast<float*>(problem.d.data) + 74;
  problem.d.shape = {9, 70};
  problem.d.strides = {80, -1};
  expect_literal_bits(problem, d, "strided layouts");
  for (std::int64_t row = 0; row < 9; ++row) {
    for (const std::int64_t col : {0, 4, 75, 79}) EXPECT_EQ(d.at(row * 80 + col), -3.0F);
  }
}

double error_against_reference(const GemmSpec& spec) {
  GemmData emulated(spec);
  gemm(emulated.problem(), kEmulated);
  GemmData reference(spec);
  gemm(reference.problem(), kReference);
  const ErrorMetrics metrics = compare(emulated.d.view(), reference.d.view());
  EXPECT_EQ(metrics.num_not_finite, 0);
  return metrics.relative_frobenius;
}

// Bounds: docs/numerics.md, section "How large the errors are".
TEST(EmulatedGemm, PromotedErrorIsSmallAndFlatInK) {
  for (const ScaleRecipe recipe :
       {ScaleRecipe::kTensor, ScaleRecipe::kRow, ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const std::int64_t k : {128, 1000, 8192}) {
      GemmSpec spec{.m = 16, .n = 48, .k = k, .recipe = recipe};
      EXPECT_LE(error_against_reference(spec), 3e-4) << to_string(recipe) << " K=" << k;
      spec.data = Data::kPositive;
      EXPECT_LE(error_against_reference(spec), 8e-4) << to_string(recipe) << " K=" << k;
    }
  }
}

TEST(EmulatedGemm, CarriedErrorGrowsWithKAndIsABiasOnPositiveData) {
  for (const std::int64_t k : {512, 2048, 8192}) {
    GemmSpec spec{.m = 16, .n = 48, .k = k, .accumulation = Accumulation::kFast};
    const double gaussian = error_against_reference(spec);
    EXPECT_LE(gaussian, 5e-5 * std::sqrt(static_cast<double>(k)));
    spec.data = Data::kPositive;
    const double positive = error_against_reference(spec);
    EXPECT_LE(positive, static_cast<double>(k) / 40'000);
    // Not an FP32 sum under another name: the cut must be seen.
    EXPECT_GE(positive, static_cast<double>(k) / 120'000);
    EXPECT_GE(gaussian, 1e-5 * std::sqrt(static_cast<double>(k)));
  }
}

TEST(EmulatedGemm, SplitsAreTheirOwnPromotionsAddedInOrder) {
  GemmSpec spec{.m = 5, .n = 67, .k = 1024, .accumulation = Accumulation::kFast};
  GemmData whole(spec);
  gemm(whole.problem(), kEmulated);
  spec.num_splits = 3;  // blocks 0-1, 2-4, 5-7 of 8
  GemmData split(spec);
  gemm(split.problem(), kEmulated);
  EXPECT_GT(compare(split.d.view(), whole.d.view()).num_different_bits, 0);
  HostTensor sum(DType::kF32, {5, 67});
  sum.fill(0);
  const std::int64_t begins[] = {0, 256, 640, 1024};
  for (int part = 0; part < 3; ++part) {
    GemmProblem problem = whole.problem();
    for (TensorView* view : {&problem.a, &problem.b}) {
      view->data = static_cast<const std::uint8_t*>(view->data) + begins[part];
      view->shape[1] = begins[part + 1] - begins[part];
    }
    HostTensor out(DType::kF32, {5, 67});
    problem.d = out.view();
    gemm(problem, kEmulated);
    for (std::int64_t i = 0; i < sum.size(); ++i) {
      sum.set(i, part == 0 ? out.at(i) : sum.at(i) + out.at(i));
    }
  }
  EXPECT_TRUE(same_bits(split.d.view(), sum.view(), repeat_line(spec, Numerics::kEmulated)));
}

TEST(EmulatedGemm, SwappingTheOperandsChangesNoBit) {
  for (const ScaleRecipe recipe :
       {ScaleRecipe::kTensor, ScaleRecipe::kRow, ScaleRecipe::kBlock1d}) {
    GemmData data({.m = 33, .n = 65, .k = 384, .b = DType::kE5M2, .recipe = recipe});
    gemm(data.problem(), kEmulated);
    HostTensor swapped(DType::kF32, {65, 33});
    GemmProblem problem = data.problem();
    std::swap(problem.a, problem.b);
    std::swap(problem.a_scale, problem.b_scale);
    problem.d = swapped.view();
    gemm(problem, kEmulated);
    EXPECT_TRUE(
        same_bits(transposed(TensorView(swapped.view()), 0, 1), data.d.view(), to_string(recipe)));
  }
}

}  // namespace
}  // namespace octavo::test
