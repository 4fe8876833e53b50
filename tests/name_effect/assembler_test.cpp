// SPDX-License-Identifier: Apache-2.0
// What tools print, and cubins that are cut off.
#include "name_effect/assembler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "name_effect/cubin.hpp"
#include "octavo/name_effect.hpp"

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// As many instructions as it takes to have a register, memory and an exit.
const std::string kSmall =
    ".version 8.0\n.target sm_90a\n.address_size 64\n"
    ".visible .entry matrix_product(.param .u64 p)\n{\n  .reg .b64 %rd<2>;\n  .reg .f32 %f<2>;\n"
    "  .shared .align 4 .b8 room[256];\n"
    "  ld.param.u64 %rd1, [p];\n  ld.global.f32 %f1, [%rd1];\n  st.shared.f32 [room], %f1;\n"
    "  add.f32 %f1, %f1, %f1;\n  st.global.f32 [%rd1], %f1;\n  ret;\n}\n";

TEST(Disassembly, of_both_tools_is_read) {
  const auto nvdisasm = parse_disassembly(
      "\t.headerflags\t@\"EF_CUDA_SM90\"\n//--------------------- .text.first ------\n"
      ".text.first:\n        /*0000*/                   LDC R1, c[0x0][0x28] ;\n"
      "        /*0010*/              @!P0 FFMA.FTZ R1, R2, R3, R4 ;\n.L_x_0:\n"
      "        /*0020*/                   BRA `(.L_x_0);\n.text.second:\n"
      "        /*0000*/                   EXIT ;\n");
  EXPECT_THAT(nvdisasm.at("first"), ElementsAre("LDC", "FFMA.FTZ", "BRA"));
  EXPECT_THAT(nvdisasm.at("second"), ElementsAre("EXIT"));
  const auto cuobjdump = parse_disassembly(
      "\t\tFunction : first\n\t.headerflags\t@\"EF_CUDA_SM90\"\n"
      "        /*0000*/                   LDC R1, c[0x0][0x28] ;  /* 0x00000a00ff017b82 */\n"
      "                                                           /* 0x000ff00000000800 */\n"
      "        /*0010*/              @!P0 EXIT ;                  /* 0x000000000000894d */\n");
  EXPECT_THAT(cuobjdump.at("first"), ElementsAre("LDC", "EXIT"));
  EXPECT_TRUE(parse_disassembly("no code\n/*").empty());
}

TEST(Cubin, gives_the_code_or_says_what_is_missing) {
  const auto assembler = make_assembler("");
  if (!assembler.ok()) GTEST_SKIP() << assembler.error().what();
  const Result<AssembledModule> module =
      assembler.value()->assemble(kSmall, "small.ptx", "sm_90a", 3);
  ASSERT_TRUE(module.ok()) << module.error().what();
  const std::vector<std::byte>& cubin = module.value().cubin;
  const Result<MachineCode> code = machine_code_of(cubin, "matrix_product");
  ASSERT_TRUE(code.ok()) << code.error().what();
  EXPECT_GT(code.value().text.size(), 5U * 16);
  EXPECT_EQ(code.value().text.size() % 16, 0U);
  EXPECT_GT(code.value().registers, 0);
  EXPECT_GE(code.value().reserved_bytes.at(".nv.shared"), 256U);
  EXPECT_EQ(code.value().sections.count(".nv.info"), 1U);
  EXPECT_THAT(machine_code_of(cubin, "another").error().what(),
              HasSubstr("it has no function another"));
  for (std::size_t size = 0; size < cubin.size(); size += 7) {
    const std::vector<std::byte> part(cubin.begin(),
                                      cubin.begin() + static_cast<std::ptrdiff_t>(size));
    (void)machine_code_of(part, "matrix_product");  // no crash; most of it is an error
  }
  EXPECT_FALSE(machine_code_of({}, "matrix_product").ok());
}

TEST(CompareNames, says_identical_where_nothing_changes) {
  if (!make_assembler("").ok()) GTEST_SKIP() << "no assembler";
  const NameEffectReport report = compare_names(kSmall, "small.ptx");
  EXPECT_EQ(report.target, "sm_90a");
  EXPECT_EQ(report.architecture, "sm_90a");
  ASSERT_EQ(report.entries.size(), 1U);
  const NameComparison& entry = report.entries[0];
  EXPECT_EQ(entry.entry, "matrix_product");
  EXPECT_FALSE(entry.has_word);
  EXPECT_EQ(entry.plain.name, "matrix_product");
  EXPECT_EQ(entry.with_word.name, "cutlassproduct");
  EXPECT_EQ(entry.verdict, NameVerdict::kIdentical);
  EXPECT_THAT(entry.differences, testing::IsEmpty());
  EXPECT_GT(entry.plain.num_instructions, 5U);
  EXPECT_LE(entry.plain.num_instructions * 16, entry.plain.text_bytes);
  EXPECT_GE(entry.plain.shared_bytes, 256U);
  EXPECT_FALSE(report.plain_cubin.empty());
}

TEST(CompareNames, takes_the_word_out_where_it_is) {
  if (!make_assembler("").ok()) GTEST_SKIP() << "no assembler";
  std::string text = kSmall;
  text.replace(text.find("matrix_product"), 14, "matrix_cutlass");
  const NameComparison entry = compare_names(text, "small.ptx").entries.at(0);
  EXPECT_TRUE(entry.has_word);
  EXPECT_EQ(entry.plain.name, "matrix_kutlass");
  EXPECT_EQ(entry.with_word.name, "matrix_cutlass");
}

std::string error_of(const std::string& text, const NameEffectOptions& options = {}) {
  try {
    (void)compare_names(text, "small.ptx", options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CompareNames, says_what_the_assembler_refuses) {
  if (!make_assembler("").ok()) GTEST_SKIP() << "no assembler";
  std::string text = kSmall;
  text.replace(text.find("add.f32"), 7, "odd.f32");
  EXPECT_THAT(error_of(text), testing::StartsWith("small.ptx:12:3: "));
  EXPECT_THAT(error_of(text), HasSubstr("odd"));
  EXPECT_THAT(error_of(kSmall, {"", "sm_1", 3}), HasSubstr("sm_1"));
  EXPECT_THAT(error_of(kSmall, {"", "", 9}), HasSubstr("ptxas has 0 to 4"));
  EXPECT_THAT(error_of(kSmall, {"/nowhere/ptxas", "", 3}),
              HasSubstr("the program cannot be started"));
  EXPECT_THAT(error_of(kSmall, {"/bin/true", "", 3}), HasSubstr("does not say its version"));
}

}  // namespace
}  // namespace octavo
