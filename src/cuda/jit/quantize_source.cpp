// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/quantize_source.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "naming/quantize_name.hpp"

namespace octavo {
KernelSource quantize_source(const QuantizeConfig& config) {
  std::string name = quantize_kernel_name(config);
  const auto number = [](auto value) { return static_cast<int>(value); };
  std::string text = fmt::format(
      "#include \"kernels/quantize/quantize.cuh\"\n"
      "extern \"C\" __global__ void __launch_bounds__({})\n"
      "{}(const __grid_constant__ octavo::QuantizeParams params) {{\n"
      "  octavo::quantize<octavo::QuantizeConfig{{octavo::QuantizeStep({}), octavo::DType({}), "
      "octavo::DType({}), octavo::QuantizeAccess({})}}>(params);\n}}\n",
      quantize_threads(config), name, number(config.step), number(config.x), number(config.q),
      number(config.access));
  return {std::move(name), std::move(text)};
}

}  // namespace octavo
