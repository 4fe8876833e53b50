// SPDX-License-Identifier: Apache-2.0
// FP8 weights and their scales (cases C79 to C81). Expected values are worked out here from the
// codes and scales, element by element, without the reader's own notion of granularity.
#include "llm/fp8_weight.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>

#include "checkpoint/file_builders.hpp"
#include "llm/element_decode.hpp"

namespace octavo::llm {
namespace {

using test::Bytes;
using test::bytes_of;
using test::expect_error;
using test::SafetensorsBuilder;

// E4M3 from its definition: sign, 4 bits of exponent with bias 7, 3 of mantissa.
double e4m3_value(std::uint8_t code) {
  const int exponent = (code >> 3) & 15;
  const int mantissa = code & 7;
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return (code & 0x80) != 0 ? -magnitude : magnitude;
}

struct Drawn {
  std::int64_t rows;
  std::int64_t cols;
  std::vector<std::uint8_t> codes;

  Drawn(std::int64_t n, std::int64_t k, unsigned seed)
      : rows(n), cols(k), codes(static_cast<std::size_t>(n * k)) {
    std::mt19937 random(seed);
    for (std::uint8_t& code : codes) {
      do code = static_cast<std::uint8_t>(random());
      while ((code & 0x7F) == 0x7F);
    }
  }
};

// Positive, all different, and not powers of two.
std::vector<float> draw_scales(std::size_t count) {
  std::vector<float> scales(count);
  for (std::size_t i = 0; i < count; ++i) scales[i] = 0.003F + 0.0007F * static_cast<float>(i);
  return scales;
}

std::vector<std::uint16_t> to_bf16(const std::vector<float>& values) {
  std::vector<std::uint16_t> out;
  for (const float value : values) {
    out.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
  }
  return out;
}

// A set whose files' bytes live as long as itself.
struct OwnedSet {
  std::vector<Bytes> bytes;
  SafetensorsSet set;

  explicit OwnedSet(std::vector<Bytes> files) : bytes(std::move(files)), set(make(bytes)) {}
  static SafetensorsSet make(const std::vector<Bytes>& files) {
    std::vector<SafetensorsFile> parsed;
    for (const Bytes& file : files) {
      parsed.push_back(
          SafetensorsFile::parse(file, fmt::format("shard{}.safetensors", parsed.size())));
    }
    return SafetensorsSet::from_files(std::move(parsed));
  }
};

SafetensorsBuilder with_weight(const Drawn& weight, const std::string& name = "w") {
  SafetensorsBuilder builder;
  builder.tensor(name, "F8_E4M3", {weight.rows, weight.cols}, bytes_of(weight.codes));
  return builder;
}

OwnedSet with_scale(const Drawn& weight, const std::vector<std::int64_t>& shape,
                    const std::vector<float>& scales) {
  return OwnedSet(
      {with_weight(weight).tensor("w_scale_inv", "F32", shape, bytes_of(scales)).bytes()});
}

using ScaleIndex = std::size_t (*)(std::int64_t row, std::int64_t col, std::int64_t cols);
std::size_t tensor_index(std::int64_t, std::int64_t, std::int64_t) { return 0; }
std::size_t row_index(std::int64_t row, std::int64_t, std::int64_t) {
  return static_cast<std::size_t>(row);
}
std::size_t block_index(std::int64_t row, std::int64_t col, std::int64_t cols) {
  return static_cast<std::size_t>(row / 128 * ((cols + 127) / 128) + col / 128);
}

void expect_values(const Drawn& weight, const std::vector<float>& scales, ScaleIndex index,
                   const StoredFp8& stored) {
  const std::vector<float> out = dequantize(stored);
  ASSERT_EQ(out.size(), weight.codes.size());
  for (std::int64_t row = 0; row < weight.rows; ++row) {
    for (std::int64_t col = 0; col < weight.cols; ++col) {
      const auto at = static_cast<std::size_t>(row * weight.cols + col);
      const float scale = scales[index(row, col, weight.cols)];
      ASSERT_EQ(out[at], static_cast<float>(e4m3_value(weight.codes[at])) * scale)
          << "row " << row << " column " << col;
    }
  }
}

TEST(Fp8Weight, C79_both_scale_names_multiply) {
  const Drawn weight(256, 384, 79);
  const std::vector<float> scales = draw_scales(6);
  for (const std::string_view suffix : {"_scale_inv", "_scale"}) {
    for (const std::string name :
         {"w", "model.language_model.layers.3.mlp.experts.17.shared.gate_proj.weight"}) {
      SafetensorsBuilder builder = with_weight(weight, name);
      builder.tensor(name + std::string(suffix), "F32", {2, 3}, bytes_of(scales));
      const OwnedSet owned({builder.bytes()});
      const StoredFp8 stored = read_fp8(owned.set, name, std::nullopt);
      EXPECT_EQ(stored.granularity, ScaleGranularity::kBlock);
      expect_values(weight, scales, block_index, stored);
    }
  }
}

TEST(Fp8Weight, C79_scale_in_another_shard) {
  const Drawn weight(256, 384, 80);
  const std::vector<float> scales = draw_scales(6);
  SafetensorsBuilder other;
  other.tensor("w_scale_inv", "F32", {2, 3}, bytes_of(scales));
  const OwnedSet owned({with_weight(weight).bytes(), other.bytes()});
  expect_values(weight, scales, block_index, read_fp8(owned.set, "w", std::nullopt));
}

TEST(Fp8Weight, C79_scale_dtypes) {
  const Drawn weight(256, 384, 81);
  const std::vector<std::uint16_t> bf16 = to_bf16(draw_scales(6));
  std::vector<float> rounded;
  for (const std::uint16_t bits : bf16) rounded.push_back(bf16_to_f32(bits));
  SafetensorsBuilder with_bf16 = with_weight(weight);
  with_bf16.tensor("w_scale", "BF16", {2, 3}, bytes_of(bf16));
  const OwnedSet owned({with_bf16.bytes()});
  expect_values(weight, rounded, block_index, read_fp8(owned.set, "w", std::nullopt));

  SafetensorsBuilder with_ue8m0 = with_weight(weight);
  with_ue8m0.tensor("w_scale_inv", "F8_E8M0", {2, 3},
                    bytes_of<std::uint8_t>({120, 121, 122, 123, 124, 127}));
  const OwnedSet powers({with_ue8m0.bytes()});
  expect_values(weight, {0x1p-7F, 0x1p-6F, 0x1p-5F, 0x1p-4F, 0x1p-3F, 1.0F}, block_index,
                read_fp8(powers.set, "w", std::nullopt));

  SafetensorsBuilder with_i32 = with_weight(weight);
  with_i32.tensor("w_scale", "I32", {1}, bytes_of<std::int32_t>({1}));
  const OwnedSet integers({with_i32.bytes()});
  expect_error(ErrorCode::kBadFile, {"w_scale", "I32"},
               [&] { (void)read_fp8(integers.set, "w", std::nullopt); });
}

TEST(Fp8Weight, C79_missing_scale_is_an_error_that_names_the_keys) {
  const OwnedSet owned({with_weight(Drawn(256, 384, 82)).bytes()});
  expect_error(ErrorCode::kBadFile, {"shard0.safetensors", "w_scale_inv", "w_scale\"", "FP8"},
               [&] { (void)read_fp8(owned.set, "w", std::nullopt); });
}

TEST(Fp8Weight, C79_two_scales_are_refused) {
  SafetensorsBuilder builder = with_weight(Drawn(4, 4, 83));
  builder.tensor("w_scale", "F32", {1}, bytes_of<float>({1}))
      .tensor("w_scale_inv", "F32", {1}, bytes_of<float>({1}));
  const OwnedSet owned({builder.bytes()});
  expect_error(ErrorCode::kBadFile, {"both", "w_scale_inv"},
               [&] { (void)read_fp8(owned.set, "w", std::nullopt); });
}

TEST(Fp8Weight, scales_must_be_finite_and_positive) {
  const Drawn weight(3, 4, 84);
  for (const float bad : {0.0F, -1.0F, NAN, INFINITY, -INFINITY}) {
    const OwnedSet owned = with_scale(weight, {3}, {0.5F, bad, 0.25F});
    expect_error(ErrorCode::kBadFile, {"w_scale_inv", "index 1", "finite and positive"},
                 [&] { (void)read_fp8(owned.set, "w", std::nullopt); });
  }
}

TEST(Fp8Weight, C80_scale_shapes) {
  const Drawn weight(200, 300, 85);  // blocks [2, 3], the last of each ragged
  const std::vector<float> one{0.0625F};
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{}, std::vector<std::int64_t>{1},
        std::vector<std::int64_t>{1, 1}}) {
    const OwnedSet owned = with_scale(weight, shape, one);
    const StoredFp8 stored = read_fp8(owned.set, "w", std::nullopt);
    EXPECT_EQ(stored.granularity, ScaleGranularity::kTensor);
    EXPECT_EQ(stored.scales.size(), 1U);
    expect_values(weight, one, tensor_index, stored);
  }
  const std::vector<float> per_row = draw_scales(200);
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{200}, std::vector<std::int64_t>{200, 1},
        std::vector<std::int64_t>{1, 200}}) {
    const OwnedSet owned = with_scale(weight, shape, per_row);
    const StoredFp8 stored = read_fp8(owned.set, "w", std::nullopt);
    EXPECT_EQ(stored.granularity, ScaleGranularity::kRow);
    expect_values(weight, per_row, row_index, stored);
  }
  const std::vector<float> blocks = draw_scales(6);
  const OwnedSet owned = with_scale(weight, {2, 3}, blocks);
  expect_values(weight, blocks, block_index, read_fp8(owned.set, "w", std::nullopt));
}

TEST(Fp8Weight, C80_other_shapes_are_errors_that_name_the_shape) {
  const Drawn fused(96, 256, 86);  // QKV of 64, 16 and 16 rows
  for (const std::vector<std::int64_t>& shape :
       {std::vector<std::int64_t>{3}, std::vector<std::int64_t>{256},
        std::vector<std::int64_t>{2, 1}, std::vector<std::int64_t>{3, 1},
        std::vector<std::int64_t>{1, 1, 1}, std::vector<std::int64_t>{0},
        std::vector<std::int64_t>{96, 2}}) {
    std::size_t count = 1;
    for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
    const OwnedSet owned = with_scale(fused, shape, draw_scales(count));
    expect_error(ErrorCode::kBadFile,
                 {fmt::format("[{}]", fmt::join(shape, ", ")), "[96, 256]", "[96, 1]", "[1, 2]",
                  "w_scale_inv"},
                 [&] { (void)read_fp8(owned.set, "w", std::nullopt); });
  }
}

TEST(Fp8Weight, C80_ambiguous_shapes_give_the_same_numbers) {
  const std::vector<float> one{0.375F};
  for (const auto& [rows, cols] : {std::pair(std::int64_t{1}, std::int64_t{100}),
                                   std::pair(std::int64_t{128}, std::int64_t{128})}) {
    const Drawn weight(rows, cols, 87);
    const OwnedSet owned = with_scale(weight, {1, 1}, one);
    StoredFp8 stored = read_fp8(owned.set, "w", std::nullopt);
    expect_values(weight, one, tensor_index, stored);
    stored.granularity = ScaleGranularity::kBlock;
    expect_values(weight, one, tensor_index, stored);
  }
}

TEST(Fp8Weight, C80_row_or_block_is_asked_of_the_configuration) {
  const Drawn weight(3, 384, 88);  // (1, 3) is one scale per row, or one per block
  const std::vector<float> scales{0.5F, 0.25F, 2.0F};
  const OwnedSet owned = with_scale(weight, {1, 3}, scales);
  expect_values(weight, scales, row_index, read_fp8(owned.set, "w", ScaleGranularity::kRow));
  expect_values(weight, scales, block_index, read_fp8(owned.set, "w", ScaleGranularity::kBlock));
  expect_error(ErrorCode::kBadFile, {"[1, 3]", "quantization_config"},
               [&] { (void)read_fp8(owned.set, "w", std::nullopt); });
}

TEST(Fp8Weight, e5m2_and_other_ranks) {
  SafetensorsBuilder builder;
  builder.tensor("w", "F8_E5M2", {1, 2}, bytes_of<std::uint8_t>({0x3C, 0xC2}))
      .tensor("w_scale", "F32", {}, bytes_of<float>({3}))
      .tensor("cube", "F8_E4M3", {1, 1, 2}, bytes_of<std::uint8_t>({0, 0}))
      .tensor("cube_scale", "F32", {}, bytes_of<float>({3}));
  const OwnedSet owned({builder.bytes()});
  EXPECT_EQ(dequantize(read_fp8(owned.set, "w", std::nullopt)), (std::vector<float>{3.0F, -9.0F}));
  expect_error(ErrorCode::kBadFile, {"cube", "[1, 1, 2]"},
               [&] { (void)read_fp8(owned.set, "cube", std::nullopt); });
}

// Each row of the shards next to each other equals the row of the whole.
void expect_same_cols(const StoredFp8& whole, std::int64_t width) {
  const std::vector<float> all = dequantize(whole);
  for (std::int64_t begin = 0; begin < whole.cols; begin += width) {
    const std::int64_t end = std::min(whole.cols, begin + width);
    const std::vector<float> part = dequantize(shard_cols(whole, begin, end));
    for (std::int64_t row = 0; row < whole.rows; ++row) {
      for (std::int64_t col = begin; col < end; ++col) {
        ASSERT_EQ(part[static_cast<std::size_t>(row * (end - begin) + col - begin)],
                  all[static_cast<std::size_t>(row * whole.cols + col)])
            << row << "," << col << " with width " << width;
      }
    }
  }
}

void expect_same_rows(const StoredFp8& whole, std::int64_t height) {
  std::vector<float> joined;
  for (std::int64_t begin = 0; begin < whole.rows; begin += height) {
    const std::int64_t end = std::min(whole.rows, begin + height);
    const std::vector<float> part = dequantize(shard_rows(whole, begin, end));
    joined.insert(joined.end(), part.begin(), part.end());
  }
  ASSERT_EQ(joined, dequantize(whole)) << "with height " << height;
}

TEST(Fp8Weight, C81_shards_smaller_than_a_block) {
  const Drawn weight(512, 256, 89);
  const OwnedSet owned = with_scale(weight, {4, 2}, draw_scales(8));
  const StoredFp8 whole = read_fp8(owned.set, "w", std::nullopt);
  // Ranks 2i and 2i + 1 share scale row i.
  for (std::int64_t rank = 0; rank < 8; ++rank) {
    const StoredFp8 shard = shard_rows(whole, rank * 64, (rank + 1) * 64);
    EXPECT_EQ(shard.row_offset_in_block, rank % 2 * 64);
    ASSERT_EQ(shard.scales.size(), 2U);
    EXPECT_EQ(shard.scales[0], whole.scales[static_cast<std::size_t>(rank / 2 * 2)]);
    EXPECT_EQ(shard.scales[1], whole.scales[static_cast<std::size_t>(rank / 2 * 2 + 1)]);
  }
  for (const std::int64_t height : {1, 64, 80, 127, 128, 129, 192, 320, 512}) {
    expect_same_rows(whole, height);
  }
  for (const std::int64_t width : {1, 64, 100, 128, 192, 256}) expect_same_cols(whole, width);
}

TEST(Fp8Weight, C81_ragged_weights_and_other_granularities) {
  // Fused gate and up of 2 x 320 rows over 8 ranks; 768 over 4; all with a ragged K.
  for (const auto& [rows, height] : {std::pair(std::int64_t{640}, std::int64_t{80}),
                                     std::pair(std::int64_t{768}, std::int64_t{192})}) {
    const Drawn weight(rows, 150, 90);
    const auto row_blocks = (rows + 127) / 128;
    for (const std::vector<std::int64_t>& shape :
         {std::vector<std::int64_t>{row_blocks, 2}, std::vector<std::int64_t>{rows},
          std::vector<std::int64_t>{1}}) {
      std::size_t count = 1;
      for (const std::int64_t extent : shape) count *= static_cast<std::size_t>(extent);
      const OwnedSet owned = with_scale(weight, shape, draw_scales(count));
      const StoredFp8 whole = read_fp8(owned.set, "w", std::nullopt);
      expect_same_rows(whole, height);
      expect_same_cols(whole, 50);
      // A shard of a shard, both ways.
      const StoredFp8 inner = shard_cols(shard_rows(whole, 70, 330), 30, 140);
      expect_same_rows(inner, 100);
      expect_same_cols(inner, 33);
      const std::vector<float> all = dequantize(whole);
      const std::vector<float> part = dequantize(inner);
      for (std::int64_t row = 0; row < inner.rows; ++row) {
        for (std::int64_t col = 0; col < inner.cols; ++col) {
          ASSERT_EQ(part[static_cast<std::size_t>(row * inner.cols + col)],
                    all[static_cast<std::size_t>((row + 70) * whole.cols + col + 30)]);
        }
      }
    }
  }
}

TEST(Fp8Weight, C81_ranges_outside_are_refused) {
  const Drawn weight(4, 8, 91);
  const OwnedSet owned = with_scale(weight, {1}, {1.0F});
  const StoredFp8 whole = read_fp8(owned.set, "w", std::nullopt);
  expect_error(ErrorCode::kInvalidArgument, {"shard_rows", "end=5", "extent 4"},
               [&] { (void)shard_rows(whole, 0, 5); });
  expect_error(ErrorCode::kInvalidArgument, {"shard_rows", "begin=-1"},
               [&] { (void)shard_rows(whole, -1, 2); });
  expect_error(ErrorCode::kInvalidArgument, {"shard_cols", "begin=3 and end=3"},
               [&] { (void)shard_cols(whole, 3, 3); });
}

}  // namespace
}  // namespace octavo::llm
