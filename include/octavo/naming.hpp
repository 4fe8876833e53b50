// SPDX-License-Identifier: Apache-2.0
// Kernel names. The name of a kernel of Octavo's says everything that was decided when it was
// compiled: it is the entry symbol, the row in benchmarks and what profilers show.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

// One thing that a name says, such as {"tile", "256x128x128"}.
struct NameField {
  std::string field;
  std::string value;

  friend bool operator==(const NameField&, const NameField&) = default;
};

// What the name of a kernel of Octavo's says, in the order in which it says it. Of one that
// quantizes: step (amax, tensor, shortrow, row, longrow, 1x128, 128x128, given, dequantize), x and
// q (types; not of amax), access (vectors, elements). Of a product's: a, b, d (element types),
// recipe, sum (promoted, fast), tile (M x N x K), cluster (M x N), stages, unroll, schedule,
// raster, splits, grouping (none, grouped, fused), accumulate, bias (no, yes). Throws Error
// kInvalidArgument that names the byte at fault.
[[nodiscard]] std::vector<NameField> kernel_name_fields(std::string_view name);

// What the name of anybody's kernel says.
struct KernelNameReading {
  std::string maker;  // octavo, cutlass or nvjet (cuBLASLt)
  // With the names and values of kernel_name_fields() where the field is one of those; others have
  // names of their own, such as accumulator, alignment, epilogue, and layouts of A, B and D.
  std::vector<NameField> fields;
  // In words: what is a guess, what of the name was not understood, what the name does not say.
  std::vector<std::string> notes;
};

// Reads a name of Octavo's, a procedural name of CUTLASS 3 for sm90 and later, or cuBLASLt's nvjet
// names as far as their pattern is known. Throws Error kInvalidArgument that names the byte at
// fault.
[[nodiscard]] KernelNameReading read_kernel_name(std::string_view name);

// The name that says this: of a kernel that quantizes if there is a step among the fields, else of
// a product's. A field that is left out is as in octavo_sm90_quantize_row_bf16_e4m3_vectors or
// octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_256x128x128_1x2_s3_u4_tnt_cooperative_alongn8.
// Throws Error kInvalidArgument if a field is unknown or given twice, or a value is none of it.
[[nodiscard]] std::string kernel_name_of(std::span<const NameField> fields);

// The name of every kernel that a plan for an H200 may choose, each once. (Three that copy or
// finish around a product have no config, and are not in it.) Of products: for E4M3 and E5M2
// operands, every output, recipe and sum, with and without what is added to it, splits, groups and
// fused products.
[[nodiscard]] std::vector<std::string> kernel_catalogue();

}  // namespace octavo
