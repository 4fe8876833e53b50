// SPDX-License-Identifier: Apache-2.0
#include "timing.hpp"

#include "measure/quantile.hpp"

namespace octavo::cli {

Timing summarize(const std::vector<double>& times_us) {
  if (times_us.empty()) return {};
  constexpr double kTenth = 0.1;
  return {measure::quantile(times_us, 0.5), measure::quantile(times_us, kTenth),
          measure::quantile(times_us, 1 - kTenth), static_cast<std::int64_t>(times_us.size())};
}

Json to_json(const Timing& timing) {
  return {{"median", timing.median_us},
          {"p10", timing.p10_us},
          {"p90", timing.p90_us},
          {"runs", timing.num_runs}};
}

}  // namespace octavo::cli
