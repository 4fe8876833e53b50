// SPDX-License-Identifier: Apache-2.0
// The vectorised inner loops of blocked attention, chosen at run time for the processor. They know
// rows, tiles and FP32; sequences, pages, masks and threads are blocked_attention.cpp's.
#pragma once

#include <cstdint>

#include "octavo/dtype.hpp"

namespace octavo::cpu {

// FP32 rows that the kernels read or write are padded to a multiple of this: two of the widest
// vectors, which FP8 rows are decoded by.
inline constexpr std::int64_t kRowPadding = 32;
// Query rows that share one pass over K or V while it is decoded in registers.
inline constexpr int kMaxSharedRows = 4;

[[nodiscard]] constexpr std::int64_t padded(std::int64_t num_elems) {
  return (num_elems + kRowPadding - 1) / kRowPadding * kRowPadding;
}

// Rows of K or V, each of `dim` adjacent elements, anywhere in memory.
struct KeyRows {
  DType dtype = DType::kF32;
  std::int64_t dim = 0;
  const void* const* rows = nullptr;
  std::int64_t num_rows = 0;
};

// FP32 rows; stride is the distance between them.
struct FloatRows {
  float* values = nullptr;
  std::int64_t stride = 0;
  std::int64_t num_rows = 0;
};

// scores(r, j) = q(r, :) . keys(j, :), keys decoded in registers. q has at most kMaxSharedRows rows
// of padded(dim) with zeros past dim; scores has room for num_rows rounded up to kRowPadding.
void score_keys(const FloatRows& q, const KeyRows& keys, const FloatRows& scores);

// o(r, :) += sum over j of p(r, j) * values(j, :), values decoded in registers.
void accumulate_values(const FloatRows& p, const KeyRows& values, const FloatRows& o);

// out(j, :) = rows(j, :) as FP32, zeros up to the padding of a pair of vectors.
void decode_rows(const KeyRows& rows, const FloatRows& out);

// out(i, j) = in(j, i) for j < in.num_rows, rounded up to 4, and i < padded(dim).
void transpose_rows(const FloatRows& in, std::int64_t dim, const FloatRows& out);

// c = a * b, or c += a * b: a is [a.num_rows, b.num_rows], b is [b.num_rows, num_cols].
enum class ProductStart : unsigned char { kZero, kFromOutput };
void multiply_rows(const FloatRows& a, const FloatRows& b, std::int64_t num_cols,
                   ProductStart start, const FloatRows& c);

// One row's scores in a tile become probabilities.
struct SoftmaxTile {
  float* scores = nullptr;  // room for `end` rounded up to kRowPadding; probabilities on return
  std::int64_t begin = 0;   // keys [begin, end) take part; the others' probabilities are 0
  std::int64_t end = 0;
  const float* factors = nullptr;  // one per key; scores are multiplied by them first
  // Then, unless 0: scores become cap * tanh(scores). factors and cap hold the soft cap's own
  // factors and log2(e), so that the result is in units of log 2.
  float cap = 0;
  const float* value_scales = nullptr;  // per key, multiplied into the probabilities; may be null
  float largest = 0;                    // of the row before this tile, -inf at first
};

struct SoftmaxSums {
  float largest = 0;  // of the row up to and with this tile
  float sum = 0;      // of this tile's 2^(score - largest), without value_scales
};

[[nodiscard]] SoftmaxSums softmax_tile(const SoftmaxTile& tile);

void scale_values(float* values, std::int64_t num_elems, float factor);
// into[i] += values[i] * factor
void add_scaled(const float* values, std::int64_t num_elems, float factor, float* into);

}  // namespace octavo::cpu
