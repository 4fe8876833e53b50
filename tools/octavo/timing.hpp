// SPDX-License-Identifier: Apache-2.0
// Wall-clock times of repeated runs of one problem.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

#include "session.hpp"

namespace octavo::cli {

struct Timing {
  double median_us = 0;
  double p10_us = 0;
  double p90_us = 0;
  std::int64_t num_runs = 0;
};

[[nodiscard]] Timing summarize(const std::vector<double>& times_us);
[[nodiscard]] Json to_json(const Timing& timing);

template <typename Action>
[[nodiscard]] double time_us(const Action& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  const auto end = std::chrono::steady_clock::now();
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

}  // namespace octavo::cli
