// SPDX-License-Identifier: Apache-2.0
#include "timing.hpp"

#include <algorithm>
#include <cmath>

namespace octavo::cli {

Timing summarize(std::vector<double> times_us) {
  if (times_us.empty()) return {};
  std::sort(times_us.begin(), times_us.end());
  const auto at = [&](double share) {
    const auto last = static_cast<double>(times_us.size() - 1);
    return times_us[static_cast<std::size_t>(std::lround(share * last))];
  };
  constexpr double kTenth = 0.1;
  return {at(0.5), at(kTenth), at(1 - kTenth), static_cast<std::int64_t>(times_us.size())};
}

Json to_json(const Timing& timing) {
  return {{"median", timing.median_us},
          {"p10", timing.p10_us},
          {"p90", timing.p90_us},
          {"runs", timing.num_runs}};
}

}  // namespace octavo::cli
