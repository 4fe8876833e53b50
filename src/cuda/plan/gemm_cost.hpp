// SPDX-License-Identifier: Apache-2.0
// What a product takes with a kernel, by a model of an H200.
#pragma once

#include <cstdint>

#include "cuda/plan/gemm_plan.hpp"
#include "kernels/contract/gemm_config.hpp"

namespace octavo::cuda {

struct Extents {
  std::int64_t batch;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

// Of a product that is over before it meets the power limit, and whose automatic splits may be
// more than one.
inline constexpr std::int64_t kMaxShortRows = 256;

// The candidate with its costs, of one product of a batch.
[[nodiscard]] GemmCandidate priced(const GemmConfig& config, const Extents& e,
                                   int num_multiprocessors);

}  // namespace octavo::cuda
