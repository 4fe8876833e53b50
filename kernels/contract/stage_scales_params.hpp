// SPDX-License-Identifier: Apache-2.0
// Run-time arguments of kernels/gemm/stage_scales.cuh, and the tiles it works in, for host and
// device. Strides are in elements.
#pragma once

#include "kernels/contract/gemm_params.hpp"

namespace octavo {

struct StageScalesParams {
  ScaleParams from;  // of the first matrix
  long long from_batch_stride;
  float* to;  // neighbouring rows adjacent
  long long to_k_stride;
  long long to_batch_stride;
  long long batch;
  long long rows;  // of the operand, or its blocks of 128 rows
  long long k_blocks;
};

inline constexpr int kStageScalesThreads = 256;

// A thread block turns one square at a time around.
inline constexpr int kScaleSquare = 32;

[[nodiscard]] constexpr long long num_scale_squares(const StageScalesParams& params) noexcept {
  return params.batch * ((params.rows + kScaleSquare - 1) / kScaleSquare) *
         ((params.k_blocks + kScaleSquare - 1) / kScaleSquare);
}

}  // namespace octavo
