// SPDX-License-Identifier: Apache-2.0
// Names as CUTLASS's library and cuBLASLt give them, seen in profiles and sources.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

#include "octavo/error.hpp"
#include "octavo/naming.hpp"

namespace octavo {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::StartsWith;

std::map<std::string, std::string> fields_in(const KernelNameReading& reading) {
  std::map<std::string, std::string> fields;
  for (const NameField& field : reading.fields) fields[field.field] = field.value;
  return fields;
}

std::string error_of(const std::string& name) {
  try {
    (void)read_kernel_name(name);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ForeignName, cutlass_fp8_names_have_the_fields_of_ours) {
  const KernelNameReading reading = read_kernel_name(
      "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnt_"
      "align16_warpspecialized_cooperative_fp8_fastaccum_epi_tma");
  EXPECT_EQ(reading.maker, "cutlass");
  EXPECT_EQ(fields_in(reading), (std::map<std::string, std::string>{{"architecture", "sm90"},
                                                                    {"class", "tensorop"},
                                                                    {"instruction", "s64x128x32"},
                                                                    {"operation", "gemm"},
                                                                    {"a", "e4m3"},
                                                                    {"b", "e4m3"},
                                                                    {"accumulator", "f32"},
                                                                    {"c", "bf16"},
                                                                    {"d", "bf16"},
                                                                    {"tile", "128x128x128"},
                                                                    {"cluster", "2x1"},
                                                                    {"stages", "auto"},
                                                                    {"layouts", "tnt"},
                                                                    {"alignment", "16"},
                                                                    {"schedule", "cooperative"},
                                                                    {"sum", "fast"},
                                                                    {"epilogue", "tma"}}));
  EXPECT_THAT(reading.notes, Contains(StartsWith("recipe: the name does not say")));
}

TEST(ForeignName, cutlass_names_of_other_kinds) {
  auto reading = read_kernel_name(
      "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_256x128x128_1x2x1_0_tnt_"
      "align16_warpspecialized_cooperative_epi_tma");
  EXPECT_EQ(fields_in(reading)["sum"], "promoted");
  EXPECT_EQ(fields_in(reading)["cluster"], "1x2");
  EXPECT_THAT(reading.notes, Contains(StartsWith("sum: promoted is what")));

  reading = read_kernel_name(
      "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_64x128x128_2x1x1_0_tnn_"
      "align16_warpspecialized_fp8_fastaccum_epi_nosmem");
  EXPECT_EQ(fields_in(reading)["schedule"], "warpspecialized");
  EXPECT_EQ(fields_in(reading)["epilogue"], "nosmem");

  reading = read_kernel_name(
      "cutlass3x_sm90_tensorop_gemm_f16_f16_f16_void_f16_128x128x64_1x1x1_0_nnn_align8_stream_k_"
      "warpspecialized_pingpong_epi_tma_odd");
  EXPECT_EQ(fields_in(reading)["c"], "void");
  EXPECT_EQ(fields_in(reading)["splits"], "stream_k");
  EXPECT_EQ(fields_in(reading).count("sum"), 0U);
  EXPECT_THAT(reading.notes, Contains("not read: odd"));

  reading = read_kernel_name(
      "cutlass3x_sm90_tensorop_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_bf16_128x128x128_1x2x1_"
      "0_tnt_align16_warpspecialized_cooperative_epi_tma");
  EXPECT_EQ(fields_in(reading)["recipe"], "block");
  EXPECT_EQ(fields_in(reading)["a"], "e4m3");
}

TEST(ForeignName, nvjet_names_as_far_as_they_are_known) {
  auto reading = read_kernel_name("nvjet_qqtst_112x128_128x7_2x1_v_bz_coopA_algo2_TNN");
  EXPECT_EQ(reading.maker, "nvjet");
  auto fields = fields_in(reading);
  EXPECT_EQ(fields["a"], "fp8");
  EXPECT_EQ(fields["b"], "fp8");
  EXPECT_EQ(fields["c"], "bf16");
  EXPECT_EQ(fields["accumulator"], "f32");
  EXPECT_EQ(fields["d"], "bf16");
  EXPECT_EQ(fields["tile"], "112x128x128");
  EXPECT_EQ(fields["stages"], "7");
  EXPECT_EQ(fields["cluster"], "2x1");
  EXPECT_EQ(fields["schedule"], "cooperative");
  EXPECT_EQ(fields["layouts"], "tnn");
  EXPECT_THAT(reading.notes, Contains("not read: bz_algo2"));
  EXPECT_THAT(reading.notes, Contains(StartsWith("types: q, t, h and s are taken as")));

  fields = fields_in(read_kernel_name("nvjet_hsh_32x64_64x16_4x1_v_bz_splitK_TNN"));
  EXPECT_EQ(fields["a"], "f16");
  EXPECT_EQ(fields["d"], "f16");
  EXPECT_EQ(fields["splits"], "splitK");
  fields = fields_in(read_kernel_name("nvjet_sm100_tst_256x128_64x5_2x1_2cta_v_bz_bias_TNT"));
  EXPECT_EQ(fields["architecture"], "sm100");
  EXPECT_EQ(fields["instruction"], "2cta");
  EXPECT_EQ(fields["bias"], "yes");
}

TEST(ForeignName, a_name_of_ours_is_read_as_before) {
  const std::string name =
      "octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_256x128x128_1x2_s3_u4_tnt_"
      "cooperative_alongn8";
  EXPECT_EQ(read_kernel_name(name).fields, kernel_name_fields(name));
  EXPECT_EQ(read_kernel_name(name).maker, "octavo");
}

TEST(ForeignName, says_where_a_name_goes_wrong) {
  EXPECT_THAT(error_of("cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_128x128x128"),
              HasSubstr("the type of accumulator must stand at byte 49, where \"128x128x128\""));
  EXPECT_THAT(error_of("cutlass3x_sm90_tensorop_gemm_e4m3_e4m3_f32_bf16_bf16"),
              HasSubstr("a tile such as 128x128x128 must stand at byte 52, where the name ends"));
  EXPECT_THAT(error_of("cutlass3x_"), HasSubstr("an architecture such as sm90"));
  EXPECT_THAT(error_of("nvjet_qqtst"), HasSubstr("a tile such as 128x256"));
  EXPECT_THAT(error_of("nvjet_123_1x1_1x1_1x1_v"), HasSubstr("at byte 6"));
  EXPECT_THAT(error_of("_ZN7cutlass13device_kernelIN4"), HasSubstr("c++filt"));
  // Cut off anywhere.
  const std::string whole =
      "cutlass3x_sm90_tensorop_s64x128x32gemm_e4m3_e4m3_f32_bf16_bf16_128x128x128_2x1x1_0_tnt_"
      "align16";
  for (std::size_t size = 0; size + 7 < whole.size(); ++size) {
    EXPECT_NE(error_of(whole.substr(0, size)), "no error") << size;
  }
}

}  // namespace
}  // namespace octavo
