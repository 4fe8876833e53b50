// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/choose_fastest.hpp"

#include <algorithm>
#include <exception>
#include <limits>

namespace octavo::cuda {
namespace {

constexpr int kRounds = 5;
// A candidate's median over the best one's beyond which it leaves, after rounds 1, 2, ...: one
// window meets a clock that still follows what ran before it.
constexpr double kHopeless[kRounds] = {1.25, 1.10, 1.05, 1.03, 1.03};
// Medians of the same kernel in one run differ by less.
constexpr double kNoise = 0.01;

}  // namespace

double Timed::median() const {
  if (us.empty()) return 0;
  std::vector<double> sorted = us;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::nth_element(sorted.begin(), middle, sorted.end());
  return *middle;
}

FastestChoice choose_fastest(std::size_t num_candidates,
                             const std::function<double(std::size_t)>& measure,
                             const std::function<bool()>& out_of_time) {
  FastestChoice choice;
  choice.candidates.resize(num_candidates);
  std::vector<std::size_t> left(num_candidates);
  for (std::size_t i = 0; i < num_candidates; ++i) left[i] = i;
  bool stops = false;
  for (int round = 0; round < kRounds && !stops; ++round) {
    for (std::size_t turn = 0; turn < left.size(); ++turn) {
      const std::size_t i = left[round % 2 == 0 ? turn : left.size() - 1 - turn];
      if (round > 0 && out_of_time()) {
        stops = true;
        break;
      }
      Timed& candidate = choice.candidates[i];
      try {
        candidate.us.push_back(measure(i));
      } catch (const std::exception& error) {
        candidate.failed = error.what();
        candidate.us.clear();
      }
    }
    double best = std::numeric_limits<double>::infinity();
    for (const std::size_t i : left) {
      const Timed& candidate = choice.candidates[i];
      if (candidate.failed.empty()) best = std::min(best, candidate.median());
    }
    std::erase_if(left, [&](std::size_t i) {
      const Timed& candidate = choice.candidates[i];
      return !candidate.failed.empty() || (i != 0 && candidate.median() > kHopeless[round] * best);
    });
  }
  choice.chosen = num_candidates;
  double best = std::numeric_limits<double>::infinity();
  // Those that left early had their rounds at another clock.
  for (const std::size_t i : left) {
    const Timed& candidate = choice.candidates[i];
    if (candidate.us.empty()) continue;
    // The first must be beaten clearly, the others only at all.
    const double limit = choice.chosen == 0 ? best * (1 - kNoise) : best;
    if (candidate.median() >= limit) continue;
    best = candidate.median();
    choice.chosen = i;
  }
  return choice;
}

}  // namespace octavo::cuda
