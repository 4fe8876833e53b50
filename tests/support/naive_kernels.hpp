// SPDX-License-Identifier: Apache-2.0
// The teaching kernels (kernels/naive) as translation units for the JIT.
#pragma once

#include <string>

#include "cuda/jit/compiled_kernel.hpp"

namespace octavo::test {

struct NaiveKernel {
  const char* name;  // also the header's, without its suffix
  unsigned block_x;  // threads
  unsigned block_y;
  int tile_m;  // of D, for one block
  int tile_n;

  [[nodiscard]] KernelSource source() const {
    const std::string entry = std::string("octavo_") + name;
    return {entry, std::string("#include \"kernels/naive/") + name +
                       ".cuh\"\nextern \"C\" __global__ void __launch_bounds__(" +
                       std::to_string(block_x * block_y) + ")\n" + entry +
                       "(const __grid_constant__ octavo::NaiveGemmParams params) {\n  octavo::" +
                       name + "(params);\n}\n"};
  }
};

inline constexpr NaiveKernel kNaiveGemm{"naive_gemm", 16, 16, 16, 16};
inline constexpr NaiveKernel kTiledGemm{"tiled_gemm", 32, 32, 32, 32};
inline constexpr NaiveKernel kWgmmaGemm{"wgmma_gemm", 128, 1, 64, 128};

}  // namespace octavo::test
