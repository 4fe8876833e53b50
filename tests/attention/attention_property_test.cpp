// SPDX-License-Identifier: Apache-2.0
// Properties of attention that hold for any problem: random problems against the FP64 reference,
// independence of threads, of the batch and of the order of keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <string>

#include "attention/attention_case.hpp"
#include "support/denormal_mode.hpp"
#include "support/simd_targets.hpp"

namespace octavo::testing {
namespace {

constexpr std::array kValueTypes{DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3,
                                 DType::kE5M2};

template <typename T>
T pick(std::mt19937& random, std::initializer_list<T> choices) {
  return *(choices.begin() + random() % choices.size());
}

AttentionSetup random_setup(std::mt19937& random) {
  AttentionSetup setup;
  setup.seed = static_cast<std::uint32_t>(random());
  setup.query_layout = pick(random, {QueryLayout::kDense, QueryLayout::kVarlen});
  setup.key_layout = pick(random, {KeyLayout::kDense, KeyLayout::kVarlen, KeyLayout::kPaged});
  setup.page_size = pick<std::int64_t>(random, {1, 3, 7, 16, 48, 64, 192});
  setup.num_kv_heads = pick<std::int64_t>(random, {1, 2, 3});
  setup.num_q_heads = setup.num_kv_heads * pick<std::int64_t>(random, {1, 2, 3, 4, 5, 7, 8});
  setup.dim_qk = pick<std::int64_t>(random, {1, 5, 16, 32, 48, 64, 80, 96, 128, 129});
  setup.dim_vo = pick<std::int64_t>(random, {1, 7, 16, 32, 40, 64, 96, 100, 128});
  setup.q_dtype = kValueTypes[random() % kValueTypes.size()];
  setup.k_dtype = kValueTypes[random() % kValueTypes.size()];
  setup.v_dtype = kValueTypes[random() % kValueTypes.size()];
  setup.q_scale = pick(random, {AttentionScale::kNone, AttentionScale::kTensor,
                                AttentionScale::kHead, AttentionScale::kBatchHead});
  setup.k_scale = pick(random, {AttentionScale::kNone, AttentionScale::kTensor,
                                AttentionScale::kHead, AttentionScale::kBatchHead});
  setup.v_scale = pick(random, {AttentionScale::kNone, AttentionScale::kTensor,
                                AttentionScale::kHead, AttentionScale::kBatchHead});
  if (setup.key_layout == KeyLayout::kPaged) {
    if (random() % 2 == 0) setup.k_scale = AttentionScale::kPageHead;
    if (random() % 2 == 0) setup.v_scale = AttentionScale::kPageHead;
  }
  const auto batch = 1 + random() % 3;
  setup.q_lengths.clear();
  setup.k_lengths.clear();
  const auto dense_length = pick<std::int64_t>(random, {1, 1, 2, 3, 17, 70});
  for (std::size_t i = 0; i < batch; ++i) {
    setup.q_lengths.push_back(setup.query_layout == QueryLayout::kDense
                                  ? dense_length
                                  : pick<std::int64_t>(random, {0, 1, 1, 2, 5, 33, 90}));
    setup.k_lengths.push_back(
        pick<std::int64_t>(random, {0, 1, 2, 63, 64, 65, 127, 200, 256, 257, 600}));
  }
  return setup;
}

void randomise_problem(std::mt19937& random, AttentionCase& made) {
  AttentionProblem& problem = made.problem();
  problem.mask = pick(random, {AttentionMask::kNone, AttentionMask::kCausal});
  problem.window_left = pick<std::int64_t>(random, {-1, -1, 0, 1, 30, 128, 100000});
  problem.window_right = pick<std::int64_t>(random, {-1, -1, 0, 2, 50});
  problem.softcap = pick(random, {0.0F, 0.0F, 5.0F, 50.0F});
  problem.softmax_scale = pick(random, {0.0F, 0.1F, 0.5F});
}

void set_random_scales(std::mt19937& random, AttentionCase& made) {
  const auto seed = static_cast<std::uint32_t>(random());
  const auto scale = [seed](std::uint32_t which) {
    return [seed, which](std::int64_t i, std::int64_t head) {
      return std::exp2(normal_at(seed + which, i, 0, head, 0));
    };
  };
  made.set_scales(scale(0), scale(1), scale(2));
  const std::uint32_t data = made.setup().seed;
  made.fill_q([=](auto... at) { return normal_at(data, at...); });
  made.fill_k([=](auto... at) { return normal_at(data + 1, at...); });
  made.fill_v([=](auto... at) { return normal_at(data + 2, at...); });
}

// The error of `got` in proportion to what was added up for it, the sum of P |V|: where a result is
// the small difference of large terms, no arithmetic keeps its own size to many digits.
double error_to_terms(AttentionCase& made, const AttentionResult& got,
                      const AttentionResult& reference) {
  const std::uint32_t data = made.setup().seed;
  made.fill_v([=](auto... at) { return std::abs(normal_at(data + 2, at...)); });
  const std::vector<float> terms = made.run(Numerics::kReference).o;
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < terms.size(); ++i) {
    const double error = static_cast<double>(got.o[i]) - reference.o[i];
    difference += error * error;
    size += static_cast<double>(terms[i]) * terms[i];
  }
  return difference == 0 ? 0 : std::sqrt(difference / size);
}

std::string describe(const AttentionSetup& setup, const AttentionProblem& problem) {
  std::string text = "seed " + std::to_string(setup.seed) + " heads " +
                     std::to_string(setup.num_q_heads) + "/" + std::to_string(setup.num_kv_heads) +
                     " dims " + std::to_string(setup.dim_qk) + "/" + std::to_string(setup.dim_vo) +
                     " layouts " + std::to_string(static_cast<int>(setup.query_layout)) +
                     std::to_string(static_cast<int>(setup.key_layout)) + " page " +
                     std::to_string(setup.page_size) + " window " +
                     std::to_string(problem.window_left) + "," +
                     std::to_string(problem.window_right) + " softcap " +
                     std::to_string(problem.softcap) + " types " + to_string(setup.q_dtype) + " " +
                     to_string(setup.k_dtype) + " " + to_string(setup.v_dtype) + " lengths";
  for (std::size_t i = 0; i < setup.q_lengths.size(); ++i) {
    text += " " + std::to_string(setup.q_lengths[i]) + "x" + std::to_string(setup.k_lengths[i]);
  }
  return text;
}

int num_random_problems() { return full_level() ? 3000 : 50; }

TEST(AttentionProperty, reference_agrees_with_the_definition_on_random_problems) {
  std::mt19937 random(17);
  for (int i = 0; i < num_random_problems(); ++i) {
    AttentionSetup setup = random_setup(random);
    for (std::int64_t& length : setup.k_lengths) length = std::min<std::int64_t>(length, 70);
    AttentionCase made(setup);
    randomise_problem(random, made);
    set_random_scales(random, made);
    const AttentionResult expected = made.by_definition();
    const AttentionResult reference = made.run(Numerics::kReference);
    ASSERT_LE(relative_error(reference.o, expected.o), 1e-6)
        << describe(made.setup(), made.problem());
    ASSERT_LE(largest_difference(reference.lse, expected.lse), 2e-5)
        << describe(made.setup(), made.problem());
  }
}

// 50 roundings of FP32; 3000 problems came to 35.
constexpr double kFp32Bound = 3e-6;

void expect_blocked_agrees_with_reference(std::uint32_t seed, int num_problems) {
  std::mt19937 random(seed);
  for (int i = 0; i < num_problems; ++i) {
    AttentionCase made(random_setup(random));
    randomise_problem(random, made);
    set_random_scales(random, made);
    const AttentionResult reference = made.run(Numerics::kReference);
    const AttentionResult blocked = made.run(Numerics::kBlocked);
    ASSERT_LE(error_to_terms(made, blocked, reference), kFp32Bound)
        << describe(made.setup(), made.problem());
    ASSERT_LE(largest_difference(blocked.lse, reference.lse), 2e-5)
        << describe(made.setup(), made.problem());
  }
}

TEST(AttentionProperty, blocked_agrees_with_reference_on_random_problems) {
  expect_blocked_agrees_with_reference(20261129, num_random_problems());
}

TEST(AttentionProperty, blocked_agrees_with_reference_on_every_instruction_set) {
  std::uint32_t seed = 5;
  test::for_each_simd_target([&] { expect_blocked_agrees_with_reference(seed++, 12); });
}

// A NaN or an infinity that a query sees is not lost on the way, whatever the type.
TEST(AttentionProperty, blocked_keeps_special_values) {
  test::for_each_simd_target([&] {
    for (const DType dtype : kValueTypes) {
      for (const std::int64_t num_queries : {1, 30}) {
        AttentionSetup setup;
        setup.q_lengths = {num_queries};
        setup.k_lengths = {300};
        setup.dim_qk = setup.dim_vo = 40;
        setup.k_dtype = setup.v_dtype = dtype;
        AttentionCase made(setup);
        const float bad = dtype == DType::kE4M3 ? std::numeric_limits<float>::quiet_NaN()
                                                : std::numeric_limits<float>::infinity();
        const auto values_with = [&](std::int64_t bad_dim) {
          return [=](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
            return row == 270 && dim == bad_dim ? bad : normal_at(9, b, row, head, dim);
          };
        };
        made.fill_v(values_with(39));
        if (dtype == DType::kE5M2) made.v_bytes()[static_cast<std::size_t>(270 * 40 + 39)] = 0x7C;
        const AttentionResult in_v = made.run(Numerics::kBlocked);
        for (std::size_t i = 0; i < in_v.o.size(); ++i) {
          ASSERT_EQ(std::isfinite(in_v.o[i]), i % 40 != 39) << to_string(dtype);
        }
        made.fill_v(values_with(-1));
        made.fill_k([](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
          return row == 270 && dim == 38 ? std::numeric_limits<float>::quiet_NaN()
                                         : normal_at(8, b, row, head, dim);
        });
        const AttentionResult in_k = made.run(Numerics::kBlocked);
        for (const float value : in_k.o) ASSERT_TRUE(std::isnan(value)) << to_string(dtype);
      }
    }
  });
}

// FP8 Q, K and V: P is rounded to E4M3, by at most half a unit of its three fraction bits.
constexpr double kE4M3Bound = 1.0 / 16;

TEST(AttentionProperty, emulated_agrees_with_reference_on_random_problems) {
  std::mt19937 random(29112026);
  for (int i = 0; i < num_random_problems(); ++i) {
    AttentionSetup setup = random_setup(random);
    setup.q_dtype = setup.k_dtype = setup.v_dtype = DType::kE4M3;
    AttentionCase made(setup);
    randomise_problem(random, made);
    set_random_scales(random, made);
    const AttentionResult reference = made.run(Numerics::kReference);
    const AttentionResult emulated = made.run(Numerics::kEmulated);
    ASSERT_LE(error_to_terms(made, emulated, reference), kE4M3Bound)
        << describe(made.setup(), made.problem());
    ASSERT_LE(largest_difference(emulated.lse, reference.lse), 0.03)
        << describe(made.setup(), made.problem());
  }
}

// Emulated sums depend on the order of keys; the others only through rounding.
TEST_P(Attention, order_of_keys_does_not_matter_without_a_mask) {
  constexpr std::int64_t kKeys = 300;
  AttentionSetup setup;
  setup.q_lengths = {3};
  setup.k_lengths = {kKeys};
  setup.num_q_heads = 6;
  setup.num_kv_heads = 2;
  setup.q_dtype = q_dtype();
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  AttentionCase straight(setup);
  AttentionCase permuted(setup);
  const auto moved = [](std::int64_t row) { return row * 7 % kKeys; };
  permuted.fill_k([&](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
    return normal_at(3 * setup.seed + 1, b, moved(row), head, dim);
  });
  permuted.fill_v([&](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
    return normal_at(3 * setup.seed + 2, b, moved(row), head, dim);
  });
  const AttentionResult a = straight.run(GetParam());
  const AttentionResult b = permuted.run(GetParam());
  EXPECT_LE(relative_error(a.o, b.o), tolerance());
  EXPECT_LE(largest_difference(a.lse, b.lse), GetParam() == Numerics::kEmulated ? 1e-3 : 1e-5);
}

// Query i is far closer to key 5 i mod 97 than to any other, and V's row says which it is.
TEST_P(Attention, one_hot_rows_show_the_right_key) {
  constexpr std::int64_t kKeys = 97;
  for (const KeyLayout layout : {KeyLayout::kDense, KeyLayout::kVarlen, KeyLayout::kPaged}) {
    AttentionSetup setup;
    setup.q_lengths = {40, 40};
    setup.k_lengths = {kKeys, kKeys};
    setup.key_layout = layout;
    setup.page_size = 7;
    setup.num_q_heads = 6;
    setup.num_kv_heads = 2;
    setup.dim_qk = kKeys;
    setup.dim_vo = kKeys;
    setup.q_dtype = q_dtype();
    setup.k_dtype = setup.v_dtype = DType::kE4M3;
    setup.seed = 0;
    AttentionCase made(setup);
    const auto wanted = [](std::int64_t b, std::int64_t i, std::int64_t kv_head) {
      return (5 * i + 11 * b + 23 * kv_head) % kKeys;
    };
    made.problem().softmax_scale = 1;
    made.fill_q([&](std::int64_t b, std::int64_t i, std::int64_t head, std::int64_t dim) {
      return dim == wanted(b, i, head / 3) ? 256.0F : 0.0F;
    });
    const auto one_hot = [](std::int64_t, std::int64_t row, std::int64_t, std::int64_t dim) {
      return row == dim ? 1.0F : 0.0F;
    };
    made.fill_k(one_hot);
    made.fill_v(one_hot);
    const AttentionResult result = made.run(GetParam());
    std::size_t at = 0;
    for (std::int64_t b = 0; b < 2; ++b) {
      for (std::int64_t i = 0; i < 40; ++i) {
        for (std::int64_t head = 0; head < 6; ++head) {
          for (std::int64_t dim = 0; dim < kKeys; ++dim) {
            ASSERT_EQ(result.o[at++], dim == wanted(b, i, head / 3) ? 1.0F : 0.0F)
                << "sequence " << b << " query " << i << " head " << head << " key " << dim;
          }
        }
      }
    }
  }
}

AttentionSetup mixed_batch(DType q_dtype) {
  AttentionSetup setup;
  // Streamed with one split and with several, tiled, empty.
  setup.q_lengths = {1, 1, 70, 0, 2};
  setup.k_lengths = {200, 1100, 90, 5, 0};
  setup.query_layout = QueryLayout::kVarlen;
  setup.key_layout = KeyLayout::kPaged;
  setup.num_q_heads = 6;
  setup.num_kv_heads = 2;
  setup.dim_qk = 32;
  setup.dim_vo = 48;
  setup.q_dtype = q_dtype;
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  return setup;
}

TEST_P(Attention, bits_do_not_depend_on_threads) {
  AttentionCase made(mixed_batch(q_dtype()));
  made.problem().mask = AttentionMask::kCausal;
  const AttentionResult one = made.run(GetParam(), 1);
  for (const int num_threads : {2, 3, 7, 0}) {
    const AttentionResult several = made.run(GetParam(), num_threads);
    EXPECT_TRUE(same_bits(several.o, one.o)) << num_threads << " threads";
    EXPECT_TRUE(same_bits(several.lse, one.lse)) << num_threads << " threads";
  }
}

TEST_P(Attention, subnormals_are_kept_for_a_caller_that_flushes_them) {
  for (const std::int64_t num_queries : {1, 40}) {
    AttentionSetup setup;
    setup.q_lengths = {num_queries};
    setup.k_lengths = {300};
    setup.num_q_heads = setup.num_kv_heads = 4;
    setup.q_dtype = q_dtype();
    setup.k_dtype = setup.v_dtype = DType::kE4M3;
    setup.v_scale = AttentionScale::kHead;
    AttentionCase made(setup);
    for (float& scale : made.v_scales()) scale = 0x1p-126F;
    const AttentionResult kept = made.run(GetParam());
    const auto is_subnormal = [](float value) { return std::fpclassify(value) == FP_SUBNORMAL; };
    EXPECT_GT(std::count_if(kept.o.begin(), kept.o.end(), is_subnormal), num_queries * 4 * 60);
    const AttentionResult flushed = [&] {
      const test::FlushDenormals flush;
      return made.run(GetParam());
    }();
    EXPECT_TRUE(same_bits(flushed.o, kept.o));
  }
}

TEST_P(Attention, a_sequence_alone_has_the_bits_it_has_in_a_batch) {
  const AttentionSetup batch_setup = mixed_batch(q_dtype());
  AttentionCase batch(batch_setup);
  batch.problem().mask = AttentionMask::kCausal;
  const AttentionResult together = batch.run(GetParam());
  std::size_t o_at = 0;
  std::size_t lse_at = 0;
  for (std::size_t b = 0; b < batch_setup.q_lengths.size(); ++b) {
    AttentionSetup setup = batch_setup;
    setup.q_lengths = {batch_setup.q_lengths[b]};
    setup.k_lengths = {batch_setup.k_lengths[b]};
    AttentionCase alone(setup);
    alone.problem().mask = AttentionMask::kCausal;
    const auto as_in_batch = [&](std::uint32_t which) {
      return [&, which](std::int64_t, std::int64_t row, std::int64_t head, std::int64_t dim) {
        return normal_at(3 * setup.seed + which, static_cast<std::int64_t>(b), row, head, dim);
      };
    };
    alone.fill_q(as_in_batch(0));
    alone.fill_k(as_in_batch(1));
    alone.fill_v(as_in_batch(2));
    const AttentionResult result = alone.run(GetParam());
    const auto part = [](const std::vector<float>& all, std::size_t at, std::size_t size) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(at);
      return std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(size));
    };
    EXPECT_TRUE(same_bits(result.o, part(together.o, o_at, result.o.size()))) << "sequence " << b;
    EXPECT_TRUE(same_bits(result.lse, part(together.lse, lse_at, result.lse.size())))
        << "sequence " << b;
    o_at += result.o.size();
    lse_at += result.lse.size();
  }
}

// Transposed and broadcast tensors mean the same as dense ones.
TEST_P(Attention, strides_are_followed) {
  AttentionSetup setup;
  setup.q_lengths = {5, 5};
  setup.k_lengths = {70, 70};
  setup.dim_qk = setup.dim_vo = 4;  // so that heads and dims can trade places
  setup.num_q_heads = 4;
  setup.num_kv_heads = 4;
  setup.q_dtype = q_dtype();
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  AttentionCase plain(setup);
  const AttentionResult expected = plain.run(GetParam());
  AttentionCase turned(setup);
  const auto swapped = [&](std::uint32_t which) {
    return [&, which](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
      return normal_at(3 * setup.seed + which, b, row, dim, head);
    };
  };
  turned.fill_q(swapped(0));
  turned.fill_k(swapped(1));
  turned.fill_v(swapped(2));
  turned.problem().q = transposed(turned.problem().q, 2, 3);
  turned.problem().k = transposed(turned.problem().k, 2, 3);
  turned.problem().v = transposed(turned.problem().v, 2, 3);
  const AttentionResult result = turned.run(GetParam());
  EXPECT_TRUE(same_bits(result.o, expected.o));
  EXPECT_TRUE(same_bits(result.lse, expected.lse));

  // Every sequence reads sequence 0's keys.
  AttentionCase shared(setup);
  shared.problem().k.strides[0] = 0;
  shared.problem().v.strides[0] = 0;
  AttentionCase copied(setup);
  const auto first = [&](std::uint32_t which) {
    return [&, which](std::int64_t, std::int64_t row, std::int64_t head, std::int64_t dim) {
      return normal_at(3 * setup.seed + which, 0, row, head, dim);
    };
  };
  copied.fill_k(first(1));
  copied.fill_v(first(2));
  EXPECT_TRUE(same_bits(shared.run(GetParam()).o, copied.run(GetParam()).o));
}

TEST_P(Attention, fp8_output_is_divided_by_its_scale) {
  AttentionSetup setup;
  setup.q_lengths = {9};
  setup.k_lengths = {50};
  setup.num_q_heads = 4;
  setup.num_kv_heads = 2;
  setup.q_dtype = q_dtype();
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  AttentionCase wide(setup);
  const AttentionResult exact = wide.run(GetParam());
  const float o_scale = 0.003F;
  for (const DType dtype : {DType::kE4M3, DType::kE5M2}) {
    setup.o_dtype = dtype;
    AttentionCase made(setup);
    made.problem().o_scale = make_view(&o_scale, DType::kF32, {1});
    const AttentionResult result = made.run(GetParam());
    for (std::size_t i = 0; i < exact.o.size(); ++i) {
      // One rounding of an FP32 quotient that may be an ulp off.
      const float low = decode(dtype, encode(dtype, exact.o[i] / o_scale * (1 - 1e-6F)));
      const float high = decode(dtype, encode(dtype, exact.o[i] / o_scale * (1 + 1e-6F)));
      ASSERT_TRUE(result.o[i] == low || result.o[i] == high)
          << result.o[i] << " for " << exact.o[i] / o_scale;
    }
  }
}

}  // namespace
}  // namespace octavo::testing
