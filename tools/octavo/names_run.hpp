// SPDX-License-Identifier: Apache-2.0
// Both versions of a kernel on the GPU: whether they write the same, and how long they take.
#pragma once

#include <filesystem>
#include <optional>

#include "octavo/name_effect.hpp"

namespace octavo::cli {

struct NameRunOptions {
  int rounds = 5;
  double window_ms = 40;
};

struct NameRun {
  NameTiming timing;
  double flop = 0;  // of a launch; 0: not known
};

// Nothing if there is no launch file for a kernel that is not Octavo's, its code is for another
// GPU, or it is a kernel of Octavo's for many products. Throws Error where the launch file is wrong
// or the launch fails.
[[nodiscard]] std::optional<NameRun> run_names(const NameEffectReport& report,
                                               const NameComparison& entry,
                                               const std::filesystem::path& ptx,
                                               const NameRunOptions& options);

}  // namespace octavo::cli
