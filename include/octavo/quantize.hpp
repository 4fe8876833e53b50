// SPDX-License-Identifier: Apache-2.0
// To FP8 and back: whole matrices with a scale granularity, and single values.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "octavo/backend.hpp"
#include "octavo/scale.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo {

// q = encode(x * (1 / scale)), scale = max(amax, amax_floor) / max_finite(q), all in FP32 with
// round to nearest even; amax is over the group's finite elements. With UE8M0 scales, scale is then
// rounded up to a power of two in [2^-126, 2^127]. Values out of range and infinities saturate to
// the largest finite code. NaN becomes 0x7F at its own place and touches no other element. A ragged
// last block uses only its real elements.
struct QuantizeProblem {
  TensorView x;         // [rows, cols] BF16, F16 or F32, any strides
  MutableTensorView q;  // [rows, cols] E4M3 or E5M2, any strides
  ScaleGranularity granularity = ScaleGranularity::kRow;  // not kNone
  // F32 or UE8M0, shaped as octavo/scale.hpp says; written (kDynamic) or read (kGiven).
  MutableTensorView scale;
  ScaleSource scale_source = ScaleSource::kDynamic;
  float amax_floor = kDefaultAmaxFloor;  // finite, >= 2^-100 so that every scale stays normal
};

struct DequantizeProblem {
  TensorView q;      // [rows, cols] E4M3 or E5M2
  TensorView scale;  // as quantize() wrote it; absent if granularity is kNone
  ScaleGranularity granularity = ScaleGranularity::kRow;
  MutableTensorView x;  // [rows, cols] BF16, F16 or F32: decode(q) * scale, rounded once
};

struct QuantizeReport {
  std::string backend;
  std::string kernel;
};

// Throws Error as gemm() does. Given scales that are not finite, positive and from 2^-126 to 2^126
// (so that their reciprocals are normal), and scales to dequantize with that are not finite and
// positive, are an error naming the value and its position. Without rows or columns no code is
// written; every element of the scale tensor is, as for an amax of 0.
// On "cuda" the work is put on execution.stream. Scales that are read there lie in device memory
// and are trusted: quantize() multiplies by 1 / scale in FP32 and dequantize() by the scale,
// whatever these are, so that a NaN scale gives NaN and one of 0 the largest codes (and NaN for 0).
QuantizeReport quantize(const QuantizeProblem& problem, const Execution& execution = {});
QuantizeReport dequantize(const DequantizeProblem& problem, const Execution& execution = {});

// One value. Encoding rounds to nearest even and saturates, as the GPU's cvt.rn.satfinite does; NaN
// gives 0x7F. UE8M0 rounds up (CUDA's rule: 0 and below 2^-127 give 0x00, the sign is ignored, NaN
// gives 0xFF). F16, BF16, F32: the type's own bits, rounded to nearest even.
[[nodiscard]] std::uint32_t encode(DType dtype, float value);
[[nodiscard]] float decode(DType dtype, std::uint32_t code);

// Weights whose 128x128 blocks have FP32 scales, re-quantized for UE8M0 ones: scale and codes
// change together (rounding the scale alone would inflate a block by up to 2). In place is allowed.
// On "cuda" it allocates an FP32 copy of up to 256 MiB (of the whole matrix for one scale per
// tensor) and waits for the device: it prepares weights and cannot be part of a graph capture.
struct RequantizeProblem {
  TensorView q;
  TensorView scale;
  ScaleGranularity granularity = ScaleGranularity::kBlock128x128;
  MutableTensorView new_q;
  MutableTensorView new_scale;
};
QuantizeReport requantize(const RequantizeProblem& problem, const Execution& execution = {});

}  // namespace octavo
