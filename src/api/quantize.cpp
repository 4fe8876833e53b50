// SPDX-License-Identifier: Apache-2.0
// Public quantization: check the arguments, pick a back end, call it.
#include "octavo/quantize.hpp"

#include "api/select_backend.hpp"
#include "api/validate.hpp"

namespace octavo {

QuantizeReport quantize(const QuantizeProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  const Backend* backend = select_backend("quantize", problem, execution).value();
  return backend->quantize(problem, execution).value();
}

QuantizeReport dequantize(const DequantizeProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  const Backend* backend = select_backend("dequantize", problem, execution).value();
  return backend->dequantize(problem, execution).value();
}

}  // namespace octavo
