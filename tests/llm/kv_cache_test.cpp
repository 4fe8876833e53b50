// SPDX-License-Identifier: Apache-2.0
// The cache by itself: what attention reads is what was written, at every scale of the values.
#include "llm/kv_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "octavo/attention.hpp"
#include "octavo/error.hpp"
#include "octavo/quantize.hpp"

namespace octavo::llm {
namespace {

constexpr std::int64_t kHeads = 3;
constexpr std::int64_t kHeadDim = 64;
constexpr std::int64_t kWidth = kHeads * kHeadDim;
constexpr std::int64_t kLayers = 2;

KvCache make_cache(NumberFormat format, std::int64_t max_positions = 1000) {
  return {{.num_layers = kLayers,
           .num_kv_heads = kHeads,
           .head_dim = kHeadDim,
           .max_positions = max_positions},
          format};
}

std::vector<float> gaussian(std::int64_t count, double sigma, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> draw(0, sigma);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = static_cast<float>(draw(generator));
  return values;
}

// One layer's K or V as it is stored, [tokens, kWidth].
std::vector<float> read_stored(const KvCache& cache, std::int64_t layer,
                               TensorView AttentionProblem::*tensor,
                               TensorView AttentionProblem::*scale) {
  AttentionProblem problem;
  cache.set_keys_and_values(layer, problem);
  const TensorView& stored = problem.*tensor;
  const auto length = *static_cast<const std::int32_t*>(problem.kv_lengths.data);
  std::vector<float> values;
  for (std::int64_t token = 0; token < length; ++token) {
    const std::int32_t page =
        static_cast<const std::int32_t*>(problem.page_table.data)[token / KvCache::kPageSize];
    for (std::int64_t i = 0; i < kWidth; ++i) {
      const std::int64_t at =
          page * stored.strides[0] + token % KvCache::kPageSize * stored.strides[1] + i;
      const auto* bytes =
          static_cast<const std::uint8_t*>(stored.data) + at * size_bytes(stored.dtype);
      std::uint32_t code = 0;
      std::memcpy(&code, bytes, static_cast<std::size_t>(size_bytes(stored.dtype)));
      float value = decode(stored.dtype, code);
      if ((problem.*scale).present()) {
        value *= static_cast<const float*>((problem.*scale).data)[page * kHeads + i / kHeadDim];
      }
      values.push_back(value);
    }
  }
  return values;
}

HeadRows head_rows(std::vector<float>& x) {
  return {.x = x.data(),
          .rows = static_cast<std::int64_t>(x.size()) / kWidth,
          .row_stride = kWidth,
          .heads = kHeads,
          .head_dim = kHeadDim};
}

// The keys that were written, back in their own frame: the rotation undoes itself.
std::vector<float> read_keys(const KvCache& cache, std::int64_t layer) {
  std::vector<float> keys =
      read_stored(cache, layer, &AttentionProblem::k, &AttentionProblem::k_scale);
  cache.rotate_queries(head_rows(keys));
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] += cache.key_shift(layer)[i % kWidth];
  return keys;
}

std::vector<float> read_values(const KvCache& cache, std::int64_t layer) {
  return read_stored(cache, layer, &AttentionProblem::v, &AttentionProblem::v_scale);
}

void write(KvCache& cache, const std::vector<float>& k, const std::vector<float>& v) {
  cache.begin(static_cast<std::int64_t>(k.size()) / kWidth);
  for (std::int64_t layer = 0; layer < kLayers; ++layer) {
    cache.write(layer, k.data(), v.data(), kWidth, {});
  }
  cache.commit();
}

double relative_rms(const std::vector<float>& a, const std::vector<float>& b) {
  double error = 0;
  double total = 0;
  for (std::size_t i = 0; i < b.size(); ++i) {
    error += std::pow(static_cast<double>(a[i]) - static_cast<double>(b[i]), 2);
    total += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(error / total);
}

TEST(KvCache, C61_values_of_any_magnitude_come_back_within_three_percent) {
  for (const double sigma : {1e-3, 1e-2, 1.0, 200.0, 600.0, 1e6}) {
    KvCache cache = make_cache(NumberFormat::kFp8);
    const std::vector<float> k = gaussian(150 * kWidth, sigma, 1);
    const std::vector<float> v = gaussian(150 * kWidth, sigma, 2);
    write(cache, k, v);
    const std::vector<float> back = read_keys(cache, 1);
    ASSERT_EQ(back.size(), k.size());
    EXPECT_LE(relative_rms(back, k), 0.03) << sigma;
  }
}

TEST(KvCache, C61_attention_uses_the_scale_that_the_writer_used) {
  for (const double sigma : {1e-3, 1.0, 600.0}) {
    std::vector<std::vector<float>> outputs;
    for (const NumberFormat format : {NumberFormat::kF32, NumberFormat::kFp8}) {
      KvCache cache = make_cache(format);
      // Heads of very different size, so that a scale of the wrong head or page shows.
      std::vector<float> k = gaussian(100 * kWidth, 1, 3);
      std::vector<float> v = gaussian(100 * kWidth, sigma, 4);
      for (std::size_t i = 0; i < v.size(); ++i) {
        v[i] *= std::pow(30.0F, static_cast<float>(i / kHeadDim % kHeads));
        if (i >= v.size() / 2) v[i] *= 0.01F;
      }
      write(cache, k, v);
      std::vector<float> q = gaussian(kWidth, 1, 5);
      cache.rotate_queries(head_rows(q));
      std::vector<float> o(static_cast<std::size_t>(kWidth));
      AttentionProblem problem;
      problem.q = make_view(q.data(), DType::kF32, {1, 1, kHeads, kHeadDim});
      problem.o = make_view(o.data(), DType::kF32, {1, 1, kHeads, kHeadDim});
      cache.set_keys_and_values(0, problem);
      (void)attention(problem);
      outputs.push_back(o);
    }
    for (std::size_t head = 0; head < kHeads; ++head) {
      const auto of_head = [&](const std::vector<float>& o) {
        const auto begin = o.begin() + static_cast<std::ptrdiff_t>(head * kHeadDim);
        return std::vector<float>(begin, begin + kHeadDim);
      };
      EXPECT_LE(relative_rms(of_head(outputs[1]), of_head(outputs[0])), 0.06) << sigma;
    }
  }
}

TEST(KvCache, a_page_that_grows_louder_is_rescaled_and_never_saturates) {
  KvCache cache = make_cache(NumberFormat::kFp8);
  std::vector<float> all;
  for (int step = 0; step < 40; ++step) {
    const double sigma = std::pow(1.5, step);  // to 1e7 within one page
    const std::vector<float> k = gaussian(kWidth, sigma, static_cast<std::uint32_t>(100 + step));
    write(cache, k, k);
    all.insert(all.end(), k.begin(), k.end());
  }
  const std::vector<float> back = read_values(cache, 0);
  // Half a code: 1/16 of the value; or, for those that became subnormal next to the loudest token
  // of the page, half a subnormal step of each scale that the page went through, a geometric sum.
  AttentionProblem problem;
  cache.set_keys_and_values(0, problem);
  for (std::size_t i = 0; i < all.size(); ++i) {
    const float scale = static_cast<const float*>(problem.v_scale.data)[i / kHeadDim % kHeads];
    ASSERT_NEAR(back[i], all[i], std::max(std::fabs(all[i]) / 16, scale / 512) * 1.0001F) << i;
  }
}

TEST(KvCache, zeros_nan_and_infinity_do_not_disturb_other_values) {
  KvCache cache = make_cache(NumberFormat::kFp8);
  std::vector<float> k(3 * kWidth, 0.0F);
  for (std::size_t i = 0; i < kWidth; ++i) k[kWidth + i] = 3.0F;
  k[kWidth + 5] = std::numeric_limits<float>::quiet_NaN();
  k[kWidth + 6] = std::numeric_limits<float>::infinity();
  write(cache, k, k);
  const std::vector<float> back = read_values(cache, 0);
  for (std::size_t i = 0; i < back.size(); ++i) {
    if (i == kWidth + 5) {
      EXPECT_TRUE(std::isnan(back[i]));
    } else if (i == kWidth + 6) {
      EXPECT_GE(back[i], 3.0F);
      EXPECT_TRUE(std::isfinite(back[i]));
    } else {
      EXPECT_EQ(back[i], k[i]) << i;
    }
  }
}

TEST(KvCache, a_bad_key_disturbs_its_own_token_and_head_only) {
  KvCache cache = make_cache(NumberFormat::kFp8);
  std::vector<float> k = gaussian(40 * kWidth, 1, 6);
  k[20 * kWidth + 5] = std::numeric_limits<float>::quiet_NaN();
  write(cache, k, k);
  const std::vector<float> back = read_keys(cache, 0);
  for (std::size_t i = 0; i < back.size(); ++i) {
    if (i / kHeadDim == 20 * kHeads) {
      EXPECT_TRUE(std::isnan(back[i])) << i;
    } else {
      EXPECT_NEAR(back[i], k[i], 0.5F) << i;
    }
  }
}

TEST(KvCache, keys_whose_large_elements_meet_large_queries_lose_less_for_being_rotated) {
  // One element of every key and query is large. Stored as it is, its rounding alone decides the
  // score: up to 1/16 of it, 1/50 in the mean. Rotated, the rounding is spread over kHeadDim.
  constexpr float kLarge = 40.0F;
  KvCache cache = make_cache(NumberFormat::kFp8);
  std::vector<float> k = gaussian(8 * kWidth, 1, 21);
  std::vector<float> q = gaussian(8 * kWidth, 1, 22);
  std::mt19937 generator(23);
  std::uniform_real_distribution<float> factor(1, 2);
  for (std::size_t i = 3; i < k.size(); i += kHeadDim) {
    k[i] = kLarge * factor(generator);
    q[i] = kLarge * factor(generator);
  }
  write(cache, k, k);  // too few tokens for a shift
  const std::vector<float> rounded = read_keys(cache, 0);
  const std::vector<float> rounded_unrotated = read_values(cache, 0);
  const auto score_error = [&](const std::vector<float>& keys) {
    double error = 0;
    for (std::size_t row = 0; row < k.size() / kHeadDim; ++row) {
      double difference = 0;
      for (std::size_t i = row * kHeadDim; i < (row + 1) * kHeadDim; ++i) {
        difference += static_cast<double>(q[i]) * static_cast<double>(keys[i] - k[i]);
      }
      error += difference * difference;
    }
    return std::sqrt(error);
  };
  EXPECT_LE(score_error(rounded), 0.7 * score_error(rounded_unrotated));
}

TEST(KvCache, growth_keeps_what_was_written) {
  for (const NumberFormat format : {NumberFormat::kF32, NumberFormat::kBf16, NumberFormat::kFp8}) {
    KvCache grown = make_cache(format);
    KvCache reserved = make_cache(format);
    reserved.reserve(500);
    const std::int64_t capacity = reserved.capacity();
    EXPECT_GE(capacity, 500);
    for (int step = 0; step < 50; ++step) {
      const std::vector<float> k = gaussian(10 * kWidth, 1, static_cast<std::uint32_t>(step));
      write(grown, k, k);
      write(reserved, k, k);
    }
    EXPECT_EQ(reserved.capacity(), capacity);
    EXPECT_EQ(grown.length(), 500);
    EXPECT_EQ(read_keys(grown, 1), read_keys(reserved, 1));
    EXPECT_EQ(grown.bytes_in_use(), reserved.bytes_in_use());
  }
}

TEST(KvCache, a_step_that_is_not_committed_leaves_no_trace) {
  KvCache cache = make_cache(NumberFormat::kFp8);
  const std::vector<float> k = gaussian(70 * kWidth, 1, 7);
  write(cache, k, k);
  const std::vector<float> before = read_keys(cache, 0);
  cache.begin(5);
  const std::vector<float> loud = gaussian(5 * kWidth, 8, 8);
  cache.write(0, loud.data(), loud.data(), kWidth, {});
  EXPECT_EQ(cache.length(), 70);
  const std::vector<float> next = gaussian(kWidth, 1, 9);
  write(cache, next, next);
  std::vector<float> after = read_keys(cache, 0);
  after.resize(before.size());
  EXPECT_LE(relative_rms(after, before), 1e-3);
}

TEST(KvCache, the_context_is_a_limit) {
  KvCache cache = make_cache(NumberFormat::kBf16, 100);
  const std::vector<float> k = gaussian(100 * kWidth, 1, 1);
  write(cache, k, k);
  try {
    cache.begin(1);
    FAIL() << "the cache took more than the context";
  } catch (const Error& error) {
    // The second page has room for 28 more, the model has not.
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), testing::HasSubstr("100"));
  }
  EXPECT_EQ(cache.length(), 100);
}

}  // namespace
}  // namespace octavo::llm
