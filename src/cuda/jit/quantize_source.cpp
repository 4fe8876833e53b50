// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/quantize_source.hpp"

#include <fmt/format.h>

#include <utility>

namespace octavo {
namespace {

const char* step_word(QuantizeStep step) {
  switch (step) {
    case QuantizeStep::kAmax: return "amax";
    case QuantizeStep::kTensor: return "tensor";
    case QuantizeStep::kShortRow: return "shortrow";
    case QuantizeStep::kRow: return "row";
    case QuantizeStep::kLongRow: return "longrow";
    case QuantizeStep::kBlock1x128: return "1x128";
    case QuantizeStep::kBlock128x128: return "128x128";
    case QuantizeStep::kGiven: return "given";
    case QuantizeStep::kDequantize: return "dequantize";
  }
  return "?";
}

const char* access_word(QuantizeAccess access) {
  return access == QuantizeAccess::kVectors ? "vectors" : "elements";
}

}  // namespace

std::string quantize_kernel_name(const QuantizeConfig& config) {
  const char* x = to_string(config.x);
  const char* q = to_string(config.q);
  const char* access = access_word(config.access);
  switch (config.step) {
    case QuantizeStep::kAmax: return fmt::format("octavo_sm90_amax_{}_{}", x, access);
    case QuantizeStep::kDequantize:
      return fmt::format("octavo_sm90_dequantize_{}_{}_{}", q, x, access);
    default:
      return fmt::format("octavo_sm90_quantize_{}_{}_{}_{}", step_word(config.step), x, q, access);
  }
}

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
