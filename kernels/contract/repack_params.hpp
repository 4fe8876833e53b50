// SPDX-License-Identifier: Apache-2.0
// Run-time arguments of kernels/gemm/repack_operand.cuh, and the tiles it works in, for host and
// device. Strides are in elements, which are bytes.
#pragma once

namespace octavo {

// How the given operand lies in memory.
enum class RepackFrom : unsigned char {
  kRows,     // rows are contiguous along K, at any alignment
  kColumns,  // contiguous along M or N: transposed through shared memory
  kAny,      // neither: element by element
};

struct RepackParams {
  const void* from;
  void* to;  // K-major, 16-byte aligned
  long long batch;
  long long rows;
  long long k;
  long long from_batch_stride;
  long long from_row_stride;
  long long from_k_stride;
  long long to_batch_stride;
  long long to_row_stride;  // a multiple of kRepackAlignment, at least k
  RepackFrom layout;
};

// FP8 wgmma reads rows of 16-byte units (PTX ISA, "wgmma", matrix layouts).
inline constexpr int kRepackAlignment = 16;

inline constexpr int kRepackThreads = 256;
// Thread blocks that a multiprocessor holds at once: more have too few registers for their loads.
inline constexpr int kRepackBlocks = 4;

// What a thread block copies at a time. Columns: a square that shared memory turns around; rows:
// one stretch of a row for each warp.
inline constexpr int kRepackTile = 128;
inline constexpr int kRepackStretch = 1024;

// Pieces of work of one launch; thread blocks take them in turn.
[[nodiscard]] constexpr long long num_repack_tiles(const RepackParams& params) noexcept {
  constexpr int kWarps = kRepackThreads / 32;
  if (params.layout == RepackFrom::kColumns) {
    return params.batch * ((params.rows + kRepackTile - 1) / kRepackTile) *
           ((params.to_row_stride + kRepackTile - 1) / kRepackTile);
  }
  const long long stretches = (params.to_row_stride + kRepackStretch - 1) / kRepackStretch;
  return (params.batch * params.rows * stretches + kWarps - 1) / kWarps;
}

}  // namespace octavo
