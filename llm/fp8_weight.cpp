// SPDX-License-Identifier: Apache-2.0
// FP8 weights and their scales. See fp8_weight.hpp.
#include "llm/fp8_weight.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "llm/element_decode.hpp"
#include "llm/file_error.hpp"

namespace octavo::llm {
namespace {

using Shape = std::vector<std::int64_t>;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) noexcept { return (a + b - 1) / b; }

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

const SafetensorsTensor& required_scale(const SafetensorsSet& set, std::string_view weight_name) {
  const std::optional<std::string> name = find_scale_name(set, weight_name);
  if (!name) {
    throw bad_file(
        set.file_of(weight_name),
        fmt::format("tensor {} is FP8 and there is neither {} nor {}", printable(weight_name),
                    printable(fmt::format("{}_scale_inv", weight_name)),
                    printable(fmt::format("{}_scale", weight_name))),
        "an FP8 weight needs its scale: without it the values are wrong by orders of magnitude",
        "Fetch all shards of the checkpoint, or write the scale under one of these names");
  }
  return set.at(*name);
}

ScaleGranularity granularity_of(const Shape& shape, std::int64_t rows, std::int64_t cols,
                                std::optional<ScaleGranularity> declared, std::string_view file,
                                std::string_view scale_name) {
  const Shape blocks{ceil_div(rows, kScaleBlock), ceil_div(cols, kScaleBlock)};
  // One number scales everything, whatever it was meant as.
  if (shape.empty() || shape == Shape{1} || shape == Shape{1, 1}) return ScaleGranularity::kTensor;
  const bool per_row = shape == Shape{rows} || shape == Shape{rows, 1} || shape == Shape{1, rows};
  const bool per_block = shape == blocks;
  if (per_row && per_block) {
    if (declared == ScaleGranularity::kBlock || declared == ScaleGranularity::kRow)
      return *declared;
    throw bad_file(
        file,
        fmt::format("scale {} of shape {} for a weight of shape [{}, {}] could be one per "
                    "row or one per 128x128 block",
                    printable(scale_name), shape_text(shape), rows, cols),
        "config.json must say which, in quantization_config",
        "Add weight_block_size, or store scales per row with shape [N] or [N, 1]");
  }
  if (per_row) return ScaleGranularity::kRow;
  if (per_block) return ScaleGranularity::kBlock;
  throw bad_file(
      file,
      fmt::format("scale {} has shape {} and its weight [{}, {}]", printable(scale_name),
                  shape_text(shape), rows, cols),
      fmt::format(
          "it must be [], [1] or [1, 1] (tensor); [{0}], [{0}, 1] or [1, {0}] (row); or {1} "
          "(ceil(N/128), ceil(K/128) blocks)",
          rows, shape_text(blocks)),
      "Scales of fused parts must be expanded to one per row");
}

std::vector<float> read_scales(const SafetensorsTensor& scale, std::string_view file) {
  const std::optional<DType> dtype = scale.dtype;
  const bool served = dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
                      dtype == DType::kUE8M0;
  if (!served) {
    throw bad_file(file,
                   fmt::format("scale {} has dtype {}", printable(scale.name), scale.dtype_name),
                   "scales are F32, BF16, F16 or F8_E8M0", "Convert the scales to F32");
  }
  std::vector<float> values(scale.bytes.size() / static_cast<std::size_t>(size_bytes(*dtype)));
  decode_elements(*dtype, scale.bytes, values);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (std::isfinite(values[i]) && values[i] > 0.0F) continue;
    throw bad_file(
        file, fmt::format("scale {} is {} at index {}", printable(scale.name), values[i], i),
        "scales must be finite and positive",
        "The checkpoint is damaged or holds no multiplying scales; fetch or convert it again");
  }
  return values;
}

void check_range(std::int64_t begin, std::int64_t end, std::int64_t extent, std::string_view what) {
  if (begin >= 0 && begin < end && end <= extent) return;
  throw Error(
      ErrorCode::kInvalidArgument,
      fmt::format("{}: begin={} and end={} were given for extent {}; 0 <= begin < end <= {} is "
                  "needed. Any split of that range is valid.",
                  what, begin, end, extent, extent));
}

}  // namespace

std::optional<std::string> find_scale_name(const SafetensorsSet& set,
                                           std::string_view weight_name) {
  std::string inverse_name = fmt::format("{}_scale_inv", weight_name);
  std::string plain_name = fmt::format("{}_scale", weight_name);
  const bool has_inverse = set.find(inverse_name) != nullptr;
  const bool has_plain = set.find(plain_name) != nullptr;
  if (has_inverse && has_plain) {
    throw bad_file(set.file_of(inverse_name),
                   fmt::format("tensor {} has both {} and {}", printable(weight_name),
                               printable(inverse_name), printable(plain_name)),
                   "a weight has one scale", "Remove the one that does not belong to it");
  }
  if (has_inverse) return inverse_name;
  if (has_plain) return plain_name;
  return std::nullopt;
}

float StoredFp8::scale_of(std::int64_t row, std::int64_t col) const noexcept {
  switch (granularity) {
    case ScaleGranularity::kTensor: return scales.front();
    case ScaleGranularity::kRow: return scales[static_cast<std::size_t>(row)];
    case ScaleGranularity::kBlock: break;
  }
  const std::int64_t row_block = (row + row_offset_in_block) / kScaleBlock;
  const std::int64_t col_block = (col + col_offset_in_block) / kScaleBlock;
  return scales[static_cast<std::size_t>(row_block * num_col_blocks() + col_block)];
}

StoredFp8 read_fp8(const SafetensorsSet& set, std::string_view name,
                   std::optional<ScaleGranularity> declared) {
  const SafetensorsTensor& weight = set.at(name);
  const std::string& file = set.file_of(name);
  const bool fp8 = weight.dtype && is_fp8(*weight.dtype);
  const bool matrix = weight.shape.size() == 2 && weight.shape[0] > 0 && weight.shape[1] > 0;
  if (!fp8 || !matrix) {
    throw bad_file(file,
                   fmt::format("tensor {} has dtype {} and shape {}", printable(name),
                               weight.dtype_name, shape_text(weight.shape)),
                   "an FP8 weight is a matrix of F8_E4M3 or F8_E5M2", "Use another checkpoint");
  }
  const SafetensorsTensor& scale = required_scale(set, name);
  StoredFp8 stored;
  stored.dtype = *weight.dtype;
  stored.rows = weight.shape[0];
  stored.cols = weight.shape[1];
  stored.row_stride = stored.cols;
  stored.codes = reinterpret_cast<const std::uint8_t*>(weight.bytes.data());
  stored.granularity = granularity_of(scale.shape, stored.rows, stored.cols, declared,
                                      set.file_of(scale.name), scale.name);
  stored.scales = read_scales(scale, set.file_of(scale.name));
  return stored;
}

std::vector<float> dequantize(const StoredFp8& weight) {
  const std::span<const float> values = fp8_values(weight.dtype);
  std::vector<float> out(static_cast<std::size_t>(weight.rows * weight.cols));
  float* to = out.data();
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    const std::uint8_t* codes = weight.codes + row * weight.row_stride;
    std::int64_t col = 0;
    while (col < weight.cols) {
      // Columns up to the next block boundary share the scale.
      const std::int64_t to_boundary =
          kScaleBlock - (col + weight.col_offset_in_block) % kScaleBlock;
      const std::int64_t end = std::min(weight.cols, col + to_boundary);
      const float scale = weight.scale_of(row, col);
      for (; col < end; ++col) *to++ = values[codes[col]] * scale;
    }
  }
  return out;
}

StoredFp8 shard_rows(const StoredFp8& weight, std::int64_t begin, std::int64_t end) {
  check_range(begin, end, weight.rows, "shard_rows");
  StoredFp8 shard = weight;
  shard.rows = end - begin;
  shard.codes = weight.codes + begin * weight.row_stride;
  if (weight.granularity == ScaleGranularity::kRow) {
    shard.scales.assign(weight.scales.begin() + begin, weight.scales.begin() + end);
  } else if (weight.granularity == ScaleGranularity::kBlock) {
    const std::int64_t first_block = (begin + weight.row_offset_in_block) / kScaleBlock;
    shard.row_offset_in_block = (begin + weight.row_offset_in_block) % kScaleBlock;
    const std::int64_t width = weight.num_col_blocks();
    const auto from = weight.scales.begin() + first_block * width;
    shard.scales.assign(from, from + shard.num_row_blocks() * width);
  }
  return shard;
}

StoredFp8 shard_cols(const StoredFp8& weight, std::int64_t begin, std::int64_t end) {
  check_range(begin, end, weight.cols, "shard_cols");
  StoredFp8 shard = weight;
  shard.cols = end - begin;
  shard.codes = weight.codes + begin;
  if (weight.granularity != ScaleGranularity::kBlock) return shard;
  const std::int64_t first_block = (begin + weight.col_offset_in_block) / kScaleBlock;
  shard.col_offset_in_block = (begin + weight.col_offset_in_block) % kScaleBlock;
  const std::int64_t width = weight.num_col_blocks();
  shard.scales.clear();
  for (std::int64_t row_block = 0; row_block < weight.num_row_blocks(); ++row_block) {
    const auto from = weight.scales.begin() + row_block * width + first_block;
    shard.scales.insert(shard.scales.end(), from, from + shard.num_col_blocks());
  }
  return shard;
}

}  // namespace octavo::llm
