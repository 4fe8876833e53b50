// SPDX-License-Identifier: Apache-2.0
// A GEMM kernel's config spelled out as its name, and back. The name is the kernel's entry symbol,
// its file's stem in the cache and its row in benchmarks and profilers. It says nothing of whether
// such a kernel can be built or run: that is for plans. The knobs:
// kernels/contract/gemm_config.hpp.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "kernels/contract/gemm_config.hpp"
#include "octavo/error.hpp"

namespace octavo {

// The grammar; words are joined by "_", what stands in [ ] may be left out, | parts alternatives:
//
//   octavo_sm90_gemm                  library, architecture, operation
//   <scale>f32x<input>                A: how it is scaled, by scales in f32, and its type
//   <scale>f32x<input>                B
//   f32|f32fast                       MainloopSum: kPromoted | kFast
//   bf16|f16|f32                      D
//   <tile_m>x<tile_n>x<tile_k>
//   <cluster_m>x<cluster_n>
//   s<stages>
//   u<unroll_k>
//   tnt                               A and D row-major, B column-major
//   cooperative|pingpong|streamed     two consumers share a tile | have one each | operands swapped
//   alongn<raster_group_m>            neighbouring thread blocks go on along N
//   [split<num_splits>]               from 2 on
//   [grouped|fused]                   Grouping: kRows | kProducts
//   [accumulate]                      GemmConfig::accumulates
//   [bias]                            GemmConfig::has_bias
//
//   <scale>: none|tensor|row|1x128|128x128, and A's with B's must be a ScaleRecipe
//   <input>: e4m3|e5m2
//   numbers: decimal, from 1 to kMaxKernelNameNumber, without sign or leading zeros
//   f32fast does not go with 1x128: every 128 of K has scales of its own there.
//
// One name per recipe (kBlock, kBlock1d, kRow, kTensor, kNone):
//
//   octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_256x128x128_1x2_s3_u4_tnt_cooperative_alongn8
//   octavo_sm90_gemm_1x128f32xe5m2_1x128f32xe4m3_f32_f32_128x128x128_1x2_s5_u4_tnt_cooperative_alongn8_accumulate
//   octavo_sm90_gemm_rowf32xe4m3_rowf32xe4m3_f32fast_bf16_128x176x128_2x1_s5_u4_tnt_pingpong_alongn16
//   octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe5m2_f32fast_f16_128x256x128_2x1_s4_u2_tnt_cooperative_alongn8_bias
//   octavo_sm90_gemm_nonef32xe4m3_nonef32xe4m3_f32fast_f32_16x64x128_1x1_s5_u1_tnt_streamed_alongn8_split4_accumulate_bias
//
// So every field of GemmConfig is in the name and nothing else is, and a valid name is a C
// identifier. For valid c and s: parse_kernel_name(kernel_name(c)) == c, and
// kernel_name(parse_kernel_name(s)) == s.

// Far above what any of the numbers can mean on Hopper; it bounds the name's length.
inline constexpr int kMaxKernelNameNumber = 9999;

// No valid name is longer: the longest has 157 bytes.
inline constexpr std::size_t kMaxKernelNameBytes = 160;

// A config outside the grammar (a number out of range, D in FP8, fast sums of block scales) gives
// text that parse_kernel_name() refuses, never another config's name.
[[nodiscard]] std::string kernel_name(const GemmConfig& config);

// Exactly what kernel_name() writes for some config, or kInvalidArgument.
[[nodiscard]] Result<GemmConfig> parse_kernel_name(std::string_view name);

}  // namespace octavo
