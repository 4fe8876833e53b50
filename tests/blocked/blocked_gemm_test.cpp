// SPDX-License-Identifier: Apache-2.0
// The blocked product on every instruction set of this machine against the FP64 reference: shapes
// at every edge, recipes, types, layouts, special values, and bits that must not change.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>

#include "base/thread_pool.hpp"
#include "blocked/random_problem.hpp"
#include "cpu/blocked_kernels.hpp"
#include "cpu/cpu_gemm.hpp"

namespace octavo::testing {
namespace {

using cpu::BlockedKernels;

constexpr DType kValueTypes[] = {DType::kE4M3, DType::kE5M2, DType::kBF16, DType::kF16,
                                 DType::kF32};
constexpr ScaleRecipe kRecipes[] = {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                    ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};

OwnedTensor run(const BlockedKernels& kernels, const RandomProblem& random, int num_threads = 0) {
  OwnedTensor out(random.spec.d, random.spec.batch, random.spec.m, random.spec.n,
                  random.spec.d_layout);
  out.bytes() = random.d.bytes();
  const Status status = cpu::blocked_gemm_on(kernels, random.problem(out), num_threads);
  EXPECT_TRUE(status.ok());
  return out;
}

OwnedTensor run_reference(const RandomProblem& random) {
  OwnedTensor out(random.spec.d, random.spec.batch, random.spec.m, random.spec.n,
                  random.spec.d_layout);
  out.bytes() = random.d.bytes();
  EXPECT_TRUE(cpu::reference_gemm(random.problem(out), 0).ok());
  return out;
}

// Sum of the magnitudes of an element's products and of what is added to it, in D's units.
OwnedTensor run_magnitudes(const RandomProblem& random) {
  RandomProblem positive = random;
  for (OwnedTensor* tensor : {&positive.a, &positive.b, &positive.d, &positive.bias}) {
    if (tensor->bytes().empty()) continue;
    tensor->for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      tensor->set(batch, row, col, std::fabs(tensor->at(batch, row, col)));
    });
  }
  OwnedTensor out(DType::kF32, random.spec.batch, random.spec.m, random.spec.n, Layout::kDense);
  if (random.spec.output_mode == OutputMode::kAccumulate) {
    out.for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      out.set(batch, row, col, positive.d.at(batch, row, col));
    });
  }
  GemmProblem problem = positive.problem(out);
  EXPECT_TRUE(cpu::reference_gemm(problem, 0).ok());
  return out;
}

// Half the distance between neighbours, relative to the value and at the least.
struct Rounding {
  float relative;
  float absolute;
};

Rounding rounding_of(DType dtype) {
  switch (dtype) {
    case DType::kE4M3: return {0x1p-4F, 0x1p-10F};
    case DType::kE5M2: return {0x1p-3F, 0x1p-17F};
    case DType::kBF16: return {0x1p-8F, 0x1p-134F};
    case DType::kF16: return {0x1p-11F, 0x1p-25F};
    default: return {0x1p-24F, 0x1p-149F};
  }
}

// How far a result is from the reference, element by element.
struct Comparison {
  int num_bad = 0;  // elements outside the rigorous bound of K FP32 additions and one rounding to D
  std::string first_bad;
  double squared_error = 0;
  double squared_reference = 0;
};

Comparison compare_to_reference(const ProblemSpec& spec, const OwnedTensor& got,
                                const OwnedTensor& want, const OwnedTensor& magnitudes) {
  const Rounding rounding = rounding_of(spec.d);
  const auto num_roundings = static_cast<float>(spec.k + 2 * spec.num_splits + 4);
  Comparison result;
  got.for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
    const float value = got.at(batch, row, col);
    const float reference = want.at(batch, row, col);
    // D in FP8 may lie a whole step from the reference's when the sum is near a tie.
    const float bound = num_roundings * 0x1p-24F * magnitudes.at(batch, row, col) +
                        2 * std::max(rounding.relative * std::fabs(reference), rounding.absolute);
    const float error = std::fabs(value - reference);
    if (!(error <= bound) && ++result.num_bad == 1) {
      std::ostringstream text;
      text << "element [" << batch << ", " << row << ", " << col << "] is " << value
           << ", reference " << reference << ", bound " << bound;
      result.first_bad = text.str();
    }
    result.squared_error += double{error} * error;
    result.squared_reference += double{reference} * reference;
  });
  return result;
}

// Every element within its bound, nothing outside D written, and the FP32 error of the whole far
// below the bound.
void expect_close(const BlockedKernels& kernels, const ProblemSpec& spec, unsigned seed,
                  int num_threads = 0) {
  const RandomProblem random(spec, seed);
  const OwnedTensor got = run(kernels, random, num_threads);
  EXPECT_EQ(got.gaps(), random.d.gaps());
  const Comparison result =
      compare_to_reference(spec, got, run_reference(random), run_magnitudes(random));
  EXPECT_EQ(result.num_bad, 0) << kernels.instruction_set << ' ' << to_string(spec.a) << " x "
                               << to_string(spec.b) << " -> " << to_string(spec.d) << ' '
                               << to_string(spec.recipe) << " M=" << spec.m << " N=" << spec.n
                               << " K=" << spec.k << " splits=" << spec.num_splits
                               << " seed=" << seed << ": " << result.first_bad;
  if (spec.d == DType::kF32 && spec.k > 0) {
    // FP32 sums of products of random sign lose a few units in the last place, not K of them.
    EXPECT_LE(std::sqrt(result.squared_error), 1e-5 * std::sqrt(result.squared_reference) + 1e-6);
  }
}

class BlockedGemm : public ::testing::TestWithParam<const BlockedKernels*> {};

INSTANTIATE_TEST_SUITE_P(EveryInstructionSet, BlockedGemm,
                         ::testing::ValuesIn(cpu::blocked_kernel_sets()),
                         [](const auto& set) { return std::string(set.param->instruction_set); });

TEST_P(BlockedGemm, ShapesStraddleEveryEdge) {
  constexpr std::int64_t kEdges[] = {1,  2,  3,  5,  7,  8,  15, 16,  17,
                                     31, 32, 33, 48, 63, 64, 65, 127, 129};
  constexpr std::int64_t kDepths[] = {1, 2, 3, 15, 31, 32, 33, 63, 64, 65, 127, 128, 129, 257, 576};
  std::mt19937 random(7);
  const auto pick = [&random](const auto& from) { return from[random() % std::size(from)]; };
  for (const std::int64_t m : kEdges) {
    for (int i = 0; i < 6; ++i) {
      ProblemSpec spec{.m = m, .n = pick(kEdges), .k = pick(kDepths)};
      spec.recipe = pick(kRecipes);
      expect_close(*GetParam(), spec, static_cast<unsigned>(random()));
    }
  }
  for (const std::int64_t k : kDepths) {
    for (const ScaleRecipe recipe : kRecipes) {
      expect_close(*GetParam(), {.m = 1, .n = 67, .k = k, .recipe = recipe}, 11);
      expect_close(*GetParam(), {.m = 19, .n = 35, .k = k, .recipe = recipe}, 12);
    }
  }
}

TEST_P(BlockedGemm, MoreThanOneTileAndChunk) {
  for (const ScaleRecipe recipe : kRecipes) {
    expect_close(*GetParam(), {.m = 1, .n = 300, .k = 4500, .recipe = recipe}, 21);
    expect_close(*GetParam(), {.m = 3, .n = 1100, .k = 2100, .recipe = recipe}, 22);
    expect_close(*GetParam(), {.m = 300, .n = 130, .k = 1200, .recipe = recipe}, 23);
  }
}

// The widest tile over the least K: the panels of its operands are smaller than its scales.
TEST_P(BlockedGemm, WideTileOfShortProducts) {
  for (const ScaleRecipe recipe : kRecipes) {
    for (const std::int64_t m : {1, 2, 5}) {
      expect_close(*GetParam(), {.m = m, .n = 1024, .k = 3, .recipe = recipe}, 24, 1);
    }
  }
}

TEST_P(BlockedGemm, EveryPairOfTypes) {
  for (const DType a : kValueTypes) {
    for (const DType b : kValueTypes) {
      if (!cpu::serves(*GetParam(), a, b)) continue;
      for (const DType d : kValueTypes) {
        for (const std::int64_t m : {std::int64_t{1}, std::int64_t{18}}) {
          ProblemSpec spec{.m = m, .n = 37, .k = 195, .a = a, .b = b, .d = d};
          spec.recipe = is_fp8(a) || is_fp8(b) ? ScaleRecipe::kBlock : ScaleRecipe::kNone;
          expect_close(*GetParam(), spec, 31);
        }
      }
    }
  }
}

TEST_P(BlockedGemm, EveryLayout) {
  constexpr Layout kLayouts[] = {Layout::kPadded, Layout::kTransposed, Layout::kSpread,
                                 Layout::kReversed};
  for (const DType dtype : kValueTypes) {
    if (!cpu::serves(*GetParam(), dtype, dtype)) continue;
    for (const Layout layout : kLayouts) {
      for (const std::int64_t m : {std::int64_t{1}, std::int64_t{34}}) {
        ProblemSpec spec{.m = m, .n = 41, .k = 150, .batch = 2, .a = dtype, .b = dtype};
        spec.recipe = is_fp8(dtype) ? ScaleRecipe::kBlock1d : ScaleRecipe::kNone;
        spec.a_layout = layout;
        spec.b_layout = layout;
        spec.d_layout = layout;
        spec.scale_layout = layout;
        expect_close(*GetParam(), spec, 41);
        spec.a_layout = Layout::kDense;
        spec.d = DType::kBF16;
        expect_close(*GetParam(), spec, 42);
      }
    }
  }
}

TEST_P(BlockedGemm, EpilogueStepsAndSplits) {
  for (const ScaleRecipe recipe : kRecipes) {
    for (const DType d : kValueTypes) {
      ProblemSpec spec{.m = 21, .n = 50, .k = 700, .d = d, .recipe = recipe};
      spec.bias = true;
      spec.d_scale = is_fp8(d);
      for (const int num_splits : {1, 2, 5, 6}) {
        spec.num_splits = num_splits;
        expect_close(*GetParam(), spec, 51);
      }
      if (is_fp8(d)) continue;
      spec.output_mode = OutputMode::kAccumulate;
      expect_close(*GetParam(), spec, 52);
    }
    ProblemSpec spec{.m = 9, .n = 33, .k = 300, .batch = 3, .recipe = recipe};
    spec.scale = DType::kUE8M0;
    expect_close(*GetParam(), spec, 53);
    spec.m = 1;
    expect_close(*GetParam(), spec, 54);
  }
}

TEST_P(BlockedGemm, AllPositiveData) {
  for (const ScaleRecipe recipe : kRecipes) {
    ProblemSpec spec{.m = 17, .n = 40, .k = 5000, .recipe = recipe, .sign = Sign::kPositive};
    expect_close(*GetParam(), spec, 61);
    spec.m = 1;
    expect_close(*GetParam(), spec, 62);
  }
}

TEST_P(BlockedGemm, SmallIntegersAreExact) {
  ProblemSpec spec{.m = 23, .n = 29, .k = 333};
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{23}}) {
    spec.m = m;
    RandomProblem random(spec, 71);
    for (OwnedTensor* tensor : {&random.a, &random.b}) {
      tensor->for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
        tensor->set(batch, row, col, std::round(tensor->at(batch, row, col)));
      });
    }
    EXPECT_EQ(run(*GetParam(), random).bytes(), run_reference(random).bytes());
  }
}

// A matrix of all codes times the unit matrix gives every code's value.
TEST_P(BlockedGemm, EveryCodeIsDecoded) {
  constexpr std::int64_t kNumCodes = 256;
  for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
    for (const std::int64_t m : {std::int64_t{1}, std::int64_t{20}}) {
      RandomProblem random({.m = m, .n = kNumCodes, .k = 130, .a = dtype, .b = dtype}, 81);
      const auto fill = [](OwnedTensor& tensor, const auto& code_at) {
        tensor.for_each([&](std::int64_t, std::int64_t row, std::int64_t col) {
          static_cast<unsigned char*>(tensor.view().data)[tensor.offset(0, row, col)] =
              code_at(row, col);
        });
      };
      // Row r of A is 1 at K = 6 r + 3; row c of B holds code c there and zeros elsewhere, so that
      // NaN and Inf meet no other value.
      const unsigned char one = dtype == DType::kE4M3 ? 0x38 : 0x3C;
      fill(random.a, [&](std::int64_t row, std::int64_t col) {
        return col == 6 * row + 3 ? one : static_cast<unsigned char>(0);
      });
      for (std::int64_t row = 0; row < m; ++row) {
        fill(random.b, [&](std::int64_t n, std::int64_t col) {
          return col == 6 * row + 3 ? static_cast<unsigned char>(n) : static_cast<unsigned char>(0);
        });
        const OwnedTensor got = run(*GetParam(), random);
        for (std::int64_t code = 0; code < kNumCodes; ++code) {
          const auto byte = static_cast<std::uint8_t>(code);
          const float want = dtype == DType::kE4M3 ? E4M3::decode(byte) : E5M2::decode(byte);
          const float value = got.at(0, row, code);
          if (std::isnan(want)) {
            EXPECT_TRUE(std::isnan(value)) << to_string(dtype) << " code " << code;
          } else {
            EXPECT_EQ(value, want) << to_string(dtype) << " code " << code;
          }
        }
      }
    }
  }
}

TEST_P(BlockedGemm, SpecialValuesReachExactlyTheirRowAndColumn) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kRow, ScaleRecipe::kBlock}) {
    ProblemSpec spec{.m = 19, .n = 21, .k = 200, .a = DType::kE5M2, .recipe = recipe};
    spec.sign = Sign::kPositive;
    RandomProblem random(spec, 91);
    const float infinity = std::numeric_limits<float>::infinity();
    // The encoder saturates, so Inf is written as its code.
    static_cast<unsigned char*>(random.a.view().data)[random.a.offset(0, 4, 150)] = 0x7C;
    random.a.set(0, 17, 3, std::numeric_limits<float>::quiet_NaN());
    random.b.set(0, 20, 199, std::numeric_limits<float>::quiet_NaN());
    const OwnedTensor got = run(*GetParam(), random);
    got.for_each([&](std::int64_t, std::int64_t row, std::int64_t col) {
      const float value = got.at(0, row, col);
      if (row == 17 || col == 20) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(value), kCanonicalNan) << row << ", " << col;
      } else if (row == 4) {
        // A zero of B under the Inf gives NaN.
        if (random.b.at(0, col, 150) != 0) {
          EXPECT_EQ(value, infinity) << col;
        }
      } else {
        EXPECT_TRUE(std::isfinite(value)) << row << ", " << col;
      }
    });
  }
}

TEST_P(BlockedGemm, EmptyKWritesZerosOrLeavesD) {
  ProblemSpec spec{.m = 18, .n = 20, .k = 0};
  RandomProblem overwrite(spec, 101);
  const OwnedTensor zeros = run(*GetParam(), overwrite);
  zeros.for_each([&](std::int64_t, std::int64_t row, std::int64_t col) {
    EXPECT_EQ(zeros.at(0, row, col), 0.0F);
  });
  spec.output_mode = OutputMode::kAccumulate;
  RandomProblem accumulate(spec, 102);
  accumulate.d.set(0, 1, 1, -0.0F);
  EXPECT_EQ(run(*GetParam(), accumulate).bytes(), accumulate.d.bytes());
}

TEST_P(BlockedGemm, BitsDoNotDependOnThreadsOrRuns) {
  for (const std::int64_t m : {1, 5, 40, 260}) {
    for (const ScaleRecipe recipe : {ScaleRecipe::kRow, ScaleRecipe::kBlock}) {
      const RandomProblem random({.m = m, .n = 300, .k = 777, .recipe = recipe}, 111);
      const OwnedTensor one = run(*GetParam(), random, 1);
      EXPECT_EQ(one.bytes(), run(*GetParam(), random, 1).bytes());
      for (const int num_threads : {0, 2, 3}) {
        EXPECT_EQ(one.bytes(), run(*GetParam(), random, num_threads).bytes()) << num_threads;
      }
    }
  }
}

TEST_P(BlockedGemm, ARowDoesNotDependOnTheOthers) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kRow, ScaleRecipe::kBlock}) {
    for (const DType b : {DType::kE4M3, DType::kBF16}) {
      const ProblemSpec spec{.m = 270, .n = 70, .k = 4400, .b = b, .recipe = recipe};
      const RandomProblem random(spec, 121);
      const OwnedTensor all = run(*GetParam(), random);
      for (const std::int64_t m : {1, 2, 16, 17, 33, 64}) {
        OwnedTensor some(spec.d, 0, m, spec.n, Layout::kDense);
        GemmProblem problem = random.problem(some);
        problem.a.shape[0] = m;
        if (recipe == ScaleRecipe::kRow || recipe == ScaleRecipe::kBlock) {
          problem.a_scale.shape[0] = m;
        }
        ASSERT_TRUE(cpu::blocked_gemm_on(*GetParam(), problem, 0).ok());
        int num_different = 0;
        some.for_each([&](std::int64_t, std::int64_t row, std::int64_t col) {
          if (some.at(0, row, col) != all.at(0, row, col)) ++num_different;
        });
        EXPECT_EQ(num_different, 0) << "M=" << m;
      }
    }
  }
}

TEST_P(BlockedGemm, Bf16SubnormalsCountAsZeroInBf16KernelsOnly) {
  constexpr float kSubnormal = 0x1p-130F;
  constexpr float kLarge = 0x1p100F;
  for (const std::int64_t m : {std::int64_t{1}, std::int64_t{4}}) {
    ProblemSpec spec{.m = m, .n = 3, .k = 40, .a = DType::kBF16, .b = DType::kBF16};
    RandomProblem random(spec, 131);
    random.a.for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      random.a.set(batch, row, col, kSubnormal);
    });
    random.b.for_each([&](std::int64_t batch, std::int64_t row, std::int64_t col) {
      random.b.set(batch, row, col, kLarge);
    });
    const OwnedTensor got = run(*GetParam(), random);
    EXPECT_EQ(got.at(0, m - 1, 2), GetParam()->bf16 ? 0.0F : 40 * kSubnormal * kLarge);
  }
}

// The comparison that the tests above trust, on results with a known fault.
TEST(BlockedGemmComparison, SeesSeededFaults) {
  const ProblemSpec spec{.m = 20, .n = 40, .k = 600, .recipe = ScaleRecipe::kBlock};
  const RandomProblem random(spec, 141);
  const OwnedTensor want = run_reference(random);
  const OwnedTensor magnitudes = run_magnitudes(random);
  const auto num_bad = [&](const RandomProblem& faulty) {
    return compare_to_reference(spec, run_reference(faulty), want, magnitudes).num_bad;
  };
  EXPECT_EQ(num_bad(random), 0);
  RandomProblem one_sign = random;
  one_sign.a.set(0, 7, 599, -one_sign.a.at(0, 7, 599));
  EXPECT_GT(num_bad(one_sign), 30);
  RandomProblem one_missing = random;
  one_missing.b.set(0, 39, 128, 0);
  EXPECT_GT(num_bad(one_missing), 15);
  RandomProblem swapped_scales = random;
  swapped_scales.a_scale.set(0, 3, 1, random.a_scale.at(0, 3, 2));
  EXPECT_GT(num_bad(swapped_scales), 30);
}

TEST(BlockedGemmDispatch, NamesTheKernelThatServes) {
  GemmProblem problem;
  problem.a = make_view(static_cast<const std::uint8_t*>(nullptr), DType::kE4M3, {2, 64});
  problem.b = make_view(static_cast<const std::uint16_t*>(nullptr), DType::kBF16, {8, 64});
  EXPECT_EQ(cpu::blocked_gemm_kernel(problem), "cpu_blocked_" + cpu::blocked_instruction_set());
  problem.b.dtype = DType::kF16;
  EXPECT_FALSE(cpu::best_kernels(DType::kE4M3, DType::kF16, 2).bf16);
  EXPECT_EQ(cpu::blocked_gemm_kernel(problem),
            "cpu_blocked_" + std::string(cpu::lane_kernels().front()->instruction_set));
}

TEST(BlockedGemmDispatch, SingleRowsHaveAKernelOfTheirOwnWhereOneExists) {
  EXPECT_FALSE(cpu::best_kernels(DType::kE4M3, DType::kE4M3, 2).single_row);
  EXPECT_EQ(cpu::best_kernels(DType::kE4M3, DType::kBF16, 1).single_row,
            cpu::avx512_bf16_row_kernels() != nullptr);
  EXPECT_FALSE(cpu::best_kernels(DType::kF32, DType::kE4M3, 1).single_row);
}

}  // namespace
}  // namespace octavo::testing
