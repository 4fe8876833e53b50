// SPDX-License-Identifier: Apache-2.0
// Single values: golden rows, every code's value, and an independent encoder on structured and
// random bit patterns. Arrays, and all 2^32 inputs: codec_array_test.cpp.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "numerics/bit_patterns.hpp"
#include "numerics/codec.hpp"
#include "octavo/error.hpp"
#include "octavo/quantize.hpp"
#include "support/nearest_encoder.hpp"

namespace octavo {
namespace {

using test::NearestEncoder;

struct GoldenRow {
  const char* name;
  std::uint32_t bits;
  std::uint32_t e4m3;
  std::uint32_t e5m2;
};

// What NVIDIA's host conversion functions give with saturation.
constexpr GoldenRow kGoldenRows[] = {
    {"+0", 0x00000000U, 0x00, 0x00},
    {"-0", 0x80000000U, 0x80, 0x80},
    {"FP32 min subnormal", 0x00000001U, 0x00, 0x00},
    {"2^-17 (tie, E5M2)", 0x37000000U, 0x00, 0x00},
    {"2^-17 + 1ulp", 0x37000001U, 0x00, 0x01},
    {"2^-16", 0x37800000U, 0x00, 0x01},
    {"1.5 * 2^-16 (tie, E5M2)", 0x37c00000U, 0x00, 0x02},
    {"2^-14", 0x38800000U, 0x00, 0x04},
    {"2^-10 (tie, E4M3)", 0x3a800000U, 0x00, 0x14},
    {"2^-10 + 1ulp", 0x3a800001U, 0x01, 0x14},
    {"-(2^-10 + 1ulp)", 0xba800001U, 0x81, 0x94},
    {"2^-9", 0x3b000000U, 0x01, 0x18},
    {"1.5 * 2^-9 (tie, E4M3)", 0x3b400000U, 0x02, 0x1A},
    {"2.5 * 2^-9 (tie, E4M3)", 0x3ba00000U, 0x02, 0x1D},
    {"7 * 2^-9", 0x3c600000U, 0x07, 0x23},
    {"7.5 * 2^-9 (tie to normal)", 0x3c700000U, 0x08, 0x24},
    {"2^-6", 0x3c800000U, 0x08, 0x24},
    {"1", 0x3f800000U, 0x38, 0x3C},
    {"1.0625 (tie, E4M3)", 0x3f880000U, 0x38, 0x3C},
    {"1.0625 + 1ulp", 0x3f880001U, 0x39, 0x3C},
    {"1.125 (tie, E5M2)", 0x3f900000U, 0x39, 0x3C},
    {"1.1875 (tie, E4M3)", 0x3f980000U, 0x3A, 0x3D},
    {"1.375 (tie, E5M2)", 0x3fb00000U, 0x3B, 0x3E},
    {"1.9375 (tie, carries)", 0x3ff80000U, 0x40, 0x40},
    {"240", 0x43700000U, 0x77, 0x5C},
    {"448", 0x43e00000U, 0x7E, 0x5F},
    {"464 (tie 448/480)", 0x43e80000U, 0x7E, 0x5F},
    {"464 + 1ulp", 0x43e80001U, 0x7E, 0x5F},
    {"-464 - 1ulp", 0xc3e80001U, 0xFE, 0xDF},
    {"480", 0x43f00000U, 0x7E, 0x60},
    {"57344", 0x47600000U, 0x7E, 0x7B},
    {"61440 - 1ulp", 0x476fffffU, 0x7E, 0x7B},
    {"61440 (tie to 2^16)", 0x47700000U, 0x7E, 0x7B},
    {"65536", 0x47800000U, 0x7E, 0x7B},
    {"FLT_MAX", 0x7f7fffffU, 0x7E, 0x7B},
    {"+Inf", 0x7f800000U, 0x7E, 0x7B},
    {"-Inf", 0xff800000U, 0xFE, 0xFB},
    {"+NaN", 0x7fc00000U, 0x7F, 0x7F},
    {"-NaN", 0xffc00001U, 0x7F, 0x7F},
};

TEST(Codec, golden_rows) {
  for (const GoldenRow& row : kGoldenRows) {
    const auto value = std::bit_cast<float>(row.bits);
    EXPECT_EQ(encode(DType::kE4M3, value), row.e4m3) << row.name;
    EXPECT_EQ(encode(DType::kE5M2, value), row.e5m2) << row.name;
  }
}

TEST(Codec, golden_ue8m0) {
  constexpr float kUlp = std::numeric_limits<float>::epsilon();
  EXPECT_EQ(encode(DType::kUE8M0, 1.0F), 0x7FU);
  EXPECT_EQ(encode(DType::kUE8M0, 1.0F + kUlp), 0x80U);
  EXPECT_EQ(encode(DType::kUE8M0, 0.75F), 0x7FU);
  EXPECT_EQ(encode(DType::kUE8M0, 0x1p-126F), 0x01U);
  EXPECT_EQ(encode(DType::kUE8M0, 0x1p-127F), 0x00U);
  EXPECT_EQ(encode(DType::kUE8M0, 0.0F), 0x00U);
  EXPECT_EQ(encode(DType::kUE8M0, 0x1p127F), 0xFEU);
  EXPECT_EQ(encode(DType::kUE8M0, std::numeric_limits<float>::max()), 0xFEU);
  EXPECT_EQ(encode(DType::kUE8M0, std::numeric_limits<float>::infinity()), 0xFEU);
  EXPECT_EQ(encode(DType::kUE8M0, std::numeric_limits<float>::quiet_NaN()), 0xFFU);
  EXPECT_EQ(encode(DType::kUE8M0, -0.75F), 0x7FU) << "the sign is ignored";
}

// Every finite code of a format equals the value of its fields, with its sign, and encodes to
// itself.
void expect_all_codes(DType dtype, const NearestEncoder& format) {
  for (std::uint32_t code = 0; code <= format.max_code(); ++code) {
    const float value = decode(dtype, code);
    ASSERT_EQ(static_cast<double>(value), format.value(code)) << to_string(dtype) << " " << code;
    ASSERT_FALSE(std::signbit(value)) << code;
    const float negative = decode(dtype, code | format.sign_bit());
    ASSERT_EQ(static_cast<double>(negative), -format.value(code)) << code;
    ASSERT_TRUE(std::signbit(negative)) << code;
    ASSERT_EQ(encode(dtype, value), code);
    ASSERT_EQ(encode(dtype, negative), code | format.sign_bit());
  }
}

TEST(Codec, every_finite_code) {
  expect_all_codes(DType::kE4M3, NearestEncoder::e4m3());
  expect_all_codes(DType::kE5M2, NearestEncoder::e5m2());
  expect_all_codes(DType::kF16, NearestEncoder::f16());
  expect_all_codes(DType::kBF16, NearestEncoder::bf16());
  for (std::uint32_t code = 0; code < 0xFF; ++code) {
    const float value = decode(DType::kUE8M0, code);
    EXPECT_EQ(value, std::ldexp(1.0F, static_cast<int>(code) - 127)) << code;
    EXPECT_EQ(encode(DType::kUE8M0, value), code);
  }
}

TEST(Codec, special_codes) {
  // A NaN code loses its sign and payload, as on the GPU.
  const auto is_canonical_nan = [](float value) {
    return std::bit_cast<std::uint32_t>(value) == 0x7FFFFFFFU;
  };
  for (const std::uint32_t sign : {0x00U, 0x80U}) {
    EXPECT_TRUE(is_canonical_nan(decode(DType::kE4M3, sign | 0x7FU)));
    for (const std::uint32_t code : {0x7DU, 0x7EU, 0x7FU}) {
      EXPECT_TRUE(is_canonical_nan(decode(DType::kE5M2, sign | code))) << code;
    }
  }
  EXPECT_EQ(decode(DType::kE5M2, 0x7C), std::numeric_limits<float>::infinity());
  EXPECT_EQ(decode(DType::kE5M2, 0xFC), -std::numeric_limits<float>::infinity());
  EXPECT_TRUE(is_canonical_nan(decode(DType::kUE8M0, 0xFF)));
  for (std::uint32_t mantissa = 1; mantissa < 0x400; ++mantissa) {
    ASSERT_TRUE(is_canonical_nan(decode(DType::kF16, 0x7C00U | mantissa)));
    ASSERT_TRUE(is_canonical_nan(decode(DType::kF16, 0xFC00U | mantissa)));
  }
  for (std::uint32_t mantissa = 1; mantissa < 0x80; ++mantissa) {
    ASSERT_TRUE(std::isnan(decode(DType::kBF16, 0x7F80U | mantissa)));
    ASSERT_TRUE(std::isnan(decode(DType::kBF16, 0xFF80U | mantissa)));
  }
  EXPECT_EQ(decode(DType::kF16, 0x7C00), std::numeric_limits<float>::infinity());
  EXPECT_EQ(decode(DType::kBF16, 0xFF80), -std::numeric_limits<float>::infinity());
}

// Subnormal codes have no implicit leading one.
TEST(Codec, C06_subnormal_codes) {
  constexpr float kExpected[] = {0,           .001953125F, .00390625F,  .005859375F, .0078125F,
                                 .009765625F, .01171875F,  .013671875F, .015625F};
  for (std::uint32_t code = 0; code < std::size(kExpected); ++code) {
    EXPECT_EQ(decode(DType::kE4M3, code), kExpected[code]);
    EXPECT_EQ(decode(DType::kE4M3, 0x80U | code), -kExpected[code]);
    EXPECT_TRUE(std::signbit(decode(DType::kE4M3, 0x80U | code)));
  }
}

// Values above the largest one saturate, infinities too; NaN stays NaN.
TEST(Codec, C04_saturation) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float values[] = {447,       448, 463.9F, 464,   std::nextafter(464.0F, 1000.0F),
                          465,       480, 1000,   -1000, kInfinity,
                          -kInfinity};
  const float expected[] = {448, 448, 448, 448, 448, 448, 448, 448, -448, 448, -448};
  for (std::size_t i = 0; i < std::size(values); ++i) {
    EXPECT_EQ(decode(DType::kE4M3, encode(DType::kE4M3, values[i])), expected[i]) << values[i];
  }
  for (const float nan :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_EQ(encode(DType::kE4M3, nan), 0x7FU);
    EXPECT_EQ(encode(DType::kE5M2, nan), 0x7FU);
  }
}

template <typename Encode>
void expect_nearest(DType dtype, const std::vector<float>& values, const Encode& expected) {
  for (const float value : values) {
    ASSERT_EQ(encode(dtype, value), expected(value))
        << to_string(dtype) << " of bits " << std::bit_cast<std::uint32_t>(value);
  }
}

TEST(Codec, agrees_with_independent_encoder) {
  std::vector<float> values = test::structured_floats();
  const std::vector<float> random = test::random_floats(500'000, 20'260'101);
  values.insert(values.end(), random.begin(), random.end());
  const auto nearest = [](const NearestEncoder& format) {
    return [format](float value) { return format.encode(value); };
  };
  expect_nearest(DType::kE4M3, values, nearest(NearestEncoder::e4m3()));
  expect_nearest(DType::kE5M2, values, nearest(NearestEncoder::e5m2()));
  expect_nearest(DType::kF16, values, nearest(NearestEncoder::f16()));
  expect_nearest(DType::kBF16, values, nearest(NearestEncoder::bf16()));
  expect_nearest(DType::kUE8M0, values, test::ceil_power_of_two_code);
}

// 16-bit rounding at and next to every tie between two codes.
TEST(Codec, sixteen_bit_ties) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    const NearestEncoder format =
        dtype == DType::kF16 ? NearestEncoder::f16() : NearestEncoder::bf16();
    for (std::uint32_t code = 0; code <= format.max_code(); ++code) {
      const double upper = code == format.max_code()
                               ? 2 * format.value(code) - format.value(code - 1)
                               : format.value(code + 1);
      const auto tie = static_cast<float>((format.value(code) + upper) / 2);
      ASSERT_EQ(encode(dtype, tie), code + code % 2) << code;
      ASSERT_EQ(encode(dtype, std::nextafter(tie, 0.0F)), code);
      ASSERT_EQ(encode(dtype, std::nextafter(tie, std::numeric_limits<float>::infinity())),
                code + 1);
      ASSERT_EQ(encode(dtype, -tie), (code + code % 2) | format.sign_bit());
    }
  }
}

TEST(Codec, refuses_integers_and_oversized_codes) {
  const auto message_of = [](const auto& call) -> std::string {
    try {
      (void)call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_of([] { return encode(DType::kI32, 1); }),
            "encode: dtype is i32; the formats of single values are e4m3, e5m2, ue8m0, bf16, f16 "
            "and f32. Name one of these.");
  EXPECT_EQ(message_of([] { return decode(DType::kI32, 1); }),
            "decode: dtype is i32; the formats of single values are e4m3, e5m2, ue8m0, bf16, f16 "
            "and f32. Name one of these.");
  EXPECT_EQ(message_of([] { return decode(DType::kE4M3, 256); }),
            "decode: code is 256; codes of e4m3 are 0 to 255. Pass one code at a time.");
  EXPECT_EQ(message_of([] { return decode(DType::kBF16, 65536); }),
            "decode: code is 65536; codes of bf16 are 0 to 65535. Pass one code at a time.");
}

}  // namespace
}  // namespace octavo
