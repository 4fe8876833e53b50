// SPDX-License-Identifier: Apache-2.0
// And octavo/name_effect.hpp, which hands it out.
#include "cuda/jit/gemm_source.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"
#include "cuda/jit/quantize_source.hpp"
#include "naming/kernel_name.hpp"
#include "naming/quantize_name.hpp"
#include "octavo/name_effect.hpp"

namespace octavo {

std::string octavo_kernel_ptx(std::string_view name) {
  const Result<QuantizeConfig> quantize = parse_quantize_name(name);
  if (quantize.ok()) return kernel_ptx(quantize_source(quantize.value())).value();
  return kernel_ptx(gemm_source(parse_kernel_name(name).value())).value();
}

}  // namespace octavo
