// SPDX-License-Identifier: Apache-2.0
// Runs one product, times it, and judges the result against FP64 arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "error_bounds.hpp"
#include "gemm_operands.hpp"
#include "gemm_request.hpp"
#include "octavo/metrics.hpp"
#include "timing.hpp"

namespace octavo::cli {

enum class CheckScope : std::uint8_t {
  kAuto,  // every row, or evenly spaced ones where FP64 loops would take many seconds
  kAll,
  kNone,
};

inline constexpr std::array kCheckScopes{CheckScope::kAuto, CheckScope::kAll, CheckScope::kNone};

[[nodiscard]] constexpr const char* to_string(CheckScope scope) noexcept {
  switch (scope) {
    case CheckScope::kAuto: return "auto";
    case CheckScope::kAll: return "all";
    case CheckScope::kNone: return "none";
  }
  return "?";
}

struct GemmCheck {
  std::int64_t rows = 0;              // of each product that were compared
  ErrorMetrics error;                 // against FP64 on the same quantized operands
  std::optional<ErrorMetrics> exact;  // against FP64 on what was drawn, before quantization
  double judged_error = 0;            // what is held against the bound
  // Elements of those rows that differ from the emulated tensor core's; of a GPU's result alone,
  // whose every bit is defined (docs/numerics.md).
  std::optional<std::int64_t> different_from_emulation;
  ErrorBound bound;
  bool within = false;
};

// What a time is of.
enum class TimeSource : std::uint8_t {
  kWallClock,  // a call, from before to after it
  kGpuEvents,  // the GPU's work alone: events around the replay of a graph of one call
};

struct GemmTrial {
  TimeSource time_source = TimeSource::kWallClock;
  GemmReport report;
  Timing timing;
  std::optional<GemmCheck> check;
};

[[nodiscard]] GemmTrial run_gemm_trial(const GemmRequest& request, const GemmOperands& operands,
                                       const ExecutionRequest& how, std::int64_t num_runs,
                                       CheckScope scope);

[[nodiscard]] Json to_json(const ErrorMetrics& metrics);

}  // namespace octavo::cli
