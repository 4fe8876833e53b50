// SPDX-License-Identifier: Apache-2.0
// The tensor-core model against what an H200 computed (tests/data/golden).
#include "numerics/tensor_core.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <fstream>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "support/denormal_mode.hpp"
#include "support/simd_targets.hpp"
#include "support/test_level.hpp"

namespace octavo {
namespace {

struct GoldenRow {
  std::string id;
  DType a_format;
  DType b_format;
  bool has_c;
  std::vector<std::uint8_t> a;
  std::vector<std::uint8_t> b;
  std::uint32_t c_bits;
  std::uint32_t d_bits;
};

std::uint32_t from_hex(const std::string& text) {
  std::uint32_t value = 0;
  std::from_chars(text.data(), text.data() + text.size(), value, 16);
  return value;
}

std::vector<std::uint8_t> codes_from_hex(const std::string& text) {
  std::vector<std::uint8_t> codes;
  for (std::size_t i = 0; i + 1 < text.size(); i += 2) {
    codes.push_back(static_cast<std::uint8_t>(from_hex(text.substr(i, 2))));
  }
  return codes;
}

std::vector<GoldenRow> golden_rows() {
  std::ifstream file(std::string(OCTAVO_TEST_DATA) + "/golden/wgmma_fp8_h200.csv");
  std::string line;
  std::getline(file, line);
  std::vector<GoldenRow> rows;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::vector<std::string> field(9);
    for (std::string& text : field) std::getline(fields, text, ',');
    const auto format = [](const std::string& text) {
      return text == "e4m3" ? DType::kE4M3 : DType::kE5M2;
    };
    rows.push_back({field[0], format(field[1]), format(field[2]), field[4] == "1",
                    codes_from_hex(field[5]), codes_from_hex(field[6]), from_hex(field[7]),
                    from_hex(field[8])});
  }
  return rows;
}

std::uint32_t model_bits(const TensorCoreModel& model, const GoldenRow& row) {
  const auto c = std::bit_cast<float>(row.c_bits);
  return std::bit_cast<std::uint32_t>(tensor_core_dot(
      model, {row.a.data(), row.a_format, 0, 1}, 0, {row.b.data(), row.b_format, 0, 1}, 0,
      static_cast<std::int64_t>(row.a.size()), row.has_c ? &c : nullptr));
}

int mismatches(const TensorCoreModel& model) {
  int count = 0;
  for (const GoldenRow& row : golden_rows()) count += model_bits(model, row) != row.d_bits ? 1 : 0;
  return count;
}

TEST(TensorCore, golden_rows_match_bit_for_bit) {
  const std::vector<GoldenRow> rows = golden_rows();
  ASSERT_EQ(rows.size(), 3189U);
  for (const GoldenRow& row : rows) {
    ASSERT_EQ(row.a.size(), row.b.size());
    EXPECT_EQ(model_bits(kHopper, row), row.d_bits) << row.id;
  }
}

TEST(TensorCore, golden_rows_contradict_other_widths_and_groups) {
  EXPECT_EQ(mismatches(kHopper), 0);
  EXPECT_GT(mismatches({.fraction_bits = 12}), 0);
  EXPECT_GT(mismatches({.fraction_bits = 14}), 0);
  EXPECT_GT(mismatches({.result_fraction_bits = 12}), 0);
  EXPECT_GT(mismatches({.result_fraction_bits = 14}), 0);
  EXPECT_GT(mismatches({.result_fraction_bits = 23}), 0);
  EXPECT_GT(mismatches({.group = 8}), 0);
  EXPECT_GT(mismatches(kAda), 0);
}

// What random codes look like.
enum class Codes : unsigned char { kAny, kFinite, kNarrow, kMostlyZero, kRareSpecial, kSubnormal };

bool is_special(int code, DType format) {
  return format == DType::kE4M3 ? (code & 0x7F) == 0x7F : (code & 0x7F) >= 0x7C;
}

std::uint8_t random_code(Codes codes, DType format, std::mt19937_64& random) {
  const auto any = static_cast<std::uint8_t>(random());
  const auto finite = [&] {
    std::uint8_t code = any;
    while (is_special(code, format)) code = static_cast<std::uint8_t>(random());
    return code;
  };
  switch (codes) {
    case Codes::kAny: return any;
    case Codes::kFinite: return finite();
    case Codes::kNarrow: return static_cast<std::uint8_t>((any & 0x8F) | 0x30);
    case Codes::kMostlyZero: return random() % 8 != 0 ? any & 0x80 : finite();
    case Codes::kRareSpecial: return random() % 500 == 0 ? any : finite();
    case Codes::kSubnormal: return any & (format == DType::kE4M3 ? 0x87 : 0x83);
  }
  return 0;
}

float random_accumulator(std::mt19937_64& random) {
  switch (random() % 6) {
    case 0: return std::bit_cast<float>(static_cast<std::uint32_t>(random()));  // NaN, Inf, tiny
    case 1: return random() % 2 == 0 ? 0.0F : -0.0F;
    case 2:
      return std::bit_cast<float>(static_cast<std::uint32_t>(random()) & 0x807FFFFFU);  // subnormal
    default: {
      const auto bits = static_cast<std::uint32_t>(random());
      const std::uint32_t field = 60 + bits % 110;
      return std::bit_cast<float>((bits & 0x807FFFFFU) | (field << 23));
    }
  }
}

struct Tile {
  int rows;
  int cols;
  int k;
  bool a_contiguous;
  bool b_contiguous;
};

// Every output of a tile against one dot product; what lies between the rows stays.
void compare_tile(const TensorCoreModel& model, const Tile& tile, Codes codes, DType a_format,
                  DType b_format, ChainStart start, std::mt19937_64& random) {
  const auto fill = [&](std::vector<std::uint8_t>& data, DType format) {
    for (std::uint8_t& code : data) code = random_code(codes, format, random);
  };
  std::vector<std::uint8_t> a_codes(static_cast<std::size_t>(tile.rows * tile.k));
  std::vector<std::uint8_t> b_codes(static_cast<std::size_t>(tile.cols * tile.k));
  fill(a_codes, a_format);
  fill(b_codes, b_format);
  const CodeMatrix a{a_codes.data(), a_format, tile.a_contiguous ? tile.k : 1,
                     tile.a_contiguous ? 1 : tile.rows};
  const CodeMatrix b{b_codes.data(), b_format, tile.b_contiguous ? tile.k : 1,
                     tile.b_contiguous ? 1 : tile.cols};
  const int stride = tile.cols + 3;
  std::vector<float> out(static_cast<std::size_t>(tile.rows * stride));
  for (float& value : out) value = random_accumulator(random);
  const std::vector<float> before = out;
  tensor_core_products(model, a, tile.rows, b, tile.cols, tile.k, start, {out.data(), stride});
  std::int64_t failures = 0;
  for (int row = 0; row < tile.rows; ++row) {
    for (int col = 0; col < stride; ++col) {
      const auto at = static_cast<std::size_t>(row * stride + col);
      const float expected =
          col >= tile.cols
              ? before[at]
              : tensor_core_dot(model, a, row, b, col, tile.k,
                                start == ChainStart::kFromOutput ? &before[at] : nullptr);
      if (std::bit_cast<std::uint32_t>(expected) == std::bit_cast<std::uint32_t>(out[at])) continue;
      if (++failures == 1) {
        ADD_FAILURE() << "first difference at row " << row << ", col " << col << " of " << tile.rows
                      << "x" << tile.cols << "x" << tile.k << ": " << out[at]
                      << ", one dot product gives " << expected << ", accumulator " << before[at];
      }
    }
  }
}

void compare_many_tiles(int num_repeats) {
  std::mt19937_64 random(20261129);
  for (int repeat = 0; repeat < num_repeats; ++repeat) {
    for (const Codes codes : {Codes::kAny, Codes::kFinite, Codes::kNarrow, Codes::kMostlyZero,
                              Codes::kRareSpecial, Codes::kSubnormal}) {
      for (const DType a_format : {DType::kE4M3, DType::kE5M2}) {
        for (const DType b_format : {DType::kE4M3, DType::kE5M2}) {
          for (const ChainStart start : {ChainStart::kAbsent, ChainStart::kFromOutput}) {
            for (const int k : {1, 31, 32, 33, 128, 300}) {
              const Tile tile{static_cast<int>(1 + random() % 7),
                              static_cast<int>(1 + random() % 140), k, random() % 2 == 0,
                              random() % 2 == 0};
              compare_tile(repeat % 4 == 3 ? kAda : kHopper, tile, codes, a_format, b_format, start,
                           random);
              if (::testing::Test::HasFailure()) return;
            }
          }
        }
      }
    }
  }
}

// About 80,000 dot products for each instruction set; OCTAVO_TEST_LEVEL=full: 4 million each.
TEST(TensorCore, tiles_equal_single_dot_products) {
  test::for_each_simd_target([] { compare_many_tiles(test::full_level() ? 50 : 1); });
}

TEST(TensorCore, flush_to_zero_on_the_calling_thread_changes_no_bit) {
  std::vector<std::uint8_t> a(3 * 64);
  std::vector<std::uint8_t> b(70 * 64);
  std::mt19937_64 random(5);
  for (auto* codes : {&a, &b}) {
    for (std::uint8_t& code : *codes) code = random_code(Codes::kSubnormal, DType::kE5M2, random);
  }
  const auto products = [&] {
    std::vector<float> out(3 * 70);
    tensor_core_products(kHopper, {a.data(), DType::kE5M2, 64, 1}, 3,
                         {b.data(), DType::kE5M2, 64, 1}, 70, 64, ChainStart::kAbsent,
                         {out.data(), 70});
    return out;
  };
  test::for_each_simd_target([&] {
    const std::vector<float> kept = products();
    EXPECT_GT(std::count_if(kept.begin(), kept.end(), [](float value) { return value != 0; }), 180);
    const test::FlushDenormals flush;
    EXPECT_EQ(products(), kept);
  });
}

TEST(TensorCore, tiles_follow_every_model_parameter) {
  std::mt19937_64 random(7);
  for (const TensorCoreModel model :
       {kAda, TensorCoreModel{12, 13, 32}, TensorCoreModel{16, 13, 32}, TensorCoreModel{13, 10, 8},
        TensorCoreModel{25, 23, 32}, TensorCoreModel{13, 23, 4}}) {
    for (const ChainStart start : {ChainStart::kAbsent, ChainStart::kFromOutput}) {
      compare_tile(model, {5, 70, 200, true, true}, Codes::kFinite, DType::kE4M3, DType::kE5M2,
                   start, random);
    }
  }
}

TEST(TensorCore, no_products_leave_the_accumulator) {
  std::array<float, 2> out{3.5F, -0.0F};
  tensor_core_products(kHopper, {}, 1, {}, 2, 0, ChainStart::kFromOutput, {out.data(), 2});
  EXPECT_EQ(out[0], 3.5F);
  EXPECT_TRUE(std::signbit(out[1]));
  tensor_core_products(kHopper, {}, 1, {}, 2, 0, ChainStart::kAbsent, {out.data(), 2});
  EXPECT_EQ(out[0], 0.0F);
  EXPECT_FALSE(std::signbit(out[1]));
}

TEST(TensorCore, every_special_case_by_hand) {
  const float infinity = std::numeric_limits<float>::infinity();
  constexpr std::uint8_t kInf = 0x7C;
  constexpr std::uint8_t kMinusInf = 0xFC;
  constexpr std::uint8_t kOne = 0x3C;
  constexpr std::uint8_t kMinusZero = 0x80;
  const auto dot = [](std::vector<std::uint8_t> a, std::vector<std::uint8_t> b, float c) {
    return tensor_core_dot(kHopper, {a.data(), DType::kE5M2, 0, 1}, 0,
                           {b.data(), DType::kE5M2, 0, 1}, 0, static_cast<std::int64_t>(a.size()),
                           &c);
  };
  const auto is_gpu_nan = [](float value) {
    return std::bit_cast<std::uint32_t>(value) == 0x7FFFFFFFU;
  };
  EXPECT_EQ(dot({kInf}, {kOne}, 0), infinity);
  EXPECT_EQ(dot({kMinusInf}, {kOne}, 0), -infinity);
  EXPECT_EQ(dot({kOne}, {kOne}, -infinity), -infinity);
  EXPECT_TRUE(is_gpu_nan(dot({kInf}, {0}, 0)));
  EXPECT_TRUE(is_gpu_nan(dot({kInf, kMinusInf}, {kOne, kOne}, 0)));
  EXPECT_TRUE(is_gpu_nan(dot({kInf}, {kOne}, -infinity)));
  EXPECT_TRUE(is_gpu_nan(dot({0xFF}, {kOne}, 0)));
  EXPECT_TRUE(is_gpu_nan(dot({kOne}, {kOne}, -std::numeric_limits<float>::quiet_NaN())));
  const float zero = dot({kMinusZero}, {kOne}, -0.0F);
  EXPECT_EQ(zero, 0.0F);
  EXPECT_FALSE(std::signbit(zero));
}

}  // namespace
}  // namespace octavo
