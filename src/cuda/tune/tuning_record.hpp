// SPDX-License-Identifier: Apache-2.0
// What a tuning record holds for, and its text. Needs no GPU.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/contract/gemm_config.hpp"
#include "octavo/error.hpp"
#include "octavo/gemm.hpp"
#include "octavo/runtime.hpp"
#include "octavo/tuning.hpp"

namespace octavo::cuda {

// The largest M of the bucket that `m` belongs to.
[[nodiscard]] std::int64_t row_bucket(std::int64_t m);

[[nodiscard]] std::string environment_key(const GpuDescription& gpu);
// `config`: any candidate of its plan. They have in common the splits, what the kernel itself
// writes (F32 sums where another finishes D) and what it adds.
[[nodiscard]] std::string problem_key(const GemmProblem& problem, const GpuDescription& gpu,
                                      const GemmConfig& config);

// Lines, the last of them a SHA-256 over the others.
[[nodiscard]] std::string to_text(const TuningRecord& record);
// Any number of them, one after another. The text may be anything: an error names the line.
[[nodiscard]] Result<std::vector<TuningRecord>> parse_records(std::string_view text);

}  // namespace octavo::cuda
