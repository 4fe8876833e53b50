// SPDX-License-Identifier: Apache-2.0
// Quantize and dequantize: which elements share a scale, and who computes what on which thread. The
// arithmetic is in numerics/scale_math.hpp and numerics/codec_array.hpp; strided rows pass through
// a small buffer, dense ones are read and written in place.
#include <algorithm>
#include <array>
#include <vector>

#include "base/thread_pool.hpp"
#include "cpu/cpu_quantize.hpp"
#include "cpu/element_offset.hpp"
#include "numerics/codec.hpp"
#include "numerics/codec_array.hpp"
#include "numerics/scale_math.hpp"

namespace octavo::cpu {
namespace {

// Elements of a strided row gathered at a time; a multiple of kScaleBlock, small enough for L1.
constexpr std::int64_t kGatherElems = 1024;

// Elements of work below which another thread costs more than it brings.
constexpr std::int64_t kElemsPerTask = 32 * 1024;

// A part of one row.
struct RowSpan {
  std::int64_t row;
  std::int64_t col;
  std::int64_t length;
};

// A part of the matrix with one scale, or what one thread does of it.
struct Region {
  std::int64_t row;
  std::int64_t col;
  std::int64_t num_rows;
  std::int64_t num_cols;
};

float amax_of(const TensorView& x, RowSpan span) {
  if (x.strides[1] == 1 || span.length == 1) {
    return amax_of_finite(x.dtype, element_address(x, span.row, span.col), span.length);
  }
  std::array<float, kGatherElems> values;
  float amax = 0;
  for (std::int64_t done = 0; done < span.length; done += kGatherElems) {
    const std::int64_t n = std::min(kGatherElems, span.length - done);
    decode_strided(x.dtype, element_address(x, span.row, span.col + done), x.strides[1], n,
                   values.data(), 1);
    amax = std::max(amax, amax_of_finite(DType::kF32, values.data(), n));
  }
  return amax;
}

float amax_of(const TensorView& x, const Region& region) {
  float amax = 0;
  for (std::int64_t r = 0; r < region.num_rows; ++r) {
    amax = std::max(amax, amax_of(x, RowSpan{region.row + r, region.col, region.num_cols}));
  }
  return amax;
}

void encode_span(const QuantizeProblem& problem, RowSpan span, float multiplier) {
  const TensorView& x = problem.x;
  const MutableTensorView& q = problem.q;
  const bool x_dense = x.strides[1] == 1;
  const bool q_dense = q.strides[1] == 1;
  if (x_dense && q_dense) {
    scale_and_encode_array(x.dtype, element_address(x, span.row, span.col), span.length, multiplier,
                           q.dtype, element_address(q, span.row, span.col));
    return;
  }
  std::array<float, kGatherElems> values;
  std::array<std::uint8_t, kGatherElems> codes;
  for (std::int64_t done = 0; done < span.length; done += kGatherElems) {
    const std::int64_t n = std::min(kGatherElems, span.length - done);
    decode_strided(x.dtype, element_address(x, span.row, span.col + done), x.strides[1], n,
                   values.data(), 1);
    scale_and_encode_array(DType::kF32, values.data(), n, multiplier, q.dtype, codes.data());
    auto* out = static_cast<std::uint8_t*>(element_address(q, span.row, span.col + done));
    for (std::int64_t i = 0; i < n; ++i) out[i * q.strides[1]] = codes[static_cast<std::size_t>(i)];
  }
}

void decode_span(const DequantizeProblem& problem, RowSpan span, float scale) {
  const TensorView& q = problem.q;
  const MutableTensorView& x = problem.x;
  if (q.strides[1] == 1 && x.strides[1] == 1) {
    decode_and_scale_array(q.dtype, element_address(q, span.row, span.col), span.length, scale,
                           x.dtype, element_address(x, span.row, span.col));
    return;
  }
  std::array<std::uint8_t, kGatherElems> codes;
  std::array<float, kGatherElems> values;
  for (std::int64_t done = 0; done < span.length; done += kGatherElems) {
    const std::int64_t n = std::min(kGatherElems, span.length - done);
    const auto* in =
        static_cast<const std::uint8_t*>(element_address(q, span.row, span.col + done));
    for (std::int64_t i = 0; i < n; ++i) codes[static_cast<std::size_t>(i)] = in[i * q.strides[1]];
    decode_and_scale_array(q.dtype, codes.data(), n, scale, DType::kF32, values.data());
    encode_strided(x.dtype, values.data(), 1, n, element_address(x, span.row, span.col + done),
                   x.strides[1]);
  }
}

// Offset in the scale tensor, which may leave out a dimension of length 1.
template <typename Pointer>
std::int64_t scale_offset(const BasicTensorView<Pointer>& scale, ScaleGranularity granularity,
                          std::int64_t row, std::int64_t col) {
  const ScaleShape index = scale_index(granularity, row, col);
  std::int64_t offset = 0;
  if (scale.rank > 0) offset += index.rows * scale.strides[0];
  if (scale.rank > 1) offset += index.cols * scale.strides[1];
  return offset;
}

// The scale of the group that `region` is, computed and written or read.
float group_scale(const QuantizeProblem& problem, std::int64_t row, std::int64_t col, float amax) {
  const std::int64_t offset = scale_offset(problem.scale, problem.granularity, row, col);
  if (problem.scale_source == ScaleSource::kGiven) {
    return load_element(problem.scale.data, problem.scale.dtype, offset);
  }
  const float scale =
      scale_from_amax(amax, problem.amax_floor, problem.q.dtype, problem.scale.dtype);
  store_element(problem.scale.data, problem.scale.dtype, offset, scale);
  return scale;
}

void quantize_region(const QuantizeProblem& problem, const Region& region) {
  const bool dynamic = problem.scale_source == ScaleSource::kDynamic;
  const float amax = dynamic ? amax_of(problem.x, region) : 0;
  const float multiplier = reciprocal(group_scale(problem, region.row, region.col, amax));
  for (std::int64_t r = 0; r < region.num_rows; ++r) {
    encode_span(problem, RowSpan{region.row + r, region.col, region.num_cols}, multiplier);
  }
}

// How a matrix is cut among threads: tiles of whole groups, or of parts of the one group that
// spans the tensor.
struct Tiling {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t tile_rows;
  std::int64_t tile_cols;

  [[nodiscard]] std::int64_t num_tile_cols() const { return (cols + tile_cols - 1) / tile_cols; }
  [[nodiscard]] std::int64_t num_tiles() const {
    return (rows + tile_rows - 1) / tile_rows * num_tile_cols();
  }
  [[nodiscard]] Region tile(std::int64_t tile_idx) const {
    const std::int64_t row = tile_idx / num_tile_cols() * tile_rows;
    const std::int64_t col = tile_idx % num_tile_cols() * tile_cols;
    return {row, col, std::min(tile_rows, rows - row), std::min(tile_cols, cols - col)};
  }
};

Tiling tiling_for(ScaleGranularity granularity, std::int64_t rows, std::int64_t cols) {
  Tiling tiling{rows, cols, 1, std::max<std::int64_t>(cols, 1)};
  switch (granularity) {
    case ScaleGranularity::kBlock128x128:
      tiling.tile_rows = kScaleBlock;
      tiling.tile_cols = std::min(tiling.tile_cols, kElemsPerTask / kScaleBlock);
      return tiling;
    case ScaleGranularity::kRow: break;
    default: tiling.tile_cols = std::min(tiling.tile_cols, kElemsPerTask);
  }
  tiling.tile_rows = std::max<std::int64_t>(1, kElemsPerTask / tiling.tile_cols);
  return tiling;
}

// Calls f(group) for every group, or part of a group cut by the tiling, inside `tile`.
template <typename F>
void for_each_group(ScaleGranularity granularity, const Region& tile, const F& f) {
  const bool row_groups =
      granularity == ScaleGranularity::kRow || granularity == ScaleGranularity::kBlock1x128;
  const bool col_blocks = granularity == ScaleGranularity::kBlock1x128 ||
                          granularity == ScaleGranularity::kBlock128x128;
  const std::int64_t group_rows = row_groups ? 1 : tile.num_rows;
  const std::int64_t group_cols = col_blocks ? kScaleBlock : tile.num_cols;
  for (std::int64_t r = 0; r < tile.num_rows; r += group_rows) {
    for (std::int64_t c = 0; c < tile.num_cols; c += group_cols) {
      f(Region{tile.row + r, tile.col + c, group_rows, std::min(group_cols, tile.num_cols - c)});
    }
  }
}

void quantize_tensor(const QuantizeProblem& problem, const Tiling& tiling, int num_threads) {
  float amax = 0;
  if (problem.scale_source == ScaleSource::kDynamic) {
    std::vector<float> tile_amax(static_cast<std::size_t>(tiling.num_tiles()));
    parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
      tile_amax[static_cast<std::size_t>(tile_idx)] = amax_of(problem.x, tiling.tile(tile_idx));
    });
    for (const float value : tile_amax) amax = std::max(amax, value);
  }
  const float multiplier = reciprocal(group_scale(problem, 0, 0, amax));
  parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
    const Region tile = tiling.tile(tile_idx);
    for (std::int64_t r = 0; r < tile.num_rows; ++r) {
      encode_span(problem, RowSpan{tile.row + r, tile.col, tile.num_cols}, multiplier);
    }
  });
}

}  // namespace

Status quantize(const QuantizeProblem& problem, int num_threads) {
  const std::int64_t rows = problem.x.shape[0];
  const std::int64_t cols = problem.x.shape[1];
  const Tiling tiling = tiling_for(problem.granularity, rows, cols);
  if (problem.granularity == ScaleGranularity::kTensor) {
    quantize_tensor(problem, tiling, num_threads);
    return Ok{};
  }
  if (cols == 0 && problem.granularity == ScaleGranularity::kRow) {
    // A row without elements has a scale all the same: that of an amax of 0.
    for (std::int64_t row = 0; row < rows; ++row) (void)group_scale(problem, row, 0, 0);
    return Ok{};
  }
  parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
    for_each_group(problem.granularity, tiling.tile(tile_idx),
                   [&](const Region& group) { quantize_region(problem, group); });
  });
  return Ok{};
}

Status dequantize(const DequantizeProblem& problem, int num_threads) {
  const Tiling tiling = tiling_for(problem.granularity, problem.q.shape[0], problem.q.shape[1]);
  parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
    for_each_group(problem.granularity, tiling.tile(tile_idx), [&](const Region& group) {
      const float scale = problem.granularity == ScaleGranularity::kNone
                              ? 1.0F
                              : load_element(problem.scale.data, problem.scale.dtype,
                                             scale_offset(problem.scale, problem.granularity,
                                                          group.row, group.col));
      for (std::int64_t r = 0; r < group.num_rows; ++r) {
        decode_span(problem, RowSpan{group.row + r, group.col, group.num_cols}, scale);
      }
    });
  });
  return Ok{};
}

}  // namespace octavo::cpu
