// SPDX-License-Identifier: Apache-2.0
// Who takes part in a run of GPU products, what is known of each afterwards, and the rows and the
// summary of the result file that come of it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gpu_bench_inputs.hpp"
#include "measure/gpu_stream.hpp"
#include "measure/nvml_sampler.hpp"
#include "measure/quantile.hpp"
#include "octavo/octavo.hpp"
#include "session.hpp"

namespace octavo::cli {

inline constexpr const char* kYardstick = "cublaslt_tensor_fast";
inline constexpr std::int64_t kLargeM = 1024;

enum class Maker { kOctavo, kCublasLt };

struct ContenderKind {
  const char* name;
  Maker maker;
  ScaleRecipe recipe;
  Accumulation accumulation;
};

inline constexpr std::array kKinds{
    ContenderKind{kYardstick, Maker::kCublasLt, ScaleRecipe::kTensor, Accumulation::kFast},
    ContenderKind{"octavo_block", Maker::kOctavo, ScaleRecipe::kBlock, Accumulation::kPromoted},
    ContenderKind{"octavo_tensor_fast", Maker::kOctavo, ScaleRecipe::kTensor, Accumulation::kFast},
    ContenderKind{"octavo_row_fast", Maker::kOctavo, ScaleRecipe::kRow, Accumulation::kFast},
    ContenderKind{"octavo_tensor_promoted", Maker::kOctavo, ScaleRecipe::kTensor,
                  Accumulation::kPromoted},
    ContenderKind{"cublaslt_tensor", Maker::kCublasLt, ScaleRecipe::kTensor,
                  Accumulation::kPromoted},
    ContenderKind{"cublaslt_block", Maker::kCublasLt, ScaleRecipe::kBlock, Accumulation::kPromoted},
};

struct Contender {
  const ContenderKind* kind = nullptr;
  std::string kernel;
  // Puts the product of an input set on the stream.
  std::function<void(const InputSet& set)> enqueue;
  std::string skipped_because;  // empty if it is timed
  Json error = nullptr;
  std::unique_ptr<measure::Graph> graph;
  std::int64_t num_replays = 1;  // a window
  int num_splits = 1;
  std::vector<double> us;  // a product, each window's mean
  std::vector<measure::TimeWindow> windows;
};

inline std::string text_of(BenchShape shape) {
  return fmt::format("{:5} x {:5} x {:5}", shape.m, shape.n, shape.k);
}

inline Json known(double value, bool is_known) { return is_known ? Json(value) : Json(); }

inline Json rows_of(BenchShape shape, std::size_t num_sets,
                    const std::vector<Contender>& contenders, const measure::NvmlSampler& sampler) {
  double yardstick = 0;
  for (const Contender& contender : contenders) {
    if (contender.kind->name == std::string_view(kYardstick) && !contender.us.empty()) {
      yardstick = measure::quantile(contender.us, 0.5);
    }
  }
  const auto product = [](std::int64_t a, std::int64_t b) { return static_cast<double>(a * b); };
  const double bytes =
      product(shape.m, shape.k) + product(shape.n, shape.k) + 2 * product(shape.m, shape.n);
  const double operations = 2 * product(shape.m, shape.n) * static_cast<double>(shape.k);
  Json rows = Json::array();
  for (const Contender& contender : contenders) {
    const bool timed = !contender.us.empty();
    const double us = timed ? measure::quantile(contender.us, 0.5) : 1;
    const bool has_ratio = timed && yardstick > 0;
    const measure::ClockAndPower load = sampler.medians(contender.windows);
    Json row = {{"problem",
                 {{"op", "gemm"},
                  {"m", shape.m},
                  {"n", shape.n},
                  {"k", shape.k},
                  {"recipe", to_string(contender.kind->recipe)},
                  {"accumulation", to_string(contender.kind->accumulation)}}},
                {"contender", contender.kind->name},
                {"kernel", contender.kernel},
                {"us", nullptr},
                {"tflops", known(operations / us * 1e-6, timed)},
                {"gbps", known(bytes / us * 1e-3, timed)},
                {"roofline_pct", nullptr},
                {"ratio_to_yardstick", known(yardstick / us, has_ratio)},
                {"yardstick", has_ratio ? Json(kYardstick) : Json()},
                {"error", contender.error},
                {"sm_clock_mhz", known(load.sm_clock_mhz, timed && load.num_samples > 0)},
                {"power_w", known(load.power_w, timed && load.num_samples > 0)},
                {"input_sets", num_sets},
                {"skipped", nullptr},
                {"repeat", nullptr}};
    if (timed) {
      row["us"] = {{"median", us},
                   {"p10", measure::quantile(contender.us, 0.1)},
                   {"p90", measure::quantile(contender.us, 0.9)}};
    } else {
      row["skipped"] = contender.skipped_because;
    }
    rows.push_back(std::move(row));
  }
  return rows;
}

// Geometric means of the ratios, for each contender and class of shapes.
inline Json summary_of(const Json& rows) {
  struct Ratios {
    double log_sum = 0;
    double least = 0;
    int count = 0;
  };
  std::map<std::pair<std::string, bool>, Ratios> all;
  for (const Json& row : rows) {
    if (row.at("ratio_to_yardstick").is_null()) continue;
    const double ratio = row.at("ratio_to_yardstick");
    const bool large = row.at("problem").at("m").get<std::int64_t>() >= kLargeM;
    Ratios& ratios = all[{row.at("contender").get<std::string>(), large}];
    ratios.log_sum += std::log(ratio);
    ratios.least = ratios.count == 0 ? ratio : std::min(ratios.least, ratio);
    ++ratios.count;
  }
  Json summary = Json::array();
  for (const auto& [key, ratios] : all) {
    summary.push_back({{"contender", key.first},
                       {"shapes", key.second ? "M >= 1024" : "M < 1024"},
                       {"num_shapes", ratios.count},
                       {"geomean_ratio", std::exp(ratios.log_sum / ratios.count)},
                       {"least_ratio", ratios.least}});
  }
  return summary;
}

// A row as a line of text; empty if it was not timed.
inline std::string line_of(const Json& row) {
  if (row.at("us").is_null()) return "";
  const Json& problem = row.at("problem");
  const auto number = [&row](const char* key) {
    return row.at(key).is_null() ? 0.0 : row.at(key).get<double>();
  };
  return fmt::format(
      "{} {:24} {:8.1f} us ({:.1f} to {:.1f}) {:7.0f} TFLOP/s {:6.0f} GB/s x{:.3f} {:4.0f} MHz "
      "{:3.0f} W\n",
      text_of({problem.at("m"), problem.at("n"), problem.at("k")}),
      row.at("contender").get<std::string>(), row.at("us").at("median").get<double>(),
      row.at("us").at("p10").get<double>(), row.at("us").at("p90").get<double>(), number("tflops"),
      number("gbps"), number("ratio_to_yardstick"), number("sm_clock_mhz"), number("power_w"));
}

inline std::string summary_text(const Json& summary) {
  std::string text = fmt::format("\n{:24} {:10} {:>6} {:>8} {:>8}  (speed over {})\n", "contender",
                                 "shapes", "count", "geomean", "least", kYardstick);
  for (const Json& line : summary) {
    text +=
        fmt::format("{:24} {:10} {:6} {:8.3f} {:8.3f}\n", line.at("contender").get<std::string>(),
                    line.at("shapes").get<std::string>(), line.at("num_shapes").get<int>(),
                    line.at("geomean_ratio").get<double>(), line.at("least_ratio").get<double>());
  }
  return text;
}

}  // namespace octavo::cli
