// SPDX-License-Identifier: Apache-2.0
// Which keys a query sees, and what happens where it sees none or where memory holds rubbish.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "attention/attention_case.hpp"

namespace octavo::testing {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

AttentionSetup setup_of(DType q_dtype, std::vector<std::int64_t> q_lengths,
                        std::vector<std::int64_t> k_lengths) {
  AttentionSetup setup;
  setup.q_lengths = std::move(q_lengths);
  setup.k_lengths = std::move(k_lengths);
  setup.q_dtype = q_dtype;
  setup.k_dtype = setup.v_dtype = DType::kE4M3;
  setup.num_q_heads = 6;
  setup.num_kv_heads = 2;
  setup.dim_qk = 32;
  setup.dim_vo = 48;
  return setup;
}

TEST_P(Attention, C53_nan_in_unused_kv_slots) {
  const std::vector<std::int64_t> lengths{1, 32, 64, 96, 127, 128, 129};
  for (const std::int64_t num_queries : {1, 40}) {
    for (const KeyLayout layout : {KeyLayout::kDense, KeyLayout::kPaged}) {
      for (const std::int64_t page_size : {16, 64}) {
        if (layout == KeyLayout::kDense && page_size == 64) continue;
        AttentionSetup setup =
            setup_of(q_dtype(), std::vector<std::int64_t>(lengths.size(), num_queries), lengths);
        setup.key_layout = layout;
        setup.page_size = page_size;
        const bool paged = layout == KeyLayout::kPaged;
        setup.k_scale = setup.v_scale =
            paged ? AttentionScale::kPageHead : AttentionScale::kBatchHead;
        const auto run = [&](std::uint8_t poison_byte, std::int32_t poison_page) {
          setup.poison_byte = poison_byte;
          setup.poison_page = poison_page;
          AttentionCase made(setup);
          made.problem().mask = AttentionMask::kCausal;
          return made.run(GetParam());
        };
        const AttentionResult clean = run(0, 0);
        for (const float value : clean.o) ASSERT_TRUE(std::isfinite(value));
        for (const std::uint8_t poison_byte : {0x7F, 0xFF}) {
          for (const std::int32_t poison_page : {-1, std::numeric_limits<std::int32_t>::max()}) {
            const AttentionResult poisoned = run(poison_byte, poison_page);
            EXPECT_TRUE(same_bits(poisoned.o, clean.o));
            EXPECT_TRUE(same_bits(poisoned.lse, clean.lse));
          }
        }
      }
    }
  }
}

// A key inside the length that a query does not see is not read into its row either.
TEST_P(Attention, C53_nan_in_masked_keys) {
  constexpr std::int64_t kLength = 150;
  AttentionSetup setup = setup_of(q_dtype(), {kLength}, {kLength});
  AttentionCase clean(setup);
  AttentionCase poisoned(setup);
  constexpr std::int64_t kBadKey = 70;
  for (std::int64_t head = 0; head < 2; ++head) {
    std::fill_n(poisoned.v_bytes().begin() + poisoned.v_row(0, kBadKey, head), setup.dim_vo, 0x7F);
  }
  clean.problem().mask = poisoned.problem().mask = AttentionMask::kCausal;
  const AttentionResult expected = clean.run(GetParam());
  const AttentionResult result = poisoned.run(GetParam());
  const std::int64_t row_elems = setup.num_q_heads * setup.dim_vo;
  for (std::int64_t query = 0; query < kLength; ++query) {
    for (std::int64_t i = 0; i < row_elems; ++i) {
      const auto at = static_cast<std::size_t>(query * row_elems + i);
      if (query < kBadKey) {
        // Summed in another order, perhaps, because of the bad key.
        ASSERT_NEAR(result.o[at], expected.o[at], 1e-5) << "query " << query;
      } else {
        ASSERT_TRUE(std::isnan(result.o[at])) << "query " << query << " sees a NaN";
      }
    }
  }
}

void expect_empty_rows(const AttentionSetup& setup, const AttentionResult& result,
                       const std::vector<bool>& row_is_empty) {
  const auto row_elems = static_cast<std::size_t>(setup.dim_vo);
  const auto heads = static_cast<std::size_t>(setup.num_q_heads);
  ASSERT_EQ(result.lse.size(), row_is_empty.size() * heads);
  for (std::size_t row = 0; row < row_is_empty.size(); ++row) {
    for (std::size_t head = 0; head < heads; ++head) {
      const std::size_t at = row * heads + head;
      if (row_is_empty[row]) {
        EXPECT_EQ(result.lse[at], kMinusInfinity) << "row " << row;
        for (std::size_t i = 0; i < row_elems; ++i) EXPECT_EQ(result.o[at * row_elems + i], 0.0F);
      } else {
        EXPECT_TRUE(std::isfinite(result.lse[at])) << "row " << row;
      }
    }
  }
}

TEST_P(Attention, C54_fully_masked_rows_varlen) {
  for (const KeyLayout layout : {KeyLayout::kVarlen, KeyLayout::kPaged, KeyLayout::kDense}) {
    AttentionSetup setup = setup_of(q_dtype(), {1, 2, 1, 2}, {0, 2, 0, 2});
    setup.query_layout = QueryLayout::kVarlen;
    setup.key_layout = layout;
    AttentionCase made(setup);
    const AttentionResult result = made.run(GetParam());
    expect_empty_rows(setup, result, {true, false, false, true, false, false});
    EXPECT_LE(relative_error(result.o, made.by_definition().o), tolerance());
  }
}

TEST_P(Attention, C54_fully_masked_rows_causal) {
  {
    const AttentionSetup setup = setup_of(q_dtype(), {5}, {3});
    AttentionCase made(setup);
    made.problem().mask = AttentionMask::kCausal;
    const AttentionResult result = made.run(GetParam());
    expect_empty_rows(setup, result, {true, true, false, false, false});
    EXPECT_LE(relative_error(result.o, made.by_definition().o), tolerance());
  }
  // More rows than are streamed.
  const AttentionSetup long_setup = setup_of(q_dtype(), {100}, {3});
  AttentionCase long_case(long_setup);
  long_case.problem().mask = AttentionMask::kCausal;
  std::vector<bool> empty(100, true);
  std::fill(empty.end() - 3, empty.end(), false);
  expect_empty_rows(long_setup, long_case.run(GetParam()), empty);

  // Bottom-right alignment: query i of 3 sees keys 0 to i + 2 of 5. V says which.
  AttentionSetup setup = setup_of(q_dtype(), {3}, {5});
  setup.num_q_heads = setup.num_kv_heads = 1;
  setup.dim_vo = 5;
  setup.seed = 0;
  AttentionCase made(setup);
  made.problem().mask = AttentionMask::kCausal;
  made.fill_q([](auto...) { return 0.0F; });
  made.fill_k([](auto...) { return 0.0F; });
  made.fill_v(
      [](auto, std::int64_t row, auto, std::int64_t dim) { return row == dim ? 1.0F : 0.0F; });
  const AttentionResult result = made.run(GetParam());
  for (std::size_t query = 0; query < 3; ++query) {
    for (std::size_t key = 0; key < 5; ++key) {
      const auto seen = static_cast<float>(query + 3);
      EXPECT_NEAR(result.o[query * 5 + key], key < query + 3 ? 1 / seen : 0.0F, 1e-3F);
    }
  }
}

TEST_P(Attention, C54_no_queries_or_no_keys_at_all) {
  AttentionSetup no_queries = setup_of(q_dtype(), {0, 3}, {100, 20});
  no_queries.query_layout = QueryLayout::kVarlen;
  no_queries.key_layout = KeyLayout::kVarlen;
  AttentionCase first(no_queries);
  EXPECT_LE(relative_error(first.run(GetParam()).o, first.by_definition().o), tolerance());

  AttentionCase dense(setup_of(q_dtype(), {0}, {100}));
  EXPECT_TRUE(dense.run(GetParam()).o.empty());

  for (const KeyLayout layout : {KeyLayout::kVarlen, KeyLayout::kPaged, KeyLayout::kDense}) {
    AttentionSetup no_keys = setup_of(q_dtype(), {2, 40}, {0, 0});
    no_keys.query_layout = QueryLayout::kVarlen;
    no_keys.key_layout = layout;
    AttentionCase made(no_keys);
    made.problem().mask = AttentionMask::kCausal;
    expect_empty_rows(no_keys, made.run(GetParam()), std::vector<bool>(42, true));
  }
}

// Attention over some keys joined with attention over the others, from the definition of the LSE.
AttentionResult merged(const AttentionResult& a, const AttentionResult& b, std::size_t dim) {
  AttentionResult sum;
  for (std::size_t row = 0; row < a.lse.size(); ++row) {
    const float largest = std::max(a.lse[row], b.lse[row]);
    const float a_weight = largest == kMinusInfinity ? 0 : std::exp(a.lse[row] - largest);
    const float b_weight = largest == kMinusInfinity ? 0 : std::exp(b.lse[row] - largest);
    const float total = a_weight + b_weight;
    for (std::size_t i = row * dim; i < (row + 1) * dim; ++i) {
      sum.o.push_back(total == 0 ? 0 : (a.o[i] * a_weight + b.o[i] * b_weight) / total);
    }
    sum.lse.push_back(total == 0 ? kMinusInfinity : largest + std::log(total));
  }
  return sum;
}

TEST_P(Attention, C54_merging_partials_by_their_lse) {
  const AttentionSetup whole_setup = setup_of(q_dtype(), {4}, {90});
  const auto dim = static_cast<std::size_t>(whole_setup.dim_vo);
  AttentionCase whole(whole_setup);
  const AttentionResult expected = whole.run(GetParam());
  AttentionSetup empty_setup = whole_setup;
  empty_setup.k_lengths = {0};
  AttentionCase none(empty_setup);
  const AttentionResult empty = none.run(GetParam());
  // An empty partial leaves the other unchanged, bit for bit.
  EXPECT_TRUE(same_bits(merged(expected, empty, dim).o, expected.o));
  EXPECT_TRUE(same_bits(merged(empty, expected, dim).lse, expected.lse));

  // 37 keys and the 53 others give the attention over all 90.
  AttentionSetup head_setup = whole_setup;
  head_setup.k_lengths = {37};
  AttentionSetup tail_setup = whole_setup;
  tail_setup.k_lengths = {53};
  AttentionCase head(head_setup);
  AttentionCase tail(tail_setup);
  const auto from_37 = [&](std::uint32_t which) {
    return [&, which](std::int64_t b, std::int64_t row, std::int64_t h, std::int64_t d) {
      return normal_at(3 * whole_setup.seed + which, b, row + 37, h, d);
    };
  };
  tail.fill_k(from_37(1));
  tail.fill_v(from_37(2));
  const AttentionResult both = merged(head.run(GetParam()), tail.run(GetParam()), dim);
  EXPECT_LE(relative_error(both.o, expected.o), tolerance());
  EXPECT_LE(largest_difference(both.lse, expected.lse), 1e-4);
}

TEST_P(Attention, C55_sliding_window_past_a_tile) {
  for (const std::int64_t length : {256, 257, 300, 512, 1024}) {
    if (length > 300 && GetParam() == Numerics::kReference && !full_level()) continue;
    for (const KeyLayout layout : {KeyLayout::kVarlen, KeyLayout::kPaged}) {
      AttentionSetup setup = setup_of(q_dtype(), {length}, {length});
      setup.num_q_heads = setup.num_kv_heads = 1;
      setup.query_layout = QueryLayout::kVarlen;
      setup.key_layout = layout;
      setup.dim_qk = setup.dim_vo = 128;
      AttentionCase made(setup);
      made.problem().mask = AttentionMask::kCausal;
      made.problem().window_left = 128;
      const AttentionResult expected =
          length <= 300 ? made.by_definition() : made.run(Numerics::kReference);
      EXPECT_LE(relative_error(made.run(GetParam()).o, expected.o), tolerance()) << length;
    }
  }
}

TEST_P(Attention, windows_and_caps_of_any_size) {
  constexpr std::int64_t kHuge = std::numeric_limits<std::int64_t>::max();
  for (const std::int64_t left : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3}, kHuge}) {
    for (const std::int64_t right : {std::int64_t{-1}, std::int64_t{0}, std::int64_t{3}, kHuge}) {
      for (const auto& [sq, sk] : {std::pair{4, 4}, {7, 3}, {2, 30}, {40, 35}}) {
        AttentionCase made(setup_of(q_dtype(), {sq}, {sk}));
        made.problem().window_left = left;
        made.problem().window_right = right;
        made.problem().softcap = 3;
        const AttentionResult expected = made.by_definition();
        const AttentionResult result = made.run(GetParam());
        EXPECT_LE(relative_error(result.o, expected.o), 1.5 * tolerance())
            << left << ", " << right << ", " << sq << " x " << sk;
        EXPECT_LE(largest_difference(result.lse, expected.lse),
                  GetParam() == Numerics::kEmulated ? 0.02 : 1e-5);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
