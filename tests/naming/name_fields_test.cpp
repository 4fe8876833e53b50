// SPDX-License-Identifier: Apache-2.0
// Names as fields, and the catalogue of all of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "octavo/error.hpp"
#include "octavo/naming.hpp"

namespace octavo {
namespace {

std::string refusal_of(const std::vector<NameField>& fields) {
  try {
    (void)kernel_name_of(fields);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "accepted";
}

TEST(NameFields, say_what_the_name_says) {
  const std::string name =
      "octavo_sm90_gemm_1x128f32xe5m2_128x128f32xe4m3_f32_f16_16x64x128_1x1_s11_u4_tnt_streamed_"
      "alongn8_split4_accumulate_bias";
  const std::vector<NameField> fields = kernel_name_fields(name);
  const std::vector<NameField> want = {{"a", "e5m2"},        {"b", "e4m3"},
                                       {"d", "f16"},         {"recipe", "block"},
                                       {"sum", "promoted"},  {"tile", "16x64x128"},
                                       {"cluster", "1x1"},   {"stages", "11"},
                                       {"unroll", "4"},      {"schedule", "streamed"},
                                       {"raster", "8"},      {"splits", "4"},
                                       {"grouping", "none"}, {"accumulate", "yes"},
                                       {"bias", "yes"}};
  EXPECT_EQ(fields, want);
  EXPECT_EQ(kernel_name_of(fields), name);
  EXPECT_EQ(kernel_name_of({}),
            "octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_256x128x128_1x2_s3_u4_tnt_"
            "cooperative_alongn8");
  EXPECT_THROW((void)kernel_name_fields("octavo_sm90_gemm"), Error);
}

TEST(NameFields, what_is_no_field_or_value_is_refused) {
  using testing::HasSubstr;
  EXPECT_THAT(refusal_of({{"tiles", "1"}}), HasSubstr("\"tiles\" is no field; these are a, b, d,"));
  EXPECT_THAT(refusal_of({{"tile", "256x128"}}),
              HasSubstr("tile is \"256x128\"; it must be written like 256x128x128"));
  EXPECT_THAT(refusal_of({{"tile", "256x128x128x"}}), HasSubstr("written like"));
  EXPECT_THAT(refusal_of({{"bias", "yes"}, {"bias", "no"}}), HasSubstr("bias is given twice"));
  EXPECT_THAT(refusal_of({{"stages", "0"}}), HasSubstr("the stage count"));
  EXPECT_THAT(refusal_of({{"stages", "-1"}}), HasSubstr("kernel name"));
  EXPECT_THAT(refusal_of({{"a", "bf16"}}), HasSubstr("A at byte"));
  EXPECT_THAT(refusal_of({{"sum", "fast"}}), HasSubstr("of block scales"));
}

// Every name once, and each says what it was made from.
TEST(Catalogue, lists_every_kernel_once_and_its_fields_give_it_back) {
  const std::vector<std::string> names = kernel_catalogue();
  EXPECT_GT(names.size(), 10'000U);
  std::set<std::string> seen;
  std::set<std::string> schedules;
  std::set<std::string> groupings;
  for (const std::string& name : names) {
    ASSERT_TRUE(seen.insert(name).second) << name;
    const std::vector<NameField> fields = kernel_name_fields(name);
    ASSERT_EQ(kernel_name_of(fields), name);
    for (const NameField& field : fields) {
      if (field.field == "schedule") schedules.insert(field.value);
      if (field.field == "grouping") groupings.insert(field.value);
    }
  }
  EXPECT_EQ(schedules.size(), 3U);
  EXPECT_EQ(groupings.size(), 3U);
}

}  // namespace
}  // namespace octavo
