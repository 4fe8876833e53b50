// SPDX-License-Identifier: Apache-2.0
// Names of entries in PTX: found, changed everywhere and nowhere else; and what is no PTX.
#include "name_effect/ptx_module.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

namespace octavo {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kHead = ".version 8.7\n.target sm_90a\n.address_size 64\n";

std::vector<PtxToken> tokens_of(const std::string& text) {
  return tokenize_ptx(text, "k.ptx").value();
}

PtxModule module_of(const std::string& text) {
  return read_ptx_module(tokens_of(text), "k.ptx").value();
}

std::string error_of(const std::string& text) {
  const Result<std::vector<PtxToken>> tokens = tokenize_ptx(text, "k.ptx");
  if (!tokens.ok()) return tokens.error().what();
  const Result<PtxModule> module = read_ptx_module(tokens.value(), "k.ptx");
  return module.ok() ? "no error" : module.error().what();
}

std::string with_word(const std::string& text) {
  const std::vector<PtxToken> tokens = tokens_of(text);
  const PtxModule module = read_ptx_module(tokens, "k.ptx").value();
  return rename_in_ptx(text, tokens, names_with_word(module, tokens));
}

std::string without_word(const std::string& text) {
  const std::vector<PtxToken> tokens = tokens_of(text);
  const PtxModule module = read_ptx_module(tokens, "k.ptx").value();
  return rename_in_ptx(text, tokens, names_without_word(module, tokens));
}

std::vector<std::string> entries_of(const std::string& text) {
  std::vector<std::string> names;
  for (const PtxEntry& entry : module_of(text).entries) names.push_back(entry.name);
  return names;
}

TEST(PtxTokens, know_what_ptx_is_made_of) {
  const std::string text =
      "# 1 \"a.cu\"\n@!%p1 bra $L__BB0_1; // not this\nmov.f32 %f1, 0f3F800000; /* nor\nthis */ "
      "{x, _} 1.5e-3 0x1FU 07 %tid.x .b8 \"a\\\"b\"";
  std::vector<std::string> words;
  for (const PtxToken& token : tokens_of(text)) words.emplace_back(token.text);
  EXPECT_THAT(words, ElementsAre("@", "!", "%p1", "bra", "$L__BB0_1", ";", "mov", ".f32", "%f1",
                                 ",", "0f3F800000", ";", "{", "x", ",", "_", "}", "1.5e-3", "0x1FU",
                                 "07", "%tid", ".x", ".b8", "\"a\\\"b\""));
}

TEST(PtxTokens, know_their_places) {
  const std::string text = "a\n  /* x\n */ .b8 7";
  const std::vector<PtxToken> tokens = tokens_of(text);
  ASSERT_EQ(tokens.size(), 3U);
  EXPECT_EQ(tokens[1].line, 3U);
  EXPECT_EQ(tokens[1].column, 5U);
  EXPECT_EQ(tokens[2].column, 9U);
}

TEST(PtxModule, lists_entries_with_bodies) {
  const PtxModule module = module_of(
      kHead +
      ".extern .entry elsewhere(.param .u64 p);\n.func (.param .b32 r) helper() { ret; }\n"
      ".visible .entry first(.param .u64 a, .param .align 64 .b8 b[128]) .maxntid 128 { ret; }\n"
      ".weak .entry second() { { .reg .b32 %r1; } ret; }");
  EXPECT_EQ(module.version, "8.7");
  EXPECT_EQ(module.target, "sm_90a");
  ASSERT_EQ(module.entries.size(), 2U);
  EXPECT_EQ(module.entries[0].name, "first");
  EXPECT_EQ(module.entries[0].line, 6U);
  EXPECT_EQ(module.entries[0].column, 17U);
  EXPECT_THAT(module.entries[0].parameter_bytes, ElementsAre(8, 128));
  EXPECT_EQ(module.entries[1].name, "second");
  EXPECT_THAT(module.entries[1].parameter_bytes, testing::IsEmpty());
}

TEST(PtxModule, says_where_what_is_wrong) {
  const std::string entry = kHead + ".entry matrix_product(.param .u64 p) {\n  ret;\n}\n";
  EXPECT_EQ(error_of(entry), "no error");
  EXPECT_THAT(error_of(""), HasSubstr("k.ptx:1:1: the module has no .version and .target"));
  EXPECT_THAT(error_of("hello"), HasSubstr("k.ptx:1:1: a module begins with .version"));
  EXPECT_THAT(error_of(".version 8.7\n.entry f() {}"), HasSubstr("k.ptx:2:1: .target must come"));
  EXPECT_THAT(error_of(".version x"), HasSubstr("k.ptx:1:10: \"x\" follows .version; a number"));
  EXPECT_THAT(error_of(".version 8.7\n.target"), HasSubstr("k.ptx:2:1: an architecture such as"));
  EXPECT_THAT(error_of(kHead + ".entry"), HasSubstr("k.ptx:4:1: a name must follow, and the file"));
  EXPECT_THAT(error_of(kHead + ".entry 5"), HasSubstr("k.ptx:4:8: \"5\" follows .entry; a name"));
  EXPECT_THAT(error_of(kHead + ".entry%f() {}"), HasSubstr("k.ptx:4:7: names with a %"));
  EXPECT_THAT(error_of(kHead + ".entry f(.param .u64 p)"), HasSubstr("k.ptx:4:8: this entry has"));
  EXPECT_THAT(error_of(entry + ".entry matrix_product() {}"),
              HasSubstr("k.ptx:7:8: entry \"matrix_product\" is defined a second time"));
  EXPECT_THAT(error_of(kHead + ".entry f(.param .u64 p] {}"),
              HasSubstr("k.ptx:4:23: ] stands here where ) would close line 4"));
  EXPECT_THAT(error_of(entry + "}"), HasSubstr("k.ptx:7:1: this } closes nothing"));
  EXPECT_THAT(error_of(entry + "/* and"), HasSubstr("k.ptx:7:1: this comment has no end"));
  EXPECT_THAT(error_of(entry + "\n .file 1 \"a\nb\""), HasSubstr("k.ptx:8:10: this string has"));
  EXPECT_THAT(error_of(entry + "  \x01"), HasSubstr("k.ptx:7:3: byte 0x01 is no part of PTX"));
  EXPECT_THAT(error_of(entry + "`"), HasSubstr("k.ptx:7:1: '`' is no part of PTX"));
  // Cut off anywhere behind .entry and before its end.
  for (std::size_t size = kHead.size() + 6; size + 2 < entry.size(); ++size) {
    EXPECT_THAT(error_of(entry.substr(0, size)), testing::StartsWith("k.ptx:")) << size;
  }
}

// Everything that means the entry follows; what only looks like it stays.
TEST(PtxModule, renames_an_entry_everywhere) {
  const std::string text = kHead +
                           ".extern .entry matrix_product(.param .u64 matrix_product_param_0);\n"
                           ".visible .entry matrix_product(.param .u64 matrix_product_param_0) {\n"
                           "  // matrix_product\n  ld.param.u64 %rd1, [matrix_product_param_0];\n"
                           "  mov.u64 %rd2, matrix_product;\n  call (r), matrix_product, (p);\n}\n"
                           ".alias other, matrix_product;\n.file 1 \"/src/matrix_product.cu\"\n"
                           ".pragma \"matrix_product\";\n.attribute \"matrix_product\";\n";
  const std::string renamed = with_word(text);
  EXPECT_EQ(renamed, kHead +
                         ".extern .entry cutlassproduct(.param .u64 matrix_product_param_0);\n"
                         ".visible .entry cutlassproduct(.param .u64 matrix_product_param_0) {\n"
                         "  // matrix_product\n  ld.param.u64 %rd1, [matrix_product_param_0];\n"
                         "  mov.u64 %rd2, cutlassproduct;\n  call (r), cutlassproduct, (p);\n}\n"
                         ".alias other, cutlassproduct;\n.file 1 \"/src/matrix_product.cu\"\n"
                         ".pragma \"matrix_product\";\n.attribute \"cutlassproduct\";\n");
}

// An entry may have the name of an instruction or of a target.
TEST(PtxModule, instructions_and_targets_are_no_names) {
  const std::string text =
      ".version 8.7\n.target sm_90a, debug\n.address_size 64\n"
      ".entry add(.param .f32 add_param_0) {\n  add.f32 %f1, %f1, %f1;\n@%p1 add.s32 %r1, %r1, 1;\n"
      "add: add.s32 %r1, %r1, 1;\n@!%p1 bra add;\n{ add.f32 %f1, %f1, %f1; }\n  mov.u64 %rd1, "
      "add;\n}\n"
      ".entry debug() { ret; }\n.entry ret() {\n  ret;\n}\n";
  EXPECT_EQ(
      with_word(text),
      ".version 8.7\n.target sm_90a, debug\n.address_size 64\n"
      ".entry cutlass_add(.param .f32 add_param_0) {\n  add.f32 %f1, %f1, %f1;\n@%p1 add.s32 %r1, "
      "%r1, 1;\n"
      "cutlass_add: add.s32 %r1, %r1, 1;\n@!%p1 bra cutlass_add;\n{ add.f32 %f1, %f1, %f1; }\n"
      "  mov.u64 %rd1, cutlass_add;\n}\n"
      ".entry cutlass_debug() { ret; }\n.entry cutlass_ret() {\n  ret;\n}\n");
}

TEST(PtxModule, a_pragma_in_an_entrys_head_is_part_of_it) {
  EXPECT_THAT(entries_of(kHead + ".entry f(.param .u64 p) .pragma \"nounroll\"; { ret; }"),
              ElementsAre("f"));
}

TEST(PtxModule, knows_the_size_of_parameters) {
  const PtxModule module = module_of(
      kHead +
      ".entry f(.param .u64 .ptr .global .align 1 a, .param .f32 b, .param .align 64 .b8 c[128], "
      ".param .odd d, .param .u16 e[3]) { ret; }");
  EXPECT_THAT(module.entries.at(0).parameter_bytes, ElementsAre(8, 4, 128, 0, 6));
}

TEST(PtxModule, quotes_little_and_nothing_that_a_terminal_obeys) {
  const std::string long_name(5000, 'x');
  EXPECT_LT(error_of(kHead + ".entry " + long_name + "() {} .entry " + long_name + "() {}").size(),
            300U);
  EXPECT_LT(error_of(".version " + long_name).size(), 300U);
  EXPECT_EQ(error_of(kHead + ".entry \"\x1b[2J\"").find('\x1b'), std::string::npos);
}

std::string bytes_of(const std::string& text, const char* between) {
  std::string list = ".b8 ";
  for (const char c : text) list += std::to_string(static_cast<int>(c)) + between;
  return list + "0";
}

TEST(PtxModule, renames_whole_debug_strings_of_the_same_length) {
  const auto section = [](const std::string& strings) {
    return "\n.section .debug_str {\nname:\n" + strings + ";\n}\n";
  };
  const std::string entry = ".entry matrix_product() { ret; }";
  const std::string new_entry = ".entry cutlassproduct() { ret; }";
  for (const char* between : {", ", "\n.b8 "}) {
    EXPECT_EQ(with_word(kHead + entry + section(bytes_of("matrix_product", between))),
              kHead + new_entry + section(bytes_of("cutlassproduct", between)));
    const std::string longer = section(bytes_of("a_matrix_product", between));
    EXPECT_EQ(with_word(kHead + entry + longer), kHead + new_entry + longer);
  }
  // Other lengths would move what lies behind it.
  const std::string debug = section(bytes_of("f", ", "));
  EXPECT_EQ(with_word(kHead + ".entry f() { ret; }" + debug),
            kHead + ".entry cutlass_f() { ret; }" + debug);
}

TEST(PtxModule, new_names_are_free_and_as_long_if_they_can_be) {
  EXPECT_THAT(entries_of(with_word(kHead + ".entry matrix_product() {} .entry matrix1_product() {} "
                                           ".entry seven77() {} .entry short() {}")),
              ElementsAre("cutlassproduct", "cutlass_product", "cutlass", "cutlass_short"));
  EXPECT_THAT(entries_of(with_word(kHead + ".global .u32 cutlassproduct;\n"
                                           ".entry matrix_product() {}")),
              ElementsAre("mcutlassroduct"));
  EXPECT_THAT(entries_of(with_word(kHead + ".global .u32 cutlass;\n.entry seven77() {}")),
              ElementsAre("cutlass1_seven77"));
}

TEST(PtxModule, a_second_rewriting_changes_nothing) {
  const std::string text =
      kHead + ".entry matrix_product() {} .entry f() {} .entry my_cutlass_kernel() {}";
  const std::string once = with_word(text);
  EXPECT_THAT(entries_of(once), ElementsAre("cutlassproduct", "cutlass_f", "my_cutlass_kernel"));
  EXPECT_EQ(with_word(once), once);
  const std::string plain = without_word(once);
  EXPECT_THAT(entries_of(plain), ElementsAre("kutlassproduct", "kutlass_f", "my_kutlass_kernel"));
  EXPECT_EQ(without_word(plain), plain);
}

TEST(PtxModule, only_the_word_itself_counts) {
  EXPECT_TRUE(has_name_word("_ZN7cutlass6KernelE"));
  EXPECT_FALSE(has_name_word("CUTLASS_kernel"));
  EXPECT_FALSE(has_name_word("cutlas_s"));
}

}  // namespace
}  // namespace octavo
