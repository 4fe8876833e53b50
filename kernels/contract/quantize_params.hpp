// SPDX-License-Identifier: Apache-2.0
// What host and device share of the kernels in kernels/quantize: which there are, how much one
// thread block takes, and their run-time arguments. Strides are in elements.
#pragma once

#include <octavo/dtype.hpp>
#include <octavo/scale.hpp>

namespace octavo {

enum class QuantizeStep : unsigned char {
  kAmax,      // the tensor's largest finite magnitude, one part for each thread block
  kTensor,    // quantizes with the scale that these parts lead to, and writes it
  kShortRow,  // a warp takes a row
  kRow,       // a thread block takes a row
  kLongRow,   // the same for rows that registers cannot hold: x is read twice
  kBlock1x128,
  kBlock128x128,
  kGiven,  // quantizes with given scales of any granularity
  kDequantize,
};

enum class QuantizeAccess : unsigned char {
  kVectors,   // rows of both matrices are contiguous and aligned to a chunk
  kElements,  // any strides
};

// Every compile-time knob of such a kernel.
struct QuantizeConfig {
  QuantizeStep step = QuantizeStep::kRow;
  DType x = DType::kBF16;  // BF16, F16 or F32
  DType q = DType::kE4M3;  // E4M3 or E5M2; kAmax does not depend on it
  QuantizeAccess access = QuantizeAccess::kVectors;

  friend constexpr bool operator==(const QuantizeConfig&, const QuantizeConfig&) = default;
};

// Elements that a thread moves together: 16 bytes of BF16 or F16, 32 of F32.
inline constexpr int kQuantizeChunk = 8;
inline constexpr int kLanesPerBlock = kScaleBlock / kQuantizeChunk;
inline constexpr int kQuantizeWarp = 32;

// Chunks that a thread holds at once, in registers. PERF: four leave room for more threads than
// eight do (1 to 3 % on an H200); of codes, which are shorter, eight must be on their way.
inline constexpr int kChunksPerThread = 4;
[[nodiscard]] constexpr int dequantize_chunks(DType x) noexcept { return x == DType::kF32 ? 4 : 8; }

// The longest row of kRow.
inline constexpr int kMaxRegisterRow = 32768;

// PERF: with 1024 threads the step without vectors spills.
inline constexpr int kLongRowThreads = 512;
inline constexpr int kMaxBlockThreads = 1024;
inline constexpr int kQuantizeThreads = 256;

// Threads of a thread block at most; kRow starts as many as a row needs.
[[nodiscard]] constexpr int quantize_threads(const QuantizeConfig& config) noexcept {
  switch (config.step) {
    case QuantizeStep::kRow: return kMaxRegisterRow / kQuantizeChunk / kChunksPerThread;
    case QuantizeStep::kLongRow: return kLongRowThreads;
    case QuantizeStep::kBlock128x128: return kScaleBlock * kLanesPerBlock / kChunksPerThread;
    default: return kQuantizeThreads;
  }
}

// The tile of the kernels that take any part of a matrix (kAmax, kTensor, kBlock1x128, kGiven,
// kDequantize): warps two abreast, each with as many rows as a thread has chunks.
inline constexpr int kTileWarpCols = 2;
inline constexpr int kTileWarpRows = kQuantizeThreads / kQuantizeWarp / kTileWarpCols;
inline constexpr int kTileCols = kTileWarpCols * kQuantizeWarp * kQuantizeChunk;
[[nodiscard]] constexpr int quantize_tile_rows(const QuantizeConfig& config) noexcept {
  const bool is_quantize = config.step != QuantizeStep::kDequantize;
  return kTileWarpRows * (is_quantize ? kChunksPerThread : dequantize_chunks(config.x));
}

// The tile of kBlock1x128 where scales of neighbouring blocks lie together: each warp has a row,
// and a lane's chunks follow each other there.
inline constexpr int kLongTileRows = kQuantizeThreads / kQuantizeWarp;
inline constexpr int kLongTileStep = kQuantizeWarp * kQuantizeChunk;
inline constexpr int kLongTileCols = kLongTileStep * kChunksPerThread;

struct QuantizeParams {
  void* x;      // not written by quantization
  void* q;      // not written by dequantization
  void* scale;  // null: the scale is 1
  long long rows;
  long long cols;
  long long x_row_stride;
  long long x_col_stride;
  long long q_row_stride;
  long long q_col_stride;
  // Element (row, col) has scale (row >> row_shift) * row_stride + (col >> col_shift) * col_stride.
  long long scale_row_stride;
  long long scale_col_stride;
  int scale_row_shift;
  int scale_col_shift;
  float* partial_amax;
  int num_partials;
  float amax_floor;
  unsigned char scale_is_ue8m0;
  unsigned char has_long_tiles;  // kBlock1x128
};

}  // namespace octavo
