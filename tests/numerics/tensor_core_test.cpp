// SPDX-License-Identifier: Apache-2.0
// The tensor-core model against what an H200 computed (tests/data/golden).
#include "numerics/tensor_core.hpp"

#include <gtest/gtest.h>

#include <bit>
#include <charconv>
#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

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

}  // namespace
}  // namespace octavo
