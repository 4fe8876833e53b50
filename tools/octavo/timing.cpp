// SPDX-License-Identifier: Apache-2.0
#include "timing.hpp"

#include <algorithm>
#include <cstddef>

namespace octavo::cli {

double quantile(std::vector<double> values, double share) {
  std::sort(values.begin(), values.end());
  const double position = share * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(position);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (position - static_cast<double>(low)) * (values[high] - values[low]);
}

Timing summarize(const std::vector<double>& times_us) {
  if (times_us.empty()) return {};
  constexpr double kTenth = 0.1;
  return {quantile(times_us, 0.5), quantile(times_us, kTenth), quantile(times_us, 1 - kTenth),
          static_cast<std::int64_t>(times_us.size())};
}

Json to_json(const Timing& timing) {
  return {{"median", timing.median_us},
          {"p10", timing.p10_us},
          {"p90", timing.p90_us},
          {"runs", timing.num_runs}};
}

}  // namespace octavo::cli
