// SPDX-License-Identifier: Apache-2.0
// Emulated attention against the numbered steps of docs/attention.md, written down once more for
// one head and followed bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numbers>
#include <vector>

#include "attention/attention_case.hpp"
#include "numerics/tensor_core.hpp"

namespace octavo::testing {
namespace {

constexpr std::int64_t kTile = 128;

float exp2_once(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }

struct Row {
  std::vector<float> o;
  float lse = 0;
};

// Sequence 0, head 0; the query sees keys [0, num_seen).
Row by_the_documented_steps(AttentionCase& made, std::int64_t query, std::int64_t num_seen) {
  const AttentionSetup& setup = made.setup();
  const AttentionProblem& problem = made.problem();
  const bool per_page = setup.v_scale == AttentionScale::kPageHead;
  const auto page_of = [&](std::int64_t key) {
    return static_cast<std::size_t>(
        made.page_table().at(static_cast<std::size_t>(key / setup.page_size)));
  };
  const auto k_scale = [&](std::int64_t key) {
    return per_page ? made.k_scales()[page_of(key)] : 1.0F;
  };
  const auto* q = static_cast<const std::uint8_t*>(problem.q.data) + made.q_row(0, query, 0);
  const CodeMatrix q_row{q, setup.q_dtype, 0, 1};
  const auto softmax_scale = static_cast<float>(1 / std::sqrt(static_cast<double>(setup.dim_qk)));

  float m = -std::numeric_limits<float>::infinity();
  float l = 0;
  Row row;
  row.o.assign(static_cast<std::size_t>(setup.dim_vo), 0.0F);
  for (std::int64_t tile = 0; tile < num_seen; tile += kTile) {
    const std::int64_t end = std::min(tile + kTile, num_seen);
    std::vector<float> x;
    float v_ref = 0;
    for (std::int64_t key = tile; key < end; ++key) {
      const CodeMatrix k{made.k_bytes().data() + made.k_row(0, key, 0), setup.k_dtype, 0, 1};
      const float s = tensor_core_dot(kHopper, q_row, 0, k, 0, setup.dim_qk, nullptr);
      const float scale = 1.0F * k_scale(key) * softmax_scale;
      if (problem.softcap > 0) {
        const float capped =
            static_cast<float>(std::tanh(static_cast<double>(s * scale / problem.softcap)));
        x.push_back(problem.softcap * capped * std::numbers::log2e_v<float>);
      } else {
        x.push_back(s * (scale * std::numbers::log2e_v<float>));
      }
    }
    // The pages of all of the tile's keys, also of those that this query does not see.
    for (std::int64_t key = tile; key < std::min(tile + kTile, setup.k_lengths[0]); ++key) {
      if (per_page) v_ref = std::max(v_ref, made.v_scales()[page_of(key)]);
    }
    const float m_before = m;
    for (const float value : x) m = std::max(m, value);
    const float alpha = tile == 0 ? 1.0F : exp2_once(m_before - m);
    std::vector<std::uint8_t> p;
    float sum = 0;
    for (std::size_t j = 0; j < x.size(); ++j) {
      const float probability = exp2_once(x[j] - m + 8);
      sum += probability;
      const float ratio =
          per_page ? made.v_scales()[page_of(tile + static_cast<std::int64_t>(j))] / v_ref : 1.0F;
      p.push_back(static_cast<std::uint8_t>(encode(DType::kE4M3, probability * ratio)));
    }
    l = std::fma(l, alpha, sum);
    const CodeMatrix p_row{p.data(), DType::kE4M3, 0, 1};
    for (std::int64_t i = 0; i < setup.dim_vo; ++i) {
      std::vector<std::uint8_t> column;
      for (std::int64_t key = tile; key < end; ++key) {
        column.push_back(made.v_bytes()[static_cast<std::size_t>(made.v_row(0, key, 0) + i)]);
      }
      const CodeMatrix v{column.data(), setup.v_dtype, 0, 1};
      float o_tile = tensor_core_dot(kHopper, p_row, 0, v, 0, end - tile, nullptr);
      if (per_page) o_tile *= v_ref;
      float& o = row.o[static_cast<std::size_t>(i)];
      o = std::fma(o, alpha, o_tile);
    }
  }
  for (float& o : row.o) o *= 1.0F / l;
  row.lse = static_cast<float>((m + (std::log2(static_cast<double>(l)) - 8)) * std::numbers::ln2);
  return row;
}

TEST(EmulatedAttention, follows_the_documented_steps_bit_for_bit) {
  for (const AttentionScale kind : {AttentionScale::kNone, AttentionScale::kPageHead}) {
    for (const float softcap : {0.0F, 2.0F}) {
      AttentionSetup setup;
      setup.q_lengths = {5};
      setup.k_lengths = {300};
      setup.key_layout = KeyLayout::kPaged;
      setup.page_size = 48;
      setup.dim_qk = 80;  // two and a half instructions
      setup.dim_vo = 33;
      setup.q_dtype = DType::kE4M3;
      setup.k_dtype = DType::kE5M2;
      setup.v_dtype = DType::kE4M3;
      setup.k_scale = setup.v_scale = kind;
      AttentionCase made(setup);
      const auto scale = [](std::int64_t page, std::int64_t) {
        return 0.7F + 0.3F * static_cast<float>(page % 5);
      };
      made.set_scales({}, scale, scale);
      made.problem().mask = AttentionMask::kCausal;
      made.problem().softcap = softcap;
      const AttentionResult result = made.run(Numerics::kEmulated);
      for (std::int64_t query = 0; query < 5; ++query) {
        const Row expected = by_the_documented_steps(made, query, 296 + query);
        const auto begin = result.o.begin() + static_cast<std::ptrdiff_t>(query * 33);
        EXPECT_TRUE(same_bits(std::vector<float>(begin, begin + 33), expected.o))
            << "query " << query << ", scale " << to_string(kind) << ", softcap " << softcap;
        EXPECT_EQ(result.lse[static_cast<std::size_t>(query)], expected.lse);
      }
    }
  }
}

}  // namespace
}  // namespace octavo::testing
