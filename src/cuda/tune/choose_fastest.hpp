// SPDX-License-Identifier: Apache-2.0
// Which of several ways of doing the same is the quickest: the tuner's rules, without a GPU.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

namespace octavo::cuda {

struct Timed {
  std::vector<double> us;  // of each round that it took part in
  std::string failed;      // why it takes part no longer, if it failed

  [[nodiscard]] double median() const;  // 0 without a round
};

struct FastestChoice {
  std::size_t chosen = 0;  // candidates.size() if all failed
  std::vector<Timed> candidates;
};

// The first candidate is the one to beat: another is chosen only if it is quicker by more than
// noise. `measure` gives microseconds, or throws if the candidate fails or its result is wrong.
// Candidates take turns (0 1 2, 2 1 0, ...); what is hopelessly slow leaves early. `out_of_time` is
// asked before each measurement once every candidate had one round.
[[nodiscard]] FastestChoice choose_fastest(std::size_t num_candidates,
                                           const std::function<double(std::size_t)>& measure,
                                           const std::function<bool()>& out_of_time);

}  // namespace octavo::cuda
