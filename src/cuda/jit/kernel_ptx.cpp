// SPDX-License-Identifier: Apache-2.0
// And octavo/name_effect.hpp, which hands it out.
#include "cuda/jit/gemm_source.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"
#include "naming/kernel_name.hpp"
#include "octavo/name_effect.hpp"

namespace octavo {

std::string octavo_kernel_ptx(std::string_view name) {
  return kernel_ptx(gemm_source(parse_kernel_name(name).value())).value();
}

}  // namespace octavo
