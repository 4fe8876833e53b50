// SPDX-License-Identifier: Apache-2.0
// Every run-time argument of a GEMM kernel, once, for host and device.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/rasterization.hpp"

namespace octavo {

// A CUtensorMap as the driver encodes it.
struct alignas(64) TensorMap {
  unsigned char bytes[128];
};

// How the scales of block recipes get to shared memory.
enum class ScalePath : unsigned char {
  kBulk,    // F32, neighbouring rows adjacent, from whole vectors on: with the tiles (not streamed)
  kCopy,    // F32 in any strides: by a warp of their own
  kDecode,  // UE8M0: by that warp, too
};

// Scales of one operand, F32 or UE8M0, in any strides (in elements).
struct ScaleParams {
  const void* data;
  long long row_stride;    // from one row of the operand, or one block of 128 rows, to the next
  long long k_stride;      // from one K-block to the next
  unsigned char is_ue8m0;  // 1: a byte e means 2^(e - 127); 0: F32
};

// D[m, n] = epilogue(A[m, k] B[n, k]^T). Strides are in elements.
struct GemmParams {
  TensorMap a;  // [m, k], box tile_m / cluster_n rows of 128 bytes, 128-byte swizzle
  TensorMap b;  // [n, k], box tile_n / cluster_m rows
  TensorMap d;  // [m, n], box 64 rows of 128 bytes; unused if stores_directly or streamed
  ScaleParams a_scale;
  ScaleParams b_scale;
  void* output;
  long long output_stride;  // from one row to the next
  const void* bias;         // [n], of bias_dtype
  long long bias_stride;
  int m;
  int n;
  int k;
  Rasterization raster;
  ScalePath scale_path;           // the same for all products of a launch
  unsigned char bias_dtype;       // a DType
  unsigned char stores_directly;  // 1: element by element, for outputs that TMA cannot write
  unsigned char loads_b_early;    // 1: B is there before the kernels before have ended (streamed)
};

// Counters of tiles that were drawn (tile_tickets.cuh), in every module that draws: one for each
// stream that has launched such a kernel and for each launch that was captured.
inline constexpr int kTileCounters = 65536;

// Grouping::kRows. Group g multiplies rows of A by matrix g of B. The rows of all groups follow one
// another, or each group has a matrix of its own in A and D. What a list in device memory says is
// cut off at the bounds that it must obey: nothing outside of A and D is touched.
struct GroupedGemmParams {
  // Its maps are of 3-D tensors, [groups or 1, rows, columns]; m: rows of A, or of each of its
  // matrices; its addresses and those of scales: group 0's.
  GemmParams gemm;
  TensorMap a_parts;  // as gemm.a, box 64 rows. (Not streamed.)
  const int* ends;  // [num_groups]: the row behind each group's last; null: a matrix to each group
  const int* rows;  // [num_groups]: how many of its rows count, from the first; null: all of them
  int num_groups;
  int tile_counter;  // this launch's of kTileCounters; negative: tiles in turn
  // From one group to the next; 0 where all rows follow one another.
  long long a_scale_bytes;
  long long b_scale_bytes;
  long long output_bytes;
  long long bias_bytes;
};

// Grouping::kProducts. A launch's arguments take up to 32,764 bytes (CUDA C++ programming guide,
// "__global__ function parameters").
inline constexpr int kMaxFusedProducts = 44;
struct FusedGemmParams {
  int count;
  int tile_counter;  // as of groups
  GemmParams products[kMaxFusedProducts];
  TensorMap a_parts[kMaxFusedProducts];  // as of groups
};

static_assert(sizeof(FusedGemmParams) <= 32764);

// The argument of a kernel.
template <Grouping grouping>
struct GemmArgumentsOf {
  using Type = GemmParams;
};
template <>
struct GemmArgumentsOf<Grouping::kRows> {
  using Type = GroupedGemmParams;
};
template <>
struct GemmArgumentsOf<Grouping::kProducts> {
  using Type = FusedGemmParams;
};
template <GemmConfig config>
using GemmArguments = typename GemmArgumentsOf<config.grouping>::Type;

}  // namespace octavo
