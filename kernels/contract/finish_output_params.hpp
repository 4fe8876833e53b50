// SPDX-License-Identifier: Apache-2.0
// Run-time arguments of kernels/gemm/finish_output.cuh. Strides are in elements.
#pragma once

namespace octavo {

struct FinishOutputParams {
  // The product's scaled sums, [m, n] of a padded row stride; null where K is 0 and there are none.
  const float* sums;
  long long sums_stride;
  void* output;  // D, of output_dtype
  long long m;
  long long n;
  long long output_row_stride;
  long long output_col_stride;
  const void* bias;  // [n], of bias_dtype; null for none
  long long bias_stride;
  const float* output_scale;  // D is divided by it; null for 1
  unsigned char output_dtype;
  unsigned char bias_dtype;
  unsigned char accumulates;
  unsigned char down_columns;  // 1: D's rows are nearer to each other in memory than its columns
};

inline constexpr int kFinishThreads = 256;
inline constexpr int kFinishBlocks = 5;  // that a multiprocessor holds at once

// What is finished at a time: of a D with contiguous rows, one stretch of a row for each warp; of
// others, a square for each thread block.
inline constexpr int kFinishStretch = 256;
inline constexpr int kFinishTile = 32;

// Pieces of work of one launch; thread blocks take them in turn.
[[nodiscard]] constexpr long long num_finish_tiles(const FinishOutputParams& params) noexcept {
  constexpr int kWarps = kFinishThreads / 32;
  if (params.output_col_stride == 1) {
    return (params.m * ((params.n + kFinishStretch - 1) / kFinishStretch) + kWarps - 1) / kWarps;
  }
  return ((params.m + kFinishTile - 1) / kFinishTile) *
         ((params.n + kFinishTile - 1) / kFinishTile);
}

}  // namespace octavo
