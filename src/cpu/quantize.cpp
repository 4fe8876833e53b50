// SPDX-License-Identifier: Apache-2.0
#include "cpu/cpu_quantize.hpp"

namespace octavo::cpu {

Status quantize(const QuantizeProblem&, int) {
  return Error(ErrorCode::kUnsupported, "quantize: not built yet");
}
Status dequantize(const DequantizeProblem&, int) {
  return Error(ErrorCode::kUnsupported, "dequantize: not built yet");
}

}  // namespace octavo::cpu
