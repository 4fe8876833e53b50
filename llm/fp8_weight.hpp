// SPDX-License-Identifier: Apache-2.0
// FP8 weights of safetensors checkpoints with their scales: which granularity a scale's shape
// means, dequantization, and shards of a weight. The value is always code * scale, also where the
// scale is called weight_scale_inv (it is the inverse of the quantizer's multiplier).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "llm/llama_config.hpp"
#include "llm/safetensors_set.hpp"
#include "octavo/dtype.hpp"

namespace octavo::llm {

// W[rows, cols], row-major, row_stride elements from row to row (cols, unless this is a shard). The
// codes lie in the mapped file: they live as long as the Checkpoint or SafetensorsSet.
// scales, row-major: kTensor [1]; kRow [rows]; kBlock [num_row_blocks(), num_col_blocks()].
// A shard may begin inside a block: its element (r, c) is scaled by the block of
// (r + row_offset_in_block, c + col_offset_in_block). Both offsets are 0 for a whole weight.
struct StoredFp8 {
  DType dtype = DType::kE4M3;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_stride = 0;
  const std::uint8_t* codes = nullptr;
  ScaleGranularity granularity = ScaleGranularity::kTensor;
  std::vector<float> scales;
  std::int64_t row_offset_in_block = 0;
  std::int64_t col_offset_in_block = 0;

  [[nodiscard]] std::int64_t num_row_blocks() const noexcept {
    return (row_offset_in_block + rows + kScaleBlock - 1) / kScaleBlock;
  }
  [[nodiscard]] std::int64_t num_col_blocks() const noexcept {
    return (col_offset_in_block + cols + kScaleBlock - 1) / kScaleBlock;
  }
  [[nodiscard]] float scale_of(std::int64_t row, std::int64_t col) const noexcept;
};

// The FP8 weight `name`, which must be a matrix. Its scale is the tensor `name` + "_scale_inv" or
// `name` + "_scale", in any shard, of dtype F32, BF16, F16 or F8_E8M0; finite and positive.
// Accepted shapes for W[N,K]: (), (1), (1,1); (N), (N,1), (1,N); (ceil(N/128), ceil(K/128)).
// `declared` decides where (1,N) could also mean blocks. Throws Error (kBadFile) otherwise; a
// weight without a scale too.
[[nodiscard]] StoredFp8 read_fp8(const SafetensorsSet& set, std::string_view name,
                                 std::optional<ScaleGranularity> declared);

// The scale tensor's name if the weight has one, for checks that a 16-bit weight has none.
[[nodiscard]] std::optional<std::string> find_scale_name(const SafetensorsSet& set,
                                                         std::string_view weight_name);

// code * scale, each product rounded once; row-major and dense.
[[nodiscard]] std::vector<float> dequantize(const StoredFp8& weight);

// Rows or columns [begin, end) of a weight, at any split: the dequantized shards are the rows or
// columns of the dequantized weight, bit for bit. Throws Error (kInvalidArgument) if not 0 <= begin
// < end <= N.
[[nodiscard]] StoredFp8 shard_rows(const StoredFp8& weight, std::int64_t begin, std::int64_t end);
[[nodiscard]] StoredFp8 shard_cols(const StoredFp8& weight, std::int64_t begin, std::int64_t end);

}  // namespace octavo::llm
