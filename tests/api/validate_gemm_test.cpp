// SPDX-License-Identifier: Apache-2.0
// Every rule about a product's arguments and the message of its breach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>

#include "octavo/octavo.hpp"
#include "support/gemm_data.hpp"

namespace octavo::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::int64_t kHuge = std::int64_t{1} << 62;

std::string refusal(const GemmProblem& problem, const Execution& execution = {.backend = "cpu"}) {
  try {
    (void)supports(problem, execution);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_ANY_THROW(gemm(problem, execution));
    EXPECT_ANY_THROW((void)workspace_bytes(problem, execution));
    return error.what();
  }
  return "accepted";
}

// A sound problem with one change.
std::string refusal_of(const GemmSpec& spec, const std::function<void(GemmProblem&)>& change) {
  GemmData data(spec);
  EXPECT_EQ(refusal(data.problem()), "accepted");
  GemmProblem problem = data.problem();
  change(problem);
  return refusal(problem);
}

constexpr GemmSpec kPlain{.m = 6, .n = 10, .k = 256};
constexpr GemmSpec kBlockScaled{.m = 6, .n = 300, .k = 256, .recipe = ScaleRecipe::kBlock};
constexpr GemmSpec kBatched{.m = 6, .n = 10, .k = 256, .batch = 3, .recipe = ScaleRecipe::kRow};

TEST(ValidateGemm, RanksAndAbsence) {
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.a = {}; }), HasSubstr("gemm: a is absent"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.d = {}; }), HasSubstr("gemm: d is absent"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.b.rank = 1; }),
              AllOf(HasSubstr("gemm: b has shape [10]"), HasSubstr("two dimensions")));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.a.rank = 9; }), HasSubstr("a has rank 9"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.bias.rank = -1; }), HasSubstr("bias has rank -1"));
  EXPECT_THAT(refusal_of(kBatched, [](auto& p) { p.b.rank = 2; }),
              HasSubstr("need the same number of dimensions"));
}

TEST(ValidateGemm, Dtypes) {
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.a.dtype = DType::kI32, p.a.shape[1] = 64; }),
              HasSubstr("gemm: a has dtype i32; values are e4m3"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.b.dtype = DType::kUE8M0; }),
              HasSubstr("gemm: b has dtype ue8m0"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.d.dtype = static_cast<DType>(200); }),
              HasSubstr("gemm: d has dtype ?"));
}

TEST(ValidateGemm, Shapes) {
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.b.shape[1] = 128; }),
              AllOf(HasSubstr("a has shape [6, 256] and b [10, 128]"), HasSubstr("transposed")));
  EXPECT_THAT(refusal_of(kPlain,
                         [](auto& p) {
                           p.d.shape = {6, 9};
                         }),
              HasSubstr("d has shape [6, 9]; with M=6 and N=10"));
  EXPECT_THAT(refusal_of(kBatched, [](auto& p) { p.b.shape[0] = 2; }),
              HasSubstr("the batch, must be equal"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.a.shape[0] = -6; }),
              HasSubstr("a has shape [-6, 256]; no extent may be negative"));
}

TEST(ValidateGemm, Overflow) {
  EXPECT_THAT(refusal_of(kPlain,
                         [](auto& p) {
                           p.a.shape = {kHuge, kHuge};
                         }),
              HasSubstr("must fit in 2^63 bytes"));
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.b.strides[0] = kHuge; }),
              HasSubstr("must fit in 2^63 bytes"));
  EXPECT_THAT(
      refusal_of(kPlain,
                 [](auto& p) { p.a.strides[0] = std::numeric_limits<std::int64_t>::min(); }),
      HasSubstr("must fit in 2^63 bytes"));
  // Each operand fits, D does not.
  EXPECT_THAT(refusal_of(kPlain,
                         [](auto& p) {
                           p.a.shape = p.b.shape = {std::int64_t{1} << 40, 1};
                           p.d.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40};
                         }),
              HasSubstr("must fit in 2^63 bytes"));
}

TEST(ValidateGemm, NullData) {
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.a.data = nullptr; }),
              HasSubstr("a has shape [6, 256] and no memory"));
  EXPECT_THAT(refusal_of(kBlockScaled, [](auto& p) { p.b_scale.data = nullptr; }),
              HasSubstr("b_scale has shape [3, 2] and no memory"));
}

TEST(ValidateGemm, C37_mixed_devices_are_both_named) {
  EXPECT_THAT(refusal_of(kPlain,
                         [](auto& p) {
                           p.b.device = {DeviceKind::kCuda, 1};
                         }),
              HasSubstr("gemm: a is on cpu and b is on cuda:1"));
  EXPECT_THAT(refusal_of(kPlain,
                         [](auto& p) {
                           p.a.device = p.d.device = {DeviceKind::kCuda, 0};
                           p.b.device = {DeviceKind::kCuda, 1};
                         }),
              HasSubstr("gemm: a is on cuda:0 and b is on cuda:1"));
  EXPECT_THAT(refusal_of(kBlockScaled,
                         [](auto& p) {
                           p.b_scale.device = {DeviceKind::kCuda, 2};
                         }),
              HasSubstr("gemm: a is on cpu and b_scale is on cuda:2"));
}

TEST(ValidateGemm, OutputElementsAreWrittenOnce) {
  const auto with_strides = [](std::int64_t row, std::int64_t col) {
    return refusal_of(kPlain, [&](auto& p) { p.d.strides = {row, col}; });
  };
  EXPECT_THAT(with_strides(0, 1), HasSubstr("no element may be written twice"));
  EXPECT_THAT(with_strides(10, 0), HasSubstr("no element may be written twice"));
  EXPECT_THAT(with_strides(9, 1), HasSubstr("d has shape [6, 10] and strides [9, 1]"));
  EXPECT_THAT(with_strides(1, 5), HasSubstr("no element may be written twice"));
  EXPECT_EQ(with_strides(1, 6), "accepted");
  // Interleaved without meeting: 5 rows apart is never 9 columns apart within the extents.
  EXPECT_EQ(refusal_of({.m = 2, .n = 3, .k = 8},
                       [](auto& p) {
                         p.d.strides = {3, 2};
                       }),
            "accepted");
  EXPECT_THAT(refusal_of(kBatched, [](auto& p) { p.d.strides[0] = 30; }),
              HasSubstr("no element may be written twice"));
}

TEST(ValidateGemm, OutputOverlapsNoInput) {
  EXPECT_THAT(refusal_of(kPlain, [](auto& p) { p.d.data = const_cast<void*>(p.a.data); }),
              HasSubstr("d overlaps a"));
  EXPECT_THAT(refusal_of({.m = 6, .n = 300, .k = 256, .recipe = ScaleRecipe::kBlock, .bias = true},
                         [](auto& p) { p.bias.data = p.d.data; }),
              HasSubstr("d overlaps bias"));
  // Columns 0-15 and 16-31 of one buffer lie side by side; 15-30 do not.
  std::vector<float> buffer(8 * 32, 1.0F);
  std::vector<float> weights(16 * 16, 1.0F);
  GemmProblem problem;
  problem.a = make_view(buffer.data(), DType::kF32, {8, 16});
  problem.a.strides = {32, 1};
  problem.b = make_view(weights.data(), DType::kF32, {16, 16});
  problem.d = make_view(buffer.data() + 16, DType::kF32, {8, 16});
  problem.d.strides = {32, 1};
  EXPECT_EQ(refusal(problem), "accepted");
  problem.d.data = buffer.data() + 15;
  EXPECT_THAT(refusal(problem), HasSubstr("d overlaps a"));
}

TEST(ValidateGemm, ScalePresence) {
  EXPECT_THAT(
      refusal_of(kBlockScaled, [](auto& p) { p.b_scale = {}; }),
      AllOf(HasSubstr("b_scale is absent"), HasSubstr("[3, 2] (ceil(N/128), ceil(K/128))")));
  EXPECT_THAT(
      refusal_of(kBlockScaled, [](auto& p) { p.recipe = ScaleRecipe::kNone; }),
      AllOf(HasSubstr("a_scale has shape [6, 2] and recipe is none"), HasSubstr("guessed")));
  GemmSpec half = kBlockScaled;
  half.a = DType::kBF16;
  const float one = 1;
  EXPECT_THAT(refusal_of(half,
                         [&](auto& p) {
                           p.a_scale = make_view(&one, DType::kF32, {1, 1});
                         }),
              HasSubstr("a_scale is given and a has dtype bf16"));
}

TEST(ValidateGemm, ElementsAreAlignedToTheirSize) {
  const auto shift = [](auto& view) { view.data = static_cast<char*>(view.data) + 2; };
  EXPECT_THAT(refusal_of(kPlain, [&](auto& p) { shift(p.d); }),
              HasSubstr("gemm: d begins 2 bytes past a multiple of 4; f32 elements must be aligned "
                        "to their size"));
  GemmSpec empty = kPlain;
  empty.n = 0;
  float somewhere = 0;
  EXPECT_EQ(refusal_of(empty,
                       [&](auto& p) {
                         p.d.data = &somewhere;
                         shift(p.d);
                       }),
            "accepted");
}

TEST(ValidateGemm, RecipeNeedsAnFp8Operand) {
  GemmSpec wide = kPlain;
  wide.a = DType::kBF16;
  wide.b = DType::kF32;
  EXPECT_EQ(refusal_of(wide, [](auto&) {}), "accepted");
  EXPECT_THAT(
      refusal_of(wide, [](auto& p) { p.recipe = ScaleRecipe::kRow; }),
      AllOf(HasSubstr("recipe is row, a has dtype bf16 and b f32"), HasSubstr("Use recipe none")));
}

// A view without elements names none twice, whatever its strides are.
TEST(ValidateGemm, EmptyOutputsNeedNoDistinctStrides) {
  GemmSpec empty = kPlain;
  empty.n = 0;
  EXPECT_EQ(refusal_of(empty, [](auto&) {}), "accepted");
  EXPECT_EQ(refusal_of(empty, [](auto& p) { p.d.strides = {0, 0}; }), "accepted");
}

TEST(ValidateGemm, ScaleDtypeAndShape) {
  EXPECT_THAT(refusal_of(kBlockScaled, [](auto& p) { p.a_scale.dtype = DType::kBF16; }),
              HasSubstr("a_scale has dtype bf16; scales are f32 or ue8m0"));
  EXPECT_THAT(refusal_of(kBlockScaled, [](auto& p) { p.b_scale.shape[0] = 2; }),
              HasSubstr("gemm: b_scale has shape [2, 2]; N=300, K=256 with 128x128 scales needs "
                        "[3, 2] (ceil(N/128), ceil(K/128)). See docs/scale_recipes.md."));
  EXPECT_THAT(refusal_of(kBlockScaled, [](auto& p) { p.a_scale.rank = 1; }),
              HasSubstr("needs [6, 2] (M, ceil(K/128))"));
  EXPECT_THAT(refusal_of(kBatched, [](auto& p) { p.a_scale.shape[0] = 1; }),
              HasSubstr("needs [3, 6] or [3, 6, 1]"));
  GemmSpec tensor = kPlain;
  tensor.recipe = ScaleRecipe::kTensor;
  EXPECT_THAT(refusal_of(tensor, [](auto& p) { p.a_scale.rank = 0; }), HasSubstr("needs [1]"));
}

// Shapes that could mean two recipes: the recipe says which, and a shape that fits no reading of it
// is refused.
TEST(ValidateGemm, C31_granularity_is_never_guessed) {
  // [1, 1] with M = 1 and K = 128: a row scale or a 1x128 scale by recipe, never a tensor scale.
  GemmSpec spec{.m = 1, .n = 1, .k = 128, .recipe = ScaleRecipe::kRow};
  const auto one_by_one = [](GemmProblem& p) {
    for (TensorView* scale : {&p.a_scale, &p.b_scale}) {
      scale->rank = 2;
      scale->shape = {1, 1};
      scale->strides = {1, 1};
    }
  };
  EXPECT_EQ(refusal_of(spec, one_by_one), "accepted");
  spec.recipe = ScaleRecipe::kBlock;
  EXPECT_EQ(refusal_of(spec, one_by_one), "accepted");
  spec.recipe = ScaleRecipe::kTensor;
  EXPECT_THAT(refusal_of(spec, one_by_one),
              HasSubstr("a_scale has shape [1, 1]; M=1, K=128 with tensor scales needs [1]"));
  // One scale for a recipe that wants a row of them.
  spec = {.m = 16, .n = 32, .k = 32, .recipe = ScaleRecipe::kRow};
  EXPECT_THAT(refusal_of(spec, [](auto& p) { p.a_scale.shape[0] = 1; }),
              HasSubstr("a_scale has shape [1]; M=16, K=32 with row scales needs [16] or [16, 1]"));
}

TEST(ValidateGemm, C62_scale_values_are_named_with_their_position) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad :
       {0.0F, -0.0F, -1.0F, infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    GemmData data(kBlockScaled);
    data.b_scale.set(5, bad);
    EXPECT_THAT(refusal(data.problem()),
                AllOf(HasSubstr("b_scale[2, 1] is "), HasSubstr("finite and above 0")));
  }
  for (const float good : {1e-45F, 3e38F, 1.0F}) {
    GemmData data(kBlockScaled);
    data.b_scale.set(5, good);
    EXPECT_EQ(refusal(data.problem()), "accepted");
  }
  GemmSpec ue8m0 = kBatched;
  ue8m0.scale = DType::kUE8M0;
  GemmData data(ue8m0);
  data.a_scale.bytes()[8] = 0xFF;
  EXPECT_THAT(refusal(data.problem()), HasSubstr("a_scale[1, 2] is nan"));
}

TEST(ValidateGemm, Modes) {
  EXPECT_THAT(refusal_of(kBlockScaled, [](auto& p) { p.accumulation = Accumulation::kFast; }),
              AllOf(HasSubstr("accumulation is fast and recipe is block"), HasSubstr("promoted")));
  GemmSpec fp8_output = kPlain;
  fp8_output.d = DType::kE4M3;
  EXPECT_THAT(refusal_of(fp8_output, [](auto& p) { p.output_mode = OutputMode::kAccumulate; }),
              HasSubstr("output_mode is accumulate and d has dtype e4m3"));
  GemmData automatic(kPlain);
  GemmProblem chosen = automatic.problem();
  chosen.num_splits = kAutomaticSplits;
  EXPECT_EQ(gemm(chosen, {.backend = "cpu"}).num_splits, 1);
  for (const int splits : {-1, 3}) {
    EXPECT_THAT(refusal_of(kPlain, [&](auto& p) { p.num_splits = splits; }),
                AllOf(HasSubstr("num_splits is " + std::to_string(splits)),
                      HasSubstr("from 1 to 2 (ceil(K/128))")));
  }
}

TEST(ValidateGemm, Bias) {
  GemmSpec spec = kPlain;
  spec.bias = true;
  EXPECT_THAT(refusal_of(spec, [](auto& p) { p.bias.shape[0] = 9; }),
              HasSubstr("bias has shape [9]; with N=10 it needs [10]"));
  EXPECT_THAT(refusal_of(spec, [](auto& p) { p.bias.dtype = DType::kE4M3; }),
              HasSubstr("bias has dtype e4m3; it may be bf16, f16 or f32"));
}

TEST(ValidateGemm, OutputScale) {
  GemmSpec spec = kPlain;
  spec.d = DType::kE4M3;
  spec.d_scale = true;
  EXPECT_THAT(refusal_of(spec, [](auto& p) { p.d_scale.dtype = DType::kUE8M0; }),
              HasSubstr("d_scale has dtype ue8m0 and shape [1]; it must be one f32 value"));
  for (const float bad : {0.0F, -2.0F, std::numeric_limits<float>::infinity(),
                          std::numeric_limits<float>::quiet_NaN(), 1e-45F, 3e38F}) {
    EXPECT_THAT(refusal_of(spec, [&](auto& p) { p.d_scale = make_view(&bad, DType::kF32, {1}); }),
                AllOf(HasSubstr("d_scale is "), HasSubstr("1 / d_scale")));
  }
  const float one = 1;
  EXPECT_THAT(refusal_of(kPlain, [&](auto& p) { p.d_scale = make_view(&one, DType::kF32, {1}); }),
              HasSubstr("d_scale is given and d has dtype f32"));
}

TEST(ValidateGemm, ExecutionRules) {
  GemmData data(kPlain);
  EXPECT_THAT(refusal(data.problem(), {.backend = "cpu", .num_threads = -1}),
              HasSubstr("execution: num_threads is -1"));
  EXPECT_THAT(refusal(data.problem(), {.backend = "cpu", .workspace_bytes = 64}),
              HasSubstr("execution: workspace is null and workspace_bytes is 64"));
}

TEST(ValidateGemm, EmptyOperandsNeedNoMemory) {
  GemmProblem problem;
  problem.a = make_view(static_cast<const void*>(nullptr), DType::kE4M3, {0, 256});
  problem.b = make_view(static_cast<const void*>(nullptr), DType::kE4M3, {0, 256});
  problem.d = make_view(static_cast<void*>(nullptr), DType::kF32, {0, 0});
  EXPECT_EQ(refusal(problem), "accepted");
}

}  // namespace
}  // namespace octavo::test
