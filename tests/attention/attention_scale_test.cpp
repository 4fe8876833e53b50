// SPDX-License-Identifier: Apache-2.0
// Scales of Q, K, V and of the cache: the one a value was written with is the one it is read with.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/attention_case.hpp"

namespace octavo::testing {
namespace {

AttentionSetup descale_setup(DType q_dtype) {
  AttentionSetup setup;
  setup.q_lengths = {7, 1, 30};
  setup.k_lengths = {40, 33, 90};
  setup.query_layout = QueryLayout::kVarlen;
  setup.key_layout = KeyLayout::kVarlen;
  setup.num_q_heads = 16;
  setup.num_kv_heads = 4;
  setup.q_dtype = q_dtype;
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  setup.k_scale = setup.v_scale = AttentionScale::kBatchHead;
  return setup;
}

float k_scale_of(std::int64_t, std::int64_t head) {
  return std::exp2(static_cast<float>(head - 2));
}
float v_scale_of(std::int64_t b, std::int64_t head) { return static_cast<float>(1 + b + head); }

TEST_P(Attention, C60_per_head_descale) {
  AttentionCase made(descale_setup(q_dtype()));
  // The codes stay as they are, so scales change what they mean.
  made.set_scales({}, k_scale_of, v_scale_of);
  const AttentionResult expected = made.by_definition();
  const AttentionResult result = made.run(GetParam());
  EXPECT_LE(relative_error(result.o, expected.o), tolerance());
  // Each of the sequences and heads, not only the largest.
  const auto dim = static_cast<std::size_t>(made.setup().dim_vo);
  for (std::size_t row = 0; row < expected.lse.size(); ++row) {
    const auto part = [&](const std::vector<float>& all) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(row * dim);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(dim));
    };
    EXPECT_LE(relative_error(part(result.o), part(expected.o)), 4 * tolerance()) << "row " << row;
  }
}

TEST_P(Attention, C60_broadcast_scales) {
  AttentionSetup setup = descale_setup(q_dtype());
  AttentionCase dense(setup);
  dense.set_scales(
      {}, [](auto, std::int64_t head) { return k_scale_of(0, head); },
      [](std::int64_t b, auto) { return v_scale_of(b, 0); });
  const AttentionResult expected = dense.run(GetParam());

  const std::vector<float> k_scales{0.25F, 0.5F, 1, 2};
  const std::vector<float> v_scales{1, 2, 3};
  AttentionCase expanded(setup);
  expanded.problem().k_scale = make_view(k_scales.data(), DType::kF32, {3, 4});
  expanded.problem().k_scale.strides = {0, 1};
  expanded.problem().v_scale = make_view(v_scales.data(), DType::kF32, {3, 4});
  expanded.problem().v_scale.strides = {1, 0};
  const AttentionResult result = expanded.run(GetParam());
  EXPECT_TRUE(same_bits(result.o, expected.o));
  EXPECT_TRUE(same_bits(result.lse, expected.lse));
}

TEST(AttentionScales, C60_wrong_shape_is_an_error) {
  AttentionCase made(descale_setup(DType::kBF16));
  const std::vector<float> scales(3 * 16, 1.0F);
  made.problem().k_scale = make_view(scales.data(), DType::kF32, {3, 16});
  try {
    made.run(Numerics::kBlocked);
    FAIL() << "[batch, q heads] was accepted";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), ::testing::HasSubstr("k_scale has shape [3, 16]; batch_head scales "
                                                   "need [3, 4] (sequences, KV heads)"));
  }
}

// Pages whose scales differ within a tile of any numerics.
TEST_P(Attention, C60_scales_per_page_and_head) {
  for (const std::int64_t page_size : {1, 7, 16, 64, 192}) {
    for (const std::int64_t num_queries : {1, 30}) {
      AttentionSetup setup;
      setup.q_lengths = {num_queries, num_queries};
      setup.k_lengths = {300, 77};
      setup.key_layout = KeyLayout::kPaged;
      setup.page_size = page_size;
      setup.num_q_heads = 6;
      setup.num_kv_heads = 2;
      setup.q_dtype = q_dtype();
      setup.k_dtype = setup.v_dtype = DType::kE4M3;
      setup.k_scale = setup.v_scale = AttentionScale::kPageHead;
      AttentionCase made(setup);
      const auto page_scale = [](float spread) {
        return [spread](std::int64_t page, std::int64_t head) {
          return std::exp2(spread * static_cast<float>((page * 5 + head * 3) % 7 - 3));
        };
      };
      made.set_scales({}, page_scale(0.3F), page_scale(1));
      made.fill_k([](auto... at) { return normal_at(3, at...); });
      made.fill_v([](auto... at) { return 1 + normal_at(4, at...); });
      const AttentionResult expected = made.by_definition();
      const AttentionResult result = made.run(GetParam());
      EXPECT_LE(relative_error(result.o, expected.o), tolerance()) << "page size " << page_size;
      EXPECT_LE(largest_difference(result.lse, expected.lse),
                GetParam() == Numerics::kEmulated ? 0.02 : 1e-5);
    }
  }
}

// K and V of one head of 64, written through quantize() and read by attention.
struct WrittenCache {
  std::vector<float> values;
  std::vector<std::uint8_t> codes;
  float scale = 0;
};

constexpr std::int64_t kCacheDim = 64;

WrittenCache write_cache(std::int64_t num_keys, float sigma, std::uint32_t seed,
                         float given_scale) {
  WrittenCache cache;
  for (std::int64_t i = 0; i < num_keys * kCacheDim; ++i) {
    cache.values.push_back(sigma * normal_at(seed, 0, i, 0, 0));
  }
  cache.codes.resize(cache.values.size());
  cache.scale = given_scale;
  QuantizeProblem problem;
  problem.x = make_view(cache.values.data(), DType::kF32, {num_keys, kCacheDim});
  problem.q = make_view(cache.codes.data(), DType::kE4M3, {num_keys, kCacheDim});
  problem.granularity = ScaleGranularity::kTensor;
  problem.scale = make_view(&cache.scale, DType::kF32, {1});
  problem.scale_source = given_scale > 0 ? ScaleSource::kGiven : ScaleSource::kDynamic;
  problem.amax_floor = 1e-9F;
  quantize(problem);
  return cache;
}

// Attention of one query to each key alone gives back V as it is read.
std::vector<float> read_back(const WrittenCache& cache, AttentionScale kind, Numerics numerics) {
  const auto num_keys = static_cast<std::int64_t>(cache.values.size()) / kCacheDim;
  std::vector<float> o(cache.values.size());
  std::vector<std::uint8_t> q(cache.values.size(), 0x38);
  AttentionProblem problem;
  problem.q = make_view(q.data(), DType::kE4M3, {num_keys, 1, 1, kCacheDim});
  problem.k = make_view(cache.codes.data(), DType::kE4M3, {num_keys, 1, 1, kCacheDim});
  problem.v = problem.k;
  problem.o = make_view(o.data(), DType::kF32, {num_keys, 1, 1, kCacheDim});
  problem.k_scale_kind = problem.v_scale_kind = kind;
  if (kind == AttentionScale::kTensor) {
    // The very object that the writer used.
    problem.k_scale = problem.v_scale = make_view(&cache.scale, DType::kF32, {1});
  }
  Execution execution;
  execution.numerics = numerics;
  attention(problem, execution);
  return o;
}

TEST_P(Attention, C61_scales_are_the_same_for_writer_and_reader) {
  for (const float sigma : {0.001F, 0.01F, 1.0F, 200.0F, 600.0F}) {
    const WrittenCache calibrated = write_cache(64, sigma, 61, 0);
    EXPECT_LE(relative_error(read_back(calibrated, AttentionScale::kTensor, GetParam()),
                             calibrated.values),
              0.03)
        << "sigma " << sigma;
  }
}

TEST_P(Attention, C61_given_scales_reach_the_cache_and_the_result) {
  constexpr float kKScale = 0.04F;
  constexpr float kVScale = 0.05F;
  for (const float sigma : {0.01F, 1.0F, 10.0F}) {
    const WrittenCache k = write_cache(40, sigma, 1, kKScale);
    const WrittenCache v = write_cache(40, sigma, 2, kVScale);
    EXPECT_EQ(k.scale, kKScale);
    for (std::size_t i = 0; i < v.codes.size(); ++i) {
      ASSERT_EQ(v.codes[i], encode(DType::kE4M3, v.values[i] * (1 / kVScale)))
          << "cache byte " << i;
    }
    AttentionSetup setup;
    setup.q_lengths = {3};
    setup.k_lengths = {40};
    setup.q_dtype = q_dtype();
    setup.k_dtype = setup.v_dtype = DType::kE4M3;
    setup.k_scale = setup.v_scale = AttentionScale::kTensor;
    AttentionCase made(setup);
    made.set_scales(
        {}, [](auto, auto) { return kKScale; }, [](auto, auto) { return kVScale; });
    made.k_bytes() = k.codes;
    made.v_bytes() = v.codes;
    made.problem().k = make_view(made.k_bytes().data(), DType::kE4M3, {1, 40, 1, kCacheDim});
    made.problem().v = make_view(made.v_bytes().data(), DType::kE4M3, {1, 40, 1, kCacheDim});
    EXPECT_LE(relative_error(made.run(GetParam()).o, made.by_definition().o), tolerance());
  }
}

TEST_P(Attention, C61_no_scale_means_1) {
  // Good where the data fit the format, saturating where they do not: why scales exist.
  const WrittenCache fitting = write_cache(64, 1, 61, 1);
  EXPECT_LE(relative_error(read_back(fitting, AttentionScale::kNone, GetParam()), fitting.values),
            0.03);
  for (const float sigma : {0.001F, 600.0F}) {
    const WrittenCache unfit = write_cache(64, sigma, 61, 1);
    EXPECT_GE(relative_error(read_back(unfit, AttentionScale::kNone, GetParam()), unfit.values),
              0.2);
  }
}

TEST(AttentionScales, C62_bad_scale_values) {
  const float bad_values[] = {
      0,      -1,   std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
      1e-45F, 3e38F};
  for (const float bad : bad_values) {
    for (const bool at_v : {false, true}) {
      for (const AttentionScale kind : {AttentionScale::kTensor, AttentionScale::kHead,
                                        AttentionScale::kBatchHead, AttentionScale::kPageHead}) {
        AttentionSetup setup;
        setup.q_lengths = {1, 1};
        setup.k_lengths = {20, 20};
        setup.key_layout = KeyLayout::kPaged;
        setup.num_q_heads = setup.num_kv_heads = 3;
        setup.k_dtype = setup.v_dtype = DType::kE4M3;
        (at_v ? setup.v_scale : setup.k_scale) = kind;
        AttentionCase made(setup);
        std::vector<float>& scales = at_v ? made.v_scales() : made.k_scales();
        // Sequence or page 1, head 2.
        const std::size_t at = kind == AttentionScale::kTensor ? 0
                               : kind == AttentionScale::kHead ? 2
                                                               : 5;
        scales[at] = bad;
        std::string where = at_v ? "v_scale[" : "k_scale[";
        where += kind == AttentionScale::kTensor ? "0]"
                 : kind == AttentionScale::kHead ? "2]"
                                                 : "1, 2]";
        try {
          made.run(Numerics::kBlocked);
          FAIL() << where << " = " << bad << " was accepted";
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
          EXPECT_THAT(error.what(),
                      ::testing::AllOf(::testing::HasSubstr(where),
                                       ::testing::HasSubstr("scales must be finite")));
        }
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
