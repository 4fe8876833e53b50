// SPDX-License-Identifier: Apache-2.0
// How near attention comes to FP64 where FP8 is known to go wrong: long contexts, small
// probabilities, offsets and heads of different size.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "attention/attention_case.hpp"

namespace octavo::testing {
namespace {

float zero(std::int64_t, std::int64_t, std::int64_t, std::int64_t) { return 0; }

AttentionSetup fp8_setup(std::int64_t num_queries, std::int64_t num_keys, std::int64_t dim) {
  AttentionSetup setup;
  setup.q_lengths = {num_queries};
  setup.k_lengths = {num_keys};
  setup.dim_qk = setup.dim_vo = dim;
  setup.q_dtype = setup.k_dtype = setup.v_dtype = DType::kE4M3;
  return setup;
}

std::vector<std::pair<std::int64_t, std::int64_t>> long_contexts(bool is_reference) {
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes{
      {1, 1024}, {1, 8192}, {1, 65536}, {1, 131072}, {128, 1024}};
  // The reference sums every query's keys one by one.
  if (!is_reference || full_level()) sizes.emplace_back(128, 8192);
  if (full_level()) {
    sizes.emplace_back(128, 65536);
    sizes.emplace_back(128, 131072);
  }
  return sizes;
}

TEST_P(Attention, C50_long_context_pv_accumulation_constant_values) {
  for (const auto& [num_queries, num_keys] : long_contexts(GetParam() == Numerics::kReference)) {
    AttentionSetup setup = fp8_setup(num_queries, num_keys, full_level() ? 128 : 32);
    setup.seed = 0;
    AttentionCase made(setup);
    made.fill_q(zero);
    made.fill_k(zero);
    made.fill_v([](auto...) { return 1.125F; });
    const AttentionResult result = made.run(GetParam());
    for (const float value : result.o) {
      ASSERT_NEAR(value, 1.125F, 1.125F * 0.005F) << num_queries << " x " << num_keys;
    }
    for (const float value : result.lse) {
      ASSERT_NEAR(value, std::log(static_cast<double>(num_keys)), 1e-5) << num_keys;
    }
  }
}

TEST_P(Attention, C50_long_context_pv_accumulation_random_signs) {
  double first_error = 0;
  for (const std::int64_t num_keys : {1024, 8192, 65536, 131072}) {
    AttentionSetup setup = fp8_setup(1, num_keys, 32);
    setup.seed = 0;
    AttentionCase made(setup);
    made.fill_q(zero);
    made.fill_k(zero);
    std::vector<double> sums(32, 0.0);
    made.fill_v([&](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
      // P(+1) = 0.55: the normal distribution exceeds -0.1257 that often.
      const float value = normal_at(50, b, row, head, dim) > -0.1257F ? 1.0F : -1.0F;
      sums[static_cast<std::size_t>(dim)] += value;
      return value;
    });
    std::vector<float> expected;
    for (const double sum : sums) {
      expected.push_back(static_cast<float>(sum / static_cast<double>(num_keys)));
    }
    const double error = relative_error(made.run(GetParam()).o, expected);
    EXPECT_LE(error, 0.015) << num_keys;
    if (num_keys == 1024) first_error = error;
    EXPECT_LE(error, 2 * first_error + 1e-3) << "grows with the length " << num_keys;
  }
}

TEST_P(Attention, C52_p_underflow_in_fp8) {
  constexpr std::int64_t kSmallKeys = 4096;
  for (const std::int64_t large_key : {std::int64_t{0}, kSmallKeys / 2, kSmallKeys}) {
    AttentionSetup setup = fp8_setup(1, kSmallKeys + 1, 16);
    setup.seed = 0;
    AttentionCase made(setup);
    // Scores 0 and log(0.0009) = -7.013, as 1 * -7 * softmax_scale.
    made.problem().softmax_scale = -static_cast<float>(std::log(0.0009)) / 7;
    made.fill_q([](auto, auto, auto, std::int64_t dim) { return dim == 0 ? 1.0F : 0.0F; });
    made.fill_k([=](auto, std::int64_t row, auto, std::int64_t dim) {
      return row == large_key || dim != 0 ? 0.0F : -7.0F;
    });
    made.fill_v([=](auto, std::int64_t row, auto, auto) { return row == large_key ? 0.0F : 1.0F; });
    for (const float value : made.run(GetParam()).o) {
      ASSERT_NEAR(value, 0.7866, 0.03 * 0.7866) << "the large key is " << large_key;
    }
  }
}

// One head of V is 10^5 times larger than the others.
TEST_P(Attention, C64_outlier_heads_with_a_scale_per_head) {
  const auto value = [](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
    return normal_at(64, b, row, head, dim) * (head == 1 ? 1e5F : 1.0F) *
           (dim == 5 ? 100.0F : 1.0F);
  };
  AttentionSetup setup = fp8_setup(16, 256, 64);
  setup.num_q_heads = setup.num_kv_heads = 3;
  AttentionSetup exact_setup = setup;
  exact_setup.v_dtype = DType::kF32;
  AttentionCase exact(exact_setup);
  exact.fill_v(value);
  const AttentionResult expected = exact.by_definition();

  const auto head_error = [&](AttentionScale kind, std::int64_t head) {
    setup.v_scale = kind;
    AttentionCase made(setup);
    // The largest magnitude over 448, as quantize() has it; near 4.5 sigma here.
    made.set_scales({}, {}, [=](std::int64_t, std::int64_t h) {
      const bool large = kind == AttentionScale::kTensor || h == 1;
      return 450.0F / 448 * (large ? 1e5F : 1.0F);
    });
    made.fill_v(value);
    const AttentionResult result = made.run(GetParam());
    std::vector<float> got;
    std::vector<float> want;
    for (std::size_t i = 0; i < result.o.size(); ++i) {
      if (static_cast<std::int64_t>(i / 64 % 3) != head || i % 64 == 5) continue;
      got.push_back(result.o[i]);
      want.push_back(expected.o[i]);
    }
    return relative_error(got, want);
  };
  EXPECT_LE(head_error(AttentionScale::kHead, 0), 0.04);
  EXPECT_LE(head_error(AttentionScale::kHead, 1), 0.04);
  EXPECT_LE(head_error(AttentionScale::kHead, 2), 0.04);
  // One scale for all loses the small heads: what this case is about.
  EXPECT_GE(head_error(AttentionScale::kTensor, 0), 0.2);
}

// An offset shared by all keys leaves the softmax as it is, but not an FP8 key: the caller removes
// the mean over the keys before quantizing (docs/attention.md).
TEST_P(Attention, C64_offset_of_all_keys_is_to_be_removed_before_quantizing) {
  constexpr std::int64_t kDim = 128;
  constexpr float kOffset = 20;
  AttentionSetup setup = fp8_setup(32, 512, kDim);
  AttentionSetup exact_setup = setup;
  exact_setup.q_dtype = exact_setup.k_dtype = exact_setup.v_dtype = DType::kF32;
  const auto offset_key = [](std::int64_t b, std::int64_t row, std::int64_t head,
                             std::int64_t dim) {
    return kOffset + normal_at(65, b, row, head, dim);
  };
  const auto positive_value = [](std::int64_t b, std::int64_t row, std::int64_t head,
                                 std::int64_t dim) {
    return 1 + 0.5F * normal_at(66, b, row, head, dim);
  };
  AttentionCase exact(exact_setup);
  exact.fill_k(offset_key);
  exact.fill_v(positive_value);
  const AttentionResult expected = exact.by_definition();

  AttentionCase kept(setup);
  kept.fill_k(offset_key);
  kept.fill_v(positive_value);
  AttentionCase removed(setup);
  std::vector<float> mean(kDim, 0.0F);
  for (std::int64_t row = 0; row < 512; ++row) {
    for (std::int64_t dim = 0; dim < kDim; ++dim) {
      mean[static_cast<std::size_t>(dim)] += offset_key(0, row, 0, dim) / 512;
    }
  }
  removed.fill_k([&](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
    return offset_key(b, row, head, dim) - mean[static_cast<std::size_t>(dim)];
  });
  removed.fill_v(positive_value);
  const double removed_error = relative_error(removed.run(GetParam()).o, expected.o);
  const double kept_error = relative_error(kept.run(GetParam()).o, expected.o);
  EXPECT_LE(removed_error, 0.03);
  EXPECT_GE(kept_error, 1.5 * removed_error) << "the limit that the documentation warns of";
}

// x <- x + attention(y Wq, y Wk, y Wv) with y = x / rms(x), eight times, in FP8 and exactly.
TEST_P(Attention, C64_error_does_not_compound_over_stacked_layers) {
  constexpr std::int64_t kRows = 48;
  constexpr std::int64_t kDim = 32;
  constexpr int kLayers = 8;
  const auto project = [](const std::vector<float>& x, std::uint32_t seed) {
    std::vector<float> weights;
    for (std::int64_t i = 0; i < kDim * kDim; ++i) {
      weights.push_back(normal_at(seed, 0, i, 0, 0) / std::sqrt(static_cast<float>(kDim)));
    }
    std::vector<float> y;
    for (std::size_t row = 0; row < kRows; ++row) {
      const float* x_row = x.data() + row * kDim;
      float squares = 0;
      for (std::size_t j = 0; j < kDim; ++j) squares += x_row[j] * x_row[j];
      const float rms = std::sqrt(squares / kDim);
      for (std::size_t i = 0; i < kDim; ++i) {
        float sum = 0;
        for (std::size_t j = 0; j < kDim; ++j) sum += x_row[j] / rms * weights[i * kDim + j];
        y.push_back(sum);
      }
    }
    return y;
  };
  const auto forward = [&](DType dtype, Numerics numerics) {
    std::vector<float> x(static_cast<std::size_t>(kRows * kDim));
    for (std::size_t i = 0; i < x.size(); ++i) {
      x[i] = normal_at(7, 0, static_cast<std::int64_t>(i), 0, 0);
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      AttentionSetup setup = fp8_setup(kRows, kRows, kDim);
      setup.q_dtype = setup.k_dtype = setup.v_dtype = dtype;
      setup.seed = 0;
      AttentionCase made(setup);
      made.problem().mask = AttentionMask::kCausal;
      const auto seed = static_cast<std::uint32_t>(100 + 3 * layer);
      const auto rows_of = [&](const std::vector<float>& values) {
        return [&](std::int64_t, std::int64_t row, std::int64_t, std::int64_t dim) {
          return values[static_cast<std::size_t>(row * kDim + dim)];
        };
      };
      const std::vector<float> q = project(x, seed);
      const std::vector<float> k = project(x, seed + 1);
      const std::vector<float> v = project(x, seed + 2);
      made.fill_q(rows_of(q));
      made.fill_k(rows_of(k));
      made.fill_v(rows_of(v));
      const AttentionResult result = made.run(numerics);
      for (std::size_t i = 0; i < x.size(); ++i) x[i] += result.o[i];
    }
    return x;
  };
  const std::vector<float> exact = forward(DType::kF32, Numerics::kReference);
  const std::vector<float> fp8 = forward(DType::kE4M3, GetParam());
  double dot = 0;
  double exact_norm = 0;
  double fp8_norm = 0;
  for (std::size_t i = 0; i < exact.size(); ++i) {
    dot += static_cast<double>(exact[i]) * fp8[i];
    exact_norm += static_cast<double>(exact[i]) * exact[i];
    fp8_norm += static_cast<double>(fp8[i]) * fp8[i];
  }
  EXPECT_GE(dot / std::sqrt(exact_norm * fp8_norm), 0.995);
}

}  // namespace
}  // namespace octavo::testing
