// SPDX-License-Identifier: Apache-2.0
// The sampler's distribution, bounds and refusals. All draws are seeded, so no test is flaky.
#include "llm/sampler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kDraws = 20000;
// Five standard deviations of a share of 20,000 draws: 5 * sqrt(0.25 / 20000) = 0.0177.
constexpr double kShareTolerance = 0.018;

std::vector<double> shares(SamplerParams params, const std::vector<float>& logits) {
  Sampler sampler(params);
  std::vector<double> counts(logits.size());
  for (int i = 0; i < kDraws; ++i) counts.at(static_cast<std::size_t>(sampler.sample(logits))) += 1;
  for (double& count : counts) count /= kDraws;
  return counts;
}

void expect_refused(const SamplerParams& params, const std::string& part) {
  try {
    const Sampler sampler(params);
    ADD_FAILURE() << "not refused: " << part;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr(part));
  }
}

TEST(Sampler, greedy_takes_the_largest_and_the_first_of_equals) {
  Sampler sampler({});
  EXPECT_EQ(sampler.sample(std::vector<float>{1, 3, 2}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-5, -2, -2}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{-kInfinity, -3e38F}), 1);
  EXPECT_EQ(sampler.sample(std::vector<float>{7}), 0);
}

TEST(Sampler, shares_follow_the_softmax_at_each_temperature) {
  const std::vector<float> logits = {0.0F, 1.0F, -1.0F, 2.0F, -kInfinity};
  for (const float temperature : {0.5F, 1.0F, 2.0F}) {
    double total = 0;
    for (const float logit : logits) total += std::exp(logit / temperature);
    const std::vector<double> got = shares({.temperature = temperature, .seed = 3}, logits);
    for (std::size_t i = 0; i < logits.size(); ++i) {
      EXPECT_NEAR(got[i], std::exp(logits[i] / temperature) / total, kShareTolerance) << i;
    }
    EXPECT_EQ(got[4], 0.0);
  }
}

TEST(Sampler, top_k_keeps_the_k_most_likely) {
  const std::vector<float> logits = {0.0F, 1.0F, 0.5F, 1.0F, -1.0F};
  const std::vector<double> got = shares({.temperature = 1, .top_k = 3, .seed = 5}, logits);
  EXPECT_EQ(got[0], 0.0);
  EXPECT_EQ(got[4], 0.0);
  const double total = 2 * std::exp(1.0) + std::exp(0.5);
  EXPECT_NEAR(got[1], std::exp(1.0) / total, kShareTolerance);
  EXPECT_NEAR(got[2], std::exp(0.5) / total, kShareTolerance);
  // Of equals the lower id is kept; more than there are keeps all.
  EXPECT_EQ(shares({.temperature = 1, .top_k = 1, .seed = 5}, logits)[1], 1.0);
  EXPECT_GT(shares({.temperature = 1, .top_k = 99, .seed = 5}, logits)[4], 0.0);
}

TEST(Sampler, top_p_keeps_the_fewest_that_reach_p) {
  // Probabilities 0.1, 0.4, 0.2, 0.3.
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F),
                                     std::log(3.0F)};
  const std::vector<double> three = shares({.temperature = 1, .top_p = 0.75F, .seed = 9}, logits);
  EXPECT_EQ(three[0], 0.0);
  EXPECT_NEAR(three[1], 4.0 / 9, kShareTolerance);
  EXPECT_NEAR(three[2], 2.0 / 9, kShareTolerance);
  EXPECT_NEAR(three[3], 3.0 / 9, kShareTolerance);
  const std::vector<double> two = shares({.temperature = 1, .top_p = 0.65F, .seed = 9}, logits);
  EXPECT_EQ(two[0] + two[2], 0.0);
  EXPECT_EQ(shares({.temperature = 1, .top_p = 1e-6F, .seed = 9}, logits)[1], 1.0);
}

TEST(Sampler, top_k_comes_before_top_p) {
  // Top-k leaves 0.4 and 0.3; of these, 0.4 is 57 % and so reaches 0.5 alone.
  const std::vector<float> logits = {std::log(1.0F), std::log(4.0F), std::log(2.0F),
                                     std::log(3.0F)};
  EXPECT_EQ(shares({.temperature = 1, .top_k = 2, .top_p = 0.5F, .seed = 1}, logits)[1], 1.0);
}

TEST(Sampler, a_seed_gives_the_same_tokens_and_another_seed_others) {
  const std::vector<float> logits(1000, 0.0F);
  const auto draw = [&](std::uint64_t seed) {
    Sampler sampler({.temperature = 1, .seed = seed});
    std::vector<std::int32_t> ids;
    for (int i = 0; i < 5; ++i) ids.push_back(sampler.sample(logits));
    return ids;
  };
  EXPECT_EQ(draw(1), draw(1));
  EXPECT_NE(draw(1), draw(2));
  // SplitMix64's published outputs for seed 0 begin 0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4,
  // 0x06C45D188009454F: fractions 0.8833, 0.4315 and 0.0264 of the thousand equal tokens.
  const std::vector<std::int32_t> zero = draw(0);
  EXPECT_THAT(std::vector(zero.begin(), zero.begin() + 3), ElementsAre(883, 431, 26));
}

TEST(Sampler, extreme_logits_and_temperatures_stay_finite) {
  const std::vector<float> logits = {-3e38F, 3e38F, 0.0F};
  for (const float temperature : {1e-45F, 1e-30F, 1.0F, 100.0F}) {
    EXPECT_EQ(shares({.temperature = temperature, .top_p = 0.9F, .seed = 2}, logits)[1], 1.0);
  }
}

TEST(Sampler, bad_logits_are_refused) {
  for (const float temperature : {0.0F, 1.0F}) {
    Sampler sampler({.temperature = temperature});
    const auto message = [&](const std::vector<float>& logits) -> std::string {
      try {
        (void)sampler.sample(logits);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
        return error.what();
      }
      return "not refused";
    };
    EXPECT_THAT(message({0, kNan, 1}), HasSubstr("logit 1 of 3 is nan"));
    EXPECT_THAT(message({kNan}), HasSubstr("logit 0 of 1 is nan"));
    EXPECT_THAT(message({0, 1, kInfinity}), HasSubstr("logit 2 of 3 is inf"));
    EXPECT_THAT(message({-kInfinity, -kInfinity}), HasSubstr("all 2 logits are -inf"));
    EXPECT_THAT(message({}), HasSubstr("0 logits"));
  }
}

TEST(Sampler, parameters_out_of_range_are_refused) {
  expect_refused({.temperature = -0.1F}, "temperature is -0.1");
  expect_refused({.temperature = kNan}, "temperature is nan");
  expect_refused({.temperature = kInfinity}, "temperature is inf");
  expect_refused({.temperature = 1, .top_k = -1}, "top_k is -1");
  expect_refused({.temperature = 1, .top_p = 0.0F}, "top_p is 0");
  expect_refused({.temperature = 1, .top_p = 1.5F}, "top_p is 1.5");
  expect_refused({.temperature = 1, .top_p = kNan}, "top_p is nan");
}

}  // namespace
}  // namespace octavo::llm
