// SPDX-License-Identifier: Apache-2.0
// The kernel that a QuantizeConfig names: the one entry to this folder.
#pragma once

#include "kernels/contract/quantize_params.hpp"
#include "kernels/quantize/quantize_128x128.cuh"
#include "kernels/quantize/quantize_row.cuh"
#include "kernels/quantize/quantize_tile.cuh"

namespace octavo {

template <QuantizeConfig kConfig>
__device__ __forceinline__ void quantize(const QuantizeParams& params) {
  constexpr DType kX = kConfig.x;
  constexpr DType kQ = kConfig.q;
  constexpr QuantizeAccess kAccess = kConfig.access;
  if constexpr (kConfig.step == QuantizeStep::kAmax) amax_of_parts<kX, kAccess>(params);
  if constexpr (kConfig.step == QuantizeStep::kTensor) quantize_tensor<kX, kQ, kAccess>(params);
  if constexpr (kConfig.step == QuantizeStep::kShortRow) {
    quantize_short_rows<kX, kQ, kAccess>(params);
  }
  if constexpr (kConfig.step == QuantizeStep::kRow) quantize_row<kX, kQ, kAccess>(params);
  if constexpr (kConfig.step == QuantizeStep::kLongRow) quantize_long_row<kX, kQ, kAccess>(params);
  if constexpr (kConfig.step == QuantizeStep::kBlock1x128) quantize_1x128<kX, kQ, kAccess>(params);
  if constexpr (kConfig.step == QuantizeStep::kBlock128x128) {
    quantize_128x128<kX, kQ, kAccess>(params);
  }
  if constexpr (kConfig.step == QuantizeStep::kGiven) quantize_given<kX, kQ, kAccess>(params);
  if constexpr (kConfig.step == QuantizeStep::kDequantize) dequantize<kX, kQ, kAccess>(params);
}

}  // namespace octavo
