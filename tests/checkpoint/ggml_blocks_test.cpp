// SPDX-License-Identifier: Apache-2.0
// The block formats against values worked out by hand, and packers written from the formats'
// layout.
#include "llm/ggml_blocks.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "checkpoint/file_builders.hpp"
#include "llm/element_decode.hpp"

namespace octavo::llm {
namespace {

using test::append;
using test::Bytes;

constexpr std::uint16_t kHalfOne = 0x3C00;         // 1.0
constexpr std::uint16_t kHalfPointFive = 0x3800;   // 0.5
constexpr std::uint16_t kHalfMinusThree = 0xC200;  // -3.0

std::vector<float> decode(GgmlType type, const Bytes& bytes, std::size_t count) {
  std::vector<float> out(count, std::numeric_limits<float>::quiet_NaN());
  decode_ggml(type, bytes, out);
  return out;
}

TEST(GgmlBlocks, Q4_0_counts_from_minus_eight) {
  Bytes block;
  append(block, kHalfPointFive);
  for (std::uint8_t j = 0; j < 16; ++j)
    append(block, static_cast<std::uint8_t>(j | ((15 - j) << 4)));
  const std::vector<float> out = decode(GgmlType::kQ4_0, block, 32);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(out[static_cast<std::size_t>(j)], 0.5F * static_cast<float>(j - 8));
    EXPECT_EQ(out[static_cast<std::size_t>(j + 16)], 0.5F * static_cast<float>(7 - j));
  }
}

TEST(GgmlBlocks, Q4_1_adds_the_minimum) {
  Bytes block;
  append(block, kHalfPointFive);
  append(block, kHalfMinusThree);
  for (std::uint8_t j = 0; j < 16; ++j)
    append(block, static_cast<std::uint8_t>(j | ((15 - j) << 4)));
  const std::vector<float> out = decode(GgmlType::kQ4_1, block, 32);
  for (int j = 0; j < 16; ++j) {
    EXPECT_EQ(out[static_cast<std::size_t>(j)], 0.5F * static_cast<float>(j) - 3.0F);
    EXPECT_EQ(out[static_cast<std::size_t>(j + 16)], 0.5F * static_cast<float>(15 - j) - 3.0F);
  }
}

// Element i has nibble (3*i) mod 16 and fifth bit set where i is a multiple of 3.
struct FiveBits {
  std::uint32_t high = 0;
  std::vector<int> values;
  Bytes nibbles;

  FiveBits() {
    for (int i = 0; i < 32; ++i) {
      const bool set = i % 3 == 0;
      if (set) high |= 1U << i;
      values.push_back((3 * i) % 16 + (set ? 16 : 0));
    }
    for (std::size_t j = 0; j < 16; ++j) {
      append(nibbles, static_cast<std::uint8_t>((values[j] & 15) | ((values[j + 16] & 15) << 4)));
    }
  }
};

TEST(GgmlBlocks, Q5_0_counts_from_minus_sixteen) {
  const FiveBits five;
  Bytes block;
  append(block, kHalfPointFive);
  append(block, five.high);
  block.insert(block.end(), five.nibbles.begin(), five.nibbles.end());
  const std::vector<float> out = decode(GgmlType::kQ5_0, block, 32);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], 0.5F * static_cast<float>(five.values[i] - 16)) << i;
  }
}

TEST(GgmlBlocks, Q5_1_adds_the_minimum) {
  const FiveBits five;
  Bytes block;
  append(block, kHalfOne);
  append(block, kHalfMinusThree);
  append(block, five.high);
  block.insert(block.end(), five.nibbles.begin(), five.nibbles.end());
  const std::vector<float> out = decode(GgmlType::kQ5_1, block, 32);
  for (std::size_t i = 0; i < 32; ++i) {
    EXPECT_EQ(out[i], static_cast<float>(five.values[i]) - 3.0F) << i;
  }
}

TEST(GgmlBlocks, Q8_0_is_signed_and_blocks_follow_each_other) {
  Bytes blocks;
  append(blocks, kHalfPointFive);
  for (int i = 0; i < 32; ++i) append(blocks, static_cast<std::int8_t>(i - 16));
  append(blocks, kHalfMinusThree);
  append(blocks, static_cast<std::int8_t>(-128));
  append(blocks, static_cast<std::int8_t>(127));
  for (int i = 2; i < 32; ++i) append(blocks, static_cast<std::int8_t>(0));
  const std::vector<float> out = decode(GgmlType::kQ8_0, blocks, 64);
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(out[static_cast<std::size_t>(i)], 0.5F * static_cast<float>(i - 16));
  }
  EXPECT_EQ(out[32], 384.0F);
  EXPECT_EQ(out[33], -381.0F);
  EXPECT_EQ(out[34], 0.0F);
}

TEST(GgmlBlocks, Q6_K_gathers_six_bits_and_scales_sixteen_elements) {
  std::mt19937 random(20260101);
  std::vector<int> q(256);
  for (int& value : q) value = static_cast<int>(random() % 64);
  std::vector<std::uint8_t> low(128, 0);
  std::vector<std::uint8_t> high(64, 0);
  // The layout, element by element: part of 128, quarter of 32, lane.
  for (std::size_t i = 0; i < 256; ++i) {
    const std::size_t part = i / 128;
    const std::size_t quarter = i % 128 / 32;
    const std::size_t lane = i % 32;
    const std::size_t low_at = part * 64 + (quarter == 1 || quarter == 3 ? 32 : 0) + lane;
    low[low_at] = static_cast<std::uint8_t>(low[low_at] | ((q[i] & 15) << (quarter >= 2 ? 4 : 0)));
    const std::size_t high_at = part * 32 + lane;
    high[high_at] = static_cast<std::uint8_t>(high[high_at] | ((q[i] >> 4) << (2 * quarter)));
  }
  Bytes block;
  for (const std::uint8_t byte : low) append(block, byte);
  for (const std::uint8_t byte : high) append(block, byte);
  for (int s = 0; s < 16; ++s) append(block, static_cast<std::int8_t>(s * 7 - 60));
  append(block, kHalfPointFive);
  ASSERT_EQ(block.size(), 210U);
  const std::vector<float> out = decode(GgmlType::kQ6_K, block, 256);
  for (std::size_t i = 0; i < 256; ++i) {
    const float scale = static_cast<float>(static_cast<int>(i / 16) * 7 - 60);
    EXPECT_EQ(out[i], 0.5F * scale * static_cast<float>(q[i] - 32)) << i;
  }
}

TEST(GgmlBlocks, plain_types_are_exact) {
  EXPECT_EQ(decode(GgmlType::kF32, test::bytes_of<float>({1.5F, -0.1F}), 2),
            (std::vector<float>{1.5F, -0.1F}));
  EXPECT_EQ(decode(GgmlType::kF16, test::bytes_of<std::uint16_t>({kHalfOne, kHalfMinusThree}), 2),
            (std::vector<float>{1.0F, -3.0F}));
  EXPECT_EQ(decode(GgmlType::kBF16, test::bytes_of<std::uint16_t>({0x3F80, 0xC040}), 2),
            (std::vector<float>{1.0F, -3.0F}));
}

TEST(GgmlBlocks, sizes_that_disagree_are_a_defect) {
  const Bytes bytes(34);
  std::vector<float> out(31);
  test::expect_error(ErrorCode::kInternal, {"Q8_0", "31"},
                     [&] { decode_ggml(GgmlType::kQ8_0, bytes, out); });
}

TEST(GgmlBlocks, unknown_types_have_names) {
  EXPECT_EQ(ggml_type_name(static_cast<GgmlType>(12)), "Q4_K");
  EXPECT_EQ(ggml_type_name(static_cast<GgmlType>(99)), "type 99");
  EXPECT_FALSE(ggml_block_size(static_cast<GgmlType>(12)).has_value());
}

TEST(ElementDecode, f16_all_codes) {
  // Against the definition, worked out in double.
  for (unsigned bits = 0; bits < 0x10000; ++bits) {
    const auto code = static_cast<std::uint16_t>(bits);
    const float value = f16_to_f32(code);
    const int exponent = static_cast<int>((bits >> 10) & 31U);
    const double mantissa = static_cast<double>(bits & 1023U);
    if (exponent == 31) {
      EXPECT_EQ(std::isnan(value), (bits & 1023U) != 0) << bits;
      EXPECT_EQ(std::isinf(value), (bits & 1023U) == 0) << bits;
      continue;
    }
    const double magnitude =
        exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0 + mantissa, exponent - 25);
    ASSERT_EQ(static_cast<double>(value), (bits & 0x8000U) != 0 ? -magnitude : magnitude) << bits;
    ASSERT_EQ(std::signbit(value), (bits & 0x8000U) != 0) << bits;
  }
}

TEST(ElementDecode, fp8_landmarks) {
  EXPECT_EQ(e4m3_to_f32(0x38), 1.0F);
  EXPECT_EQ(e4m3_to_f32(0x7E), 448.0F);
  EXPECT_EQ(e4m3_to_f32(0xFE), -448.0F);
  EXPECT_EQ(e4m3_to_f32(0x01), 0.001953125F);
  EXPECT_EQ(e4m3_to_f32(0x08), 0.015625F);
  EXPECT_TRUE(std::signbit(e4m3_to_f32(0x80)));
  EXPECT_EQ(e4m3_to_f32(0x80), 0.0F);
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0x7F)));
  EXPECT_TRUE(std::isnan(e4m3_to_f32(0xFF)));
  EXPECT_EQ(e5m2_to_f32(0x3C), 1.0F);
  EXPECT_EQ(e5m2_to_f32(0x7B), 57344.0F);
  EXPECT_TRUE(std::isinf(e5m2_to_f32(0x7C)));
  EXPECT_TRUE(std::isnan(e5m2_to_f32(0x7D)));
  EXPECT_EQ(ue8m0_to_f32(127), 1.0F);
  EXPECT_EQ(ue8m0_to_f32(0), std::ldexp(1.0F, -127));
  EXPECT_TRUE(std::isnan(ue8m0_to_f32(255)));
}

TEST(ElementDecode, unaligned_bytes_are_read) {
  Bytes bytes(1);
  append(bytes, 2.5F);
  append(bytes, -7.0F);
  std::vector<float> out(2);
  decode_elements(DType::kF32, std::span(bytes).subspan(1), out);
  EXPECT_EQ(out, (std::vector<float>{2.5F, -7.0F}));
}

}  // namespace
}  // namespace octavo::llm
