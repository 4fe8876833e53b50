// SPDX-License-Identifier: Apache-2.0
// Names of kernels that quantize, both directions.
#include "naming/quantize_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "octavo/naming.hpp"

namespace octavo {
namespace {

using testing::HasSubstr;

TEST(QuantizeName, every_config_comes_back_from_its_name_and_its_fields) {
  std::set<std::string> names;
  for (const QuantizeConfig& config : quantize_configs()) {
    const std::string name = quantize_kernel_name(config);
    EXPECT_TRUE(names.insert(name).second) << name;
    EXPECT_EQ(parse_quantize_name(name).value(), config) << name;
    EXPECT_EQ(quantize_config_of(fields_of(config)).value(), config) << name;
    EXPECT_EQ(kernel_name_of(kernel_name_fields(name)), name);
  }
  // 3 types in, 2 out and 2 kinds of access for 8 steps, and amax without a type out.
  EXPECT_EQ(names.size(), 3U * 2 * 2 * 8 + 3 * 2);
}

TEST(QuantizeName, says_what_the_kernel_is) {
  const std::vector<NameField> want = {
      {"step", "1x128"}, {"x", "bf16"}, {"q", "e5m2"}, {"access", "elements"}};
  EXPECT_EQ(kernel_name_fields("octavo_sm90_quantize_1x128_bf16_e5m2_elements"), want);
  EXPECT_EQ(read_kernel_name("octavo_sm90_amax_f32_vectors").maker, "octavo");
  EXPECT_EQ(kernel_name_of(std::vector<NameField>{{"step", "dequantize"}}),
            "octavo_sm90_dequantize_e4m3_bf16_vectors");
  EXPECT_EQ(kernel_name_of(std::vector<NameField>{{"step", "amax"}, {"x", "f16"}}),
            "octavo_sm90_amax_f16_vectors");
}

std::string error_of(const std::vector<NameField>& fields) {
  const Result<QuantizeConfig> config = quantize_config_of(fields);
  return config.ok() ? "no error" : config.error().what();
}

TEST(QuantizeName, says_what_is_none) {
  EXPECT_FALSE(parse_quantize_name("octavo_sm90_quantize_1x128_bf16_e4m3").ok());
  EXPECT_THAT(error_of({{"step", "row"}, {"tile", "1"}}), HasSubstr("tile is no field"));
  EXPECT_THAT(error_of({{"step", "row"}, {"step", "row"}}), HasSubstr("step is given twice"));
  EXPECT_THAT(error_of({{"step", "column"}}), HasSubstr("step is amax, tensor"));
  EXPECT_THAT(error_of({{"step", "amax"}, {"q", "e4m3"}}), HasSubstr("(not of amax)"));
  EXPECT_THROW((void)kernel_name_fields("octavo_sm90_quantize_1x128_bf16"), Error);
}

}  // namespace
}  // namespace octavo
