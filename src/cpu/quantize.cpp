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

// Elements of a strided row gathered at a time: small enough for L1.
constexpr std::int64_t kGatherElems = 1024;
static_assert(kGatherElems % kScaleBlock == 0);

// Columns whose scale blocks are worked on together. PERF: 128 rows of 2048 16-bit elements stay in
// L2 between the search for the largest magnitude and the encoding, and are read in runs that the
// processor's prefetcher follows.
constexpr std::int64_t kBandCols = 2048;
constexpr std::int64_t kBlocksPerBand = kBandCols / kScaleBlock;
static_assert(kBandCols % kScaleBlock == 0);

// Elements of work below which another thread costs more than it brings.
constexpr std::int64_t kElemsPerTask = 32 * 1024;

// ceil(a / b), for any a: the extents of an empty matrix may be as large as int64 allows.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
}

// A part of the matrix.
struct Region {
  std::int64_t row;
  std::int64_t col;
  std::int64_t num_rows;
  std::int64_t num_cols;
};

// A part of one row, cut from its start into groups of group_elems elements.
struct RowSpan {
  std::int64_t row;
  std::int64_t col;
  std::int64_t length;
  std::int64_t group_elems;
};

// Calls f(part, first_group) for parts of the span that fit the gather buffers. A part holds whole
// groups or lies inside one.
template <typename F>
void for_each_part(const RowSpan& span, const F& f) {
  for (std::int64_t done = 0; done < span.length; done += kGatherElems) {
    const std::int64_t length = std::min(kGatherElems, span.length - done);
    f(RowSpan{span.row, span.col + done, length, std::min(span.group_elems, length)},
      done / span.group_elems);
  }
}

void accumulate_amax(const TensorView& x, const RowSpan& span, float* amax) {
  if (x.strides[1] == 1) {
    octavo::accumulate_amax(x.dtype, element_address(x, span.row, span.col), span.length,
                            span.group_elems, amax);
    return;
  }
  std::array<float, kGatherElems> values;
  for_each_part(span, [&](const RowSpan& part, std::int64_t first_group) {
    decode_strided(x.dtype, element_address(x, part.row, part.col), x.strides[1], part.length,
                   values.data(), 1);
    octavo::accumulate_amax(DType::kF32, values.data(), part.length, part.group_elems,
                            amax + first_group);
  });
}

void encode_span(const QuantizeProblem& problem, const RowSpan& span, const float* multipliers) {
  const TensorView& x = problem.x;
  const MutableTensorView& q = problem.q;
  if (x.strides[1] == 1 && q.strides[1] == 1) {
    scale_and_encode_array(x.dtype, element_address(x, span.row, span.col), span.length,
                           span.group_elems, multipliers, q.dtype,
                           element_address(q, span.row, span.col));
    return;
  }
  std::array<float, kGatherElems> values;
  std::array<std::uint8_t, kGatherElems> codes;
  for_each_part(span, [&](const RowSpan& part, std::int64_t first_group) {
    decode_strided(x.dtype, element_address(x, part.row, part.col), x.strides[1], part.length,
                   values.data(), 1);
    scale_and_encode_array(DType::kF32, values.data(), part.length, part.group_elems,
                           multipliers + first_group, q.dtype, codes.data());
    auto* out = static_cast<std::uint8_t*>(element_address(q, part.row, part.col));
    for (std::int64_t i = 0; i < part.length; ++i) {
      out[i * q.strides[1]] = codes[static_cast<std::size_t>(i)];
    }
  });
}

void decode_span(const DequantizeProblem& problem, const RowSpan& span, const float* scales) {
  const TensorView& q = problem.q;
  const MutableTensorView& x = problem.x;
  if (q.strides[1] == 1 && x.strides[1] == 1) {
    decode_and_scale_array(q.dtype, element_address(q, span.row, span.col), span.length,
                           span.group_elems, scales, x.dtype,
                           element_address(x, span.row, span.col));
    return;
  }
  std::array<std::uint8_t, kGatherElems> codes;
  std::array<float, kGatherElems> values;
  for_each_part(span, [&](const RowSpan& part, std::int64_t first_group) {
    const auto* in = static_cast<const std::uint8_t*>(element_address(q, part.row, part.col));
    for (std::int64_t i = 0; i < part.length; ++i) {
      codes[static_cast<std::size_t>(i)] = in[i * q.strides[1]];
    }
    decode_and_scale_array(q.dtype, codes.data(), part.length, part.group_elems,
                           scales + first_group, DType::kF32, values.data());
    encode_strided(x.dtype, values.data(), 1, part.length, element_address(x, part.row, part.col),
                   x.strides[1]);
  });
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

// How a matrix is cut among threads. A tile is what a thread takes at a time: whole groups, except
// that the tensor's one group is cut anywhere. A band is a part of a tile whose rows share their
// scales; along a row every `group_elems` elements do.
struct Tiling {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t tile_rows;
  std::int64_t tile_cols;
  std::int64_t band_rows;
  std::int64_t band_cols;
  std::int64_t group_elems;

  [[nodiscard]] std::int64_t num_tile_cols() const { return ceil_div(cols, tile_cols); }
  [[nodiscard]] std::int64_t num_tiles() const {
    return ceil_div(rows, tile_rows) * num_tile_cols();
  }
  [[nodiscard]] Region tile(std::int64_t tile_idx) const {
    const std::int64_t row = tile_idx / num_tile_cols() * tile_rows;
    const std::int64_t col = tile_idx % num_tile_cols() * tile_cols;
    return {row, col, std::min(tile_rows, rows - row), std::min(tile_cols, cols - col)};
  }
  [[nodiscard]] RowSpan span(const Region& region, std::int64_t row_idx) const {
    return {region.row + row_idx, region.col, region.num_cols, group_elems};
  }
};

Tiling tiling_for(ScaleGranularity granularity, std::int64_t rows, std::int64_t cols) {
  const std::int64_t whole_row = std::max<std::int64_t>(cols, 1);
  const bool blocks = granularity == ScaleGranularity::kBlock1x128 ||
                      granularity == ScaleGranularity::kBlock128x128;
  Tiling tiling{};
  tiling.rows = rows;
  tiling.cols = cols;
  // A row with one scale cannot be cut.
  tiling.tile_cols =
      granularity == ScaleGranularity::kRow ? whole_row : std::min(whole_row, kElemsPerTask);
  tiling.band_rows = 1;
  tiling.band_cols = blocks ? kBandCols : tiling.tile_cols;
  tiling.group_elems = blocks ? kScaleBlock : tiling.tile_cols;
  if (granularity == ScaleGranularity::kBlock128x128) {
    tiling.band_rows = kScaleBlock;
    tiling.tile_cols = std::min(whole_row, kBandCols);
  }
  const std::int64_t bands = kElemsPerTask / tiling.tile_cols / tiling.band_rows;
  tiling.tile_rows = tiling.band_rows * std::max<std::int64_t>(bands, 1);
  return tiling;
}

template <typename F>
void for_each_band(const Tiling& tiling, const Region& tile, const F& f) {
  for (std::int64_t r = 0; r < tile.num_rows; r += tiling.band_rows) {
    for (std::int64_t c = 0; c < tile.num_cols; c += tiling.band_cols) {
      f(Region{tile.row + r, tile.col + c, std::min(tiling.band_rows, tile.num_rows - r),
               std::min(tiling.band_cols, tile.num_cols - c)});
    }
  }
}

// The numbers of a band's groups, one after the other.
using GroupFloats = std::array<float, kBlocksPerBand>;

void read_scales(const TensorView& scale, ScaleGranularity granularity, const Tiling& tiling,
                 const Region& band, GroupFloats* scales) {
  std::size_t group = 0;
  for (std::int64_t c = 0; c < band.num_cols; c += tiling.group_elems) {
    const std::int64_t offset = scale_offset(scale, granularity, band.row, band.col + c);
    (*scales)[group++] = load_element(scale.data, scale.dtype, offset);
  }
}

// Turns the largest magnitudes of a band's groups into their scales, and writes these.
void write_scales(const QuantizeProblem& problem, const Tiling& tiling, const Region& band,
                  GroupFloats* amax) {
  const MutableTensorView& scale = problem.scale;
  std::size_t group = 0;
  for (std::int64_t c = 0; c < band.num_cols; c += tiling.group_elems, ++group) {
    float& value = (*amax)[group];
    value = scale_from_amax(value, problem.amax_floor, problem.q.dtype, scale.dtype);
    store_element(scale.data, scale.dtype,
                  scale_offset(scale, problem.granularity, band.row, band.col + c), value);
  }
}

void quantize_band(const QuantizeProblem& problem, const Tiling& tiling, const Region& band) {
  GroupFloats factors{};
  if (problem.scale_source == ScaleSource::kGiven) {
    read_scales(problem.scale, problem.granularity, tiling, band, &factors);
  } else {
    for (std::int64_t r = 0; r < band.num_rows; ++r) {
      accumulate_amax(problem.x, tiling.span(band, r), factors.data());
    }
    write_scales(problem, tiling, band, &factors);
  }
  const std::int64_t num_groups = ceil_div(band.num_cols, tiling.group_elems);
  for (std::size_t g = 0; g < static_cast<std::size_t>(num_groups); ++g) {
    factors[g] = reciprocal(factors[g]);
  }
  for (std::int64_t r = 0; r < band.num_rows; ++r) {
    encode_span(problem, tiling.span(band, r), factors.data());
  }
}

void dequantize_band(const DequantizeProblem& problem, const Tiling& tiling, const Region& band) {
  GroupFloats scales{1.0F};
  if (problem.granularity != ScaleGranularity::kNone) {
    read_scales(problem.scale, problem.granularity, tiling, band, &scales);
  }
  for (std::int64_t r = 0; r < band.num_rows; ++r) {
    decode_span(problem, tiling.span(band, r), scales.data());
  }
}

// The largest finite magnitude of the whole matrix.
float tensor_amax(const TensorView& x, const Tiling& tiling, int num_threads) {
  std::vector<float> tile_amax(static_cast<std::size_t>(tiling.num_tiles()));
  parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
    const Region tile = tiling.tile(tile_idx);
    for (std::int64_t r = 0; r < tile.num_rows; ++r) {
      accumulate_amax(x, tiling.span(tile, r), &tile_amax[static_cast<std::size_t>(tile_idx)]);
    }
  });
  float amax = 0;
  for (const float value : tile_amax) amax = std::max(amax, value);
  return amax;
}

// Scales of groups without elements: the tensor's, or the rows', where there are no columns.
void write_floor_scales(const QuantizeProblem& problem, const Tiling& tiling) {
  const bool tensor = problem.granularity == ScaleGranularity::kTensor;
  const bool rows = problem.granularity == ScaleGranularity::kRow;
  const std::int64_t num_scales = tensor ? 1 : rows ? tiling.rows : 0;
  for (std::int64_t row = 0; row < num_scales; ++row) {
    GroupFloats amax{};
    write_scales(problem, tiling, Region{row, 0, 1, 1}, &amax);
  }
}

}  // namespace

Status quantize(const QuantizeProblem& problem, int num_threads) {
  const Tiling tiling = tiling_for(problem.granularity, problem.x.shape[0], problem.x.shape[1]);
  QuantizeProblem scaled = problem;
  const bool dynamic = problem.scale_source == ScaleSource::kDynamic;
  if (dynamic && tiling.num_tiles() == 0) {
    write_floor_scales(problem, tiling);
  } else if (dynamic && problem.granularity == ScaleGranularity::kTensor) {
    GroupFloats amax{tensor_amax(problem.x, tiling, num_threads)};
    write_scales(problem, tiling, Region{0, 0, 1, 1}, &amax);
    scaled.scale_source = ScaleSource::kGiven;
  }
  parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
    for_each_band(tiling, tiling.tile(tile_idx),
                  [&](const Region& band) { quantize_band(scaled, tiling, band); });
  });
  return Ok{};
}

Status dequantize(const DequantizeProblem& problem, int num_threads) {
  const Tiling tiling = tiling_for(problem.granularity, problem.q.shape[0], problem.q.shape[1]);
  parallel_for(tiling.num_tiles(), num_threads, [&](std::int64_t tile_idx) {
    for_each_band(tiling, tiling.tile(tile_idx),
                  [&](const Region& band) { dequantize_band(problem, tiling, band); });
  });
  return Ok{};
}

}  // namespace octavo::cpu
