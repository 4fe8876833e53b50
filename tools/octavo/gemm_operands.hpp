// SPDX-License-Identifier: Apache-2.0
// The memory behind a product: random operands quantized with its recipe, or operands from a file.
#pragma once

#include <cstdint>
#include <string>

#include "gemm_request.hpp"
#include "host_tensor.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cli {

struct GemmOperands {
  // What was drawn, in F32, before quantization; absent if operands came from a file.
  HostTensor exact_a;
  HostTensor exact_b;

  HostTensor a;
  HostTensor b;
  HostTensor a_scale;
  HostTensor b_scale;
  HostTensor bias;   // F32
  HostTensor added;  // what D holds before the product, in D's type; absent unless accumulating
};

[[nodiscard]] GemmOperands make_operands(const GemmRequest& request);

// Writes a, b and their scales to a .safetensors file, whole or not at all.
void save_operands(const GemmOperands& operands, const std::string& path);
// Reads them; sizes and types of `request` become the file's.
[[nodiscard]] GemmOperands load_operands(const std::string& path, GemmRequest& request);

// D as it is before the product: what is added to, or poison.
[[nodiscard]] HostTensor make_output(const GemmRequest& request, const GemmOperands& operands);

// The product as the library sees it.
[[nodiscard]] GemmProblem make_problem(const GemmRequest& request, const GemmOperands& operands,
                                       HostTensor& d, const HostTensor& d_scale);

}  // namespace octavo::cli
