// SPDX-License-Identifier: Apache-2.0
// The tuner's rules with a clock of the test's own.
#include "cuda/tune/choose_fastest.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <random>
#include <stdexcept>
#include <vector>

namespace octavo::cuda {
namespace {

FastestChoice choose(const std::vector<double>& us, int measurements = 1000) {
  int left = measurements;
  return choose_fastest(
      us.size(),
      [&](std::size_t i) {
        --left;
        if (us[i] < 0) throw std::runtime_error("wrong");
        return us[i];
      },
      [&] { return left <= 0; });
}

TEST(ChooseFastest, the_quickest_wins_and_the_hopeless_leave_early) {
  const FastestChoice choice = choose({10, 20, 8, 8.5});
  EXPECT_EQ(choice.chosen, 2U);
  EXPECT_EQ(choice.candidates[0].us.size(), 5U) << "the model's choice stays: it is reported";
  EXPECT_EQ(choice.candidates[1].us.size(), 1U);
  EXPECT_EQ(choice.candidates[2].us.size(), 5U);
  EXPECT_DOUBLE_EQ(choice.candidates[2].median(), 8);
}

TEST(ChooseFastest, noise_does_not_beat_the_first) {
  EXPECT_EQ(choose({10, 9.95}).chosen, 0U);
  EXPECT_EQ(choose({10, 9.8}).chosen, 1U);
  EXPECT_EQ(choose({10, 9.8, 9.79}).chosen, 2U);
  EXPECT_EQ(choose({7}).chosen, 0U);
}

TEST(ChooseFastest, a_candidate_that_fails_takes_no_part) {
  EXPECT_EQ(choose({10, -1, 9}).chosen, 2U);
  const FastestChoice choice = choose({-1, 9});
  EXPECT_EQ(choice.chosen, 1U);
  EXPECT_EQ(choice.candidates[0].failed, "wrong");
  EXPECT_EQ(choose({-1, -1}).chosen, 2U) << "none";
}

TEST(ChooseFastest, time_that_is_up_leaves_every_candidate_one_round) {
  const FastestChoice choice = choose({10, 9, 8}, 0);
  EXPECT_EQ(choice.chosen, 2U);
  for (const Timed& candidate : choice.candidates) EXPECT_EQ(candidate.us.size(), 1U);
}

// Medians survive single windows that something disturbed.
TEST(ChooseFastest, one_disturbed_window_does_not_decide) {
  std::vector<int> round(2, 0);
  const FastestChoice choice = choose_fastest(
      2,
      [&](std::size_t i) {
        const int at = round[i]++;
        return i == 1 && at == 3 ? 50.0 : i == 1 ? 9.0 : 10.0;
      },
      [] { return false; });
  EXPECT_EQ(choice.chosen, 1U);
}

}  // namespace
}  // namespace octavo::cuda
