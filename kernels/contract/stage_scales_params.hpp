// SPDX-License-Identifier: Apache-2.0
// Run-time arguments of kernels/gemm/stage_scales.cuh. Strides are in elements.
#pragma once

namespace octavo {

struct StageScalesParams {
  const void* from;
  float* to;
  long long batch;
  long long rows;
  long long cols;
  long long from_batch_stride;
  long long from_row_stride;
  long long from_col_stride;
  long long to_batch_stride;
  long long to_row_stride;
  unsigned char from_is_ue8m0;
};

}  // namespace octavo
