// SPDX-License-Identifier: Apache-2.0
// The names of the kernels in kernels/quantize, as of products in kernel_name.hpp:
//
//   octavo_sm90_amax_<x>_<access>
//   octavo_sm90_quantize_<step>_<x>_<q>_<access>
//   octavo_sm90_dequantize_<q>_<x>_<access>
//
//   <x>: bf16|f16|f32   <q>: e4m3|e5m2   <access>: vectors|elements
//   <step>: tensor|shortrow|row|longrow|1x128|128x128|given
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/contract/quantize_params.hpp"
#include "octavo/error.hpp"
#include "octavo/naming.hpp"

namespace octavo {

[[nodiscard]] std::string quantize_kernel_name(const QuantizeConfig& config);

// Exactly what quantize_kernel_name() writes for some config, or kInvalidArgument. (An amax
// kernel's q, which it does not depend on, is E4M3.)
[[nodiscard]] Result<QuantizeConfig> parse_quantize_name(std::string_view name);

// Every config, each name once.
[[nodiscard]] const std::vector<QuantizeConfig>& quantize_configs();

// step (amax, dequantize or as above), x, q (but of amax), access.
[[nodiscard]] std::vector<NameField> fields_of(const QuantizeConfig& config);
// What is left out is as in QuantizeConfig{}.
[[nodiscard]] Result<QuantizeConfig> quantize_config_of(std::span<const NameField> fields);

}  // namespace octavo
