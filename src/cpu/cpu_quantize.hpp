// SPDX-License-Identifier: Apache-2.0
// Quantize and dequantize on the CPU. Problems are validated.
#pragma once

#include "octavo/error.hpp"
#include "octavo/quantize.hpp"

namespace octavo::cpu {

Status quantize(const QuantizeProblem& problem, int num_threads);
Status dequantize(const DequantizeProblem& problem, int num_threads);

}  // namespace octavo::cpu
