// SPDX-License-Identifier: Apache-2.0
// Kernel names: both ways, over every enumerator, and against names that are nearly right.
#include "naming/kernel_name.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <climits>
#include <random>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace octavo {
namespace {

constexpr std::array kNumbers = {
    &GemmConfig::tile_m,    &GemmConfig::tile_n,         &GemmConfig::tile_k,
    &GemmConfig::cluster_m, &GemmConfig::cluster_n,      &GemmConfig::stages,
    &GemmConfig::unroll_k,  &GemmConfig::raster_group_m, &GemmConfig::num_splits};
// Few digits in many lengths, so that numbers which run together would give equal names.
constexpr std::array kSpread = {1, 2, 9, 10, 11, 12, 21, 99, 100, 111, 128, 256, 1111, 9998, 9999};
constexpr int kRandomDraws = 24;

// Every combination of the enumerators and flags that is a config, with default numbers.
std::vector<GemmConfig> every_kind() {
  std::vector<GemmConfig> kinds;
  for (const DType a : {DType::kE4M3, DType::kE5M2})
    for (const DType b : {DType::kE4M3, DType::kE5M2})
      for (const DType d : {DType::kBF16, DType::kF16, DType::kF32})
        for (const ScaleRecipe recipe :
             {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow, ScaleRecipe::kBlock,
              ScaleRecipe::kBlock1d})
          for (const MainloopSum sum : {MainloopSum::kFast, MainloopSum::kPromoted})
            for (const Schedule schedule :
                 {Schedule::kCooperative, Schedule::kPingpong, Schedule::kStreamed})
              for (const bool accumulates : {false, true})
                for (const bool has_bias : {false, true})
                  for (const Grouping grouping :
                       {Grouping::kNone, Grouping::kRows, Grouping::kProducts}) {
                    if (is_block_scaled(recipe) && sum == MainloopSum::kFast) continue;
                    kinds.push_back({.a = a,
                                     .b = b,
                                     .d = d,
                                     .recipe = recipe,
                                     .sum = sum,
                                     .schedule = schedule,
                                     .accumulates = accumulates,
                                     .has_bias = has_bias,
                                     .grouping = grouping});
                  }
  return kinds;
}

// Each kind with each number of the spread in each place, and with random draws of them all.
std::vector<GemmConfig> many_configs() {
  std::mt19937 random(20260101);
  std::uniform_int_distribution<std::size_t> draw(0, kSpread.size() - 1);
  std::vector<GemmConfig> configs;
  for (const GemmConfig& kind : every_kind()) {
    for (const auto number : kNumbers) {
      for (const int value : kSpread) {
        configs.push_back(kind);
        configs.back().*number = value;
      }
    }
    for (int i = 0; i < kRandomDraws; ++i) {
      configs.push_back(kind);
      for (const auto number : kNumbers) configs.back().*number = kSpread[draw(random)];
    }
  }
  return configs;
}

std::vector<std::string> names_to_mutate() {
  const std::vector<GemmConfig> configs = {
      {},
      {.recipe = ScaleRecipe::kBlock1d, .schedule = Schedule::kPingpong, .accumulates = true},
      {.b = DType::kE5M2, .recipe = ScaleRecipe::kRow, .sum = MainloopSum::kFast, .has_bias = true},
      {.d = DType::kF16, .recipe = ScaleRecipe::kTensor, .raster_group_m = 16},
      {.a = DType::kE5M2,
       .d = DType::kF32,
       .recipe = ScaleRecipe::kNone,
       .sum = MainloopSum::kFast,
       .stages = kMaxKernelNameNumber,
       .unroll_k = 1,
       .accumulates = true,
       .has_bias = true},
      {.schedule = Schedule::kStreamed, .accumulates = true, .num_splits = 4},
      {.schedule = Schedule::kStreamed, .grouping = Grouping::kRows},
      {.has_bias = true, .grouping = Grouping::kProducts}};
  std::vector<std::string> names;
  names.reserve(configs.size());
  for (const GemmConfig& config : configs) names.push_back(kernel_name(config));
  return names;
}

std::string refusal_of(std::string_view name) {
  const Result<GemmConfig> result = parse_kernel_name(name);
  if (result.ok()) return "accepted";
  EXPECT_EQ(result.error().code(), ErrorCode::kInvalidArgument);
  return result.error().what();
}

std::string replaced(std::string text, std::string_view from, std::string_view to) {
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from << " in " << text;
  return at == std::string::npos ? text : text.replace(at, from.size(), to);
}

TEST(KernelName, OneNamePerRecipe) {
  struct Example {
    GemmConfig config;
    std::string_view name;
  };
  const std::vector<Example> examples = {
      {{},
       "octavo_sm90_gemm_1x128f32xe4m3_128x128f32xe4m3_f32_bf16_256x128x128_1x2_s3_u4_tnt_"
       "cooperative_alongn8"},
      {{.a = DType::kE5M2,
        .d = DType::kF32,
        .recipe = ScaleRecipe::kBlock1d,
        .tile_m = 128,
        .stages = 5,
        .accumulates = true},
       "octavo_sm90_gemm_1x128f32xe5m2_1x128f32xe4m3_f32_f32_128x128x128_1x2_s5_u4_tnt_"
       "cooperative_alongn8_accumulate"},
      {{.recipe = ScaleRecipe::kRow,
        .sum = MainloopSum::kFast,
        .schedule = Schedule::kPingpong,
        .tile_m = 128,
        .tile_n = 176,
        .cluster_m = 2,
        .cluster_n = 1,
        .stages = 5,
        .raster_group_m = 16},
       "octavo_sm90_gemm_rowf32xe4m3_rowf32xe4m3_f32fast_bf16_128x176x128_2x1_s5_u4_tnt_"
       "pingpong_alongn16"},
      {{.b = DType::kE5M2,
        .d = DType::kF16,
        .recipe = ScaleRecipe::kTensor,
        .sum = MainloopSum::kFast,
        .tile_m = 128,
        .tile_n = 256,
        .cluster_m = 2,
        .cluster_n = 1,
        .stages = 4,
        .unroll_k = 2,
        .has_bias = true},
       "octavo_sm90_gemm_tensorf32xe4m3_tensorf32xe5m2_f32fast_f16_128x256x128_2x1_s4_u2_tnt_"
       "cooperative_alongn8_bias"},
      {{.d = DType::kF32,
        .recipe = ScaleRecipe::kNone,
        .sum = MainloopSum::kFast,
        .tile_m = 128,
        .cluster_n = 1,
        .stages = 6,
        .unroll_k = 1,
        .raster_group_m = 1,
        .accumulates = true,
        .has_bias = true},
       "octavo_sm90_gemm_nonef32xe4m3_nonef32xe4m3_f32fast_f32_128x128x128_1x1_s6_u1_tnt_"
       "cooperative_alongn1_accumulate_bias"}};
  for (const Example& example : examples) {
    EXPECT_EQ(kernel_name(example.config), example.name);
    const Result<GemmConfig> parsed = parse_kernel_name(example.name);
    ASSERT_TRUE(parsed.ok()) << parsed.error().what();
    EXPECT_TRUE(parsed.value() == example.config) << example.name;
  }
}

TEST(KernelName, RoundTripsAndIsUnique) {
  std::unordered_map<std::string, GemmConfig> seen;
  for (const GemmConfig& config : many_configs()) {
    const std::string name = kernel_name(config);
    const Result<GemmConfig> parsed = parse_kernel_name(name);
    ASSERT_TRUE(parsed.ok()) << parsed.error().what();
    ASSERT_TRUE(parsed.value() == config) << name;
    const auto [entry, is_new] = seen.emplace(name, config);
    ASSERT_TRUE(entry->second == config) << "two configs are named " << name;
  }
  EXPECT_EQ(every_kind().size(), 2U * 2 * 3 * (3 * 2 + 2) * 3 * 2 * 2 * 3);
  EXPECT_GT(seen.size(), every_kind().size() * kNumbers.size());
}

TEST(KernelName, IsACIdentifierOfBoundedLength) {
  std::size_t longest = 0;
  for (const GemmConfig& config : many_configs()) {
    const std::string name = kernel_name(config);
    const bool starts_with_letter = name.front() >= 'a' && name.front() <= 'z';
    ASSERT_TRUE(starts_with_letter) << name;
    ASSERT_TRUE(std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
    })) << name;
    longest = std::max(longest, name.size());
  }
  GemmConfig widest = {.accumulates = true, .has_bias = true, .grouping = Grouping::kRows};
  for (const auto number : kNumbers) widest.*number = kMaxKernelNameNumber;
  EXPECT_LE(longest, kernel_name(widest).size());
  EXPECT_LE(kernel_name(widest).size(), kMaxKernelNameBytes);
  EXPECT_TRUE(parse_kernel_name(kernel_name(widest)).ok());
}

TEST(KernelName, ConfigsOutsideTheGrammarHaveNoOthersName) {
  std::vector<GemmConfig> configs;
  for (const auto number : kNumbers) {
    for (const int value : {0, -1, kMaxKernelNameNumber + 1, INT_MAX, INT_MIN}) {
      configs.emplace_back().*number = value;
    }
  }
  for (const DType type : {DType::kUE8M0, DType::kBF16, DType::kF16, DType::kF32, DType::kI32,
                           static_cast<DType>(UCHAR_MAX)}) {
    configs.push_back({.a = type});
    configs.push_back({.b = type});
  }
  for (const DType type :
       {DType::kE4M3, DType::kE5M2, DType::kUE8M0, DType::kI32, static_cast<DType>(UCHAR_MAX)}) {
    configs.push_back({.d = type});
  }
  configs.push_back({.recipe = ScaleRecipe::kBlock, .sum = MainloopSum::kFast});
  configs.push_back({.recipe = ScaleRecipe::kBlock1d, .sum = MainloopSum::kFast});
  configs.push_back({.recipe = static_cast<ScaleRecipe>(UCHAR_MAX)});
  configs.push_back({.sum = static_cast<MainloopSum>(UCHAR_MAX)});
  for (const GemmConfig& config : configs) {
    EXPECT_NE(refusal_of(kernel_name(config)), "accepted") << kernel_name(config);
  }
}

// Runs the mutated name through the parser: refused, or the exact name of what it was taken for.
void expect_refused_or_exact(const std::string& mutated, int& num_accepted) {
  const Result<GemmConfig> parsed = parse_kernel_name(mutated);
  if (!parsed.ok()) return;
  ++num_accepted;
  ASSERT_EQ(kernel_name(parsed.value()), mutated);
}

TEST(ParseKernelName, OneChangedByteIsRefusedOrNamesWhatItSays) {
  for (const std::string& name : names_to_mutate()) {
    int num_accepted = 0;
    for (std::size_t at = 0; at <= name.size(); ++at) {
      if (at < name.size()) {
        ASSERT_NO_FATAL_FAILURE(
            expect_refused_or_exact(std::string(name).erase(at, 1), num_accepted));
      }
      for (int byte = 0; byte <= UCHAR_MAX; ++byte) {
        const char c = static_cast<char>(byte);
        std::string inserted = name;
        inserted.insert(at, 1, c);
        ASSERT_NO_FATAL_FAILURE(expect_refused_or_exact(inserted, num_accepted));
        if (at == name.size() || name[at] == c) continue;
        std::string substituted = name;
        substituted[at] = c;
        ASSERT_NO_FATAL_FAILURE(expect_refused_or_exact(substituted, num_accepted));
      }
    }
    // 128 -> 28, 138, 1128: every number of the name has such neighbours.
    EXPECT_GT(num_accepted, static_cast<int>(kNumbers.size())) << name;
  }
}

TEST(ParseKernelName, EveryPrefixAndEveryTailIsRefusedOrExact) {
  for (const std::string& name : names_to_mutate()) {
    int num_accepted = 0;
    for (std::size_t at = 1; at < name.size(); ++at) {
      ASSERT_NO_FATAL_FAILURE(expect_refused_or_exact(name.substr(0, at), num_accepted));
      EXPECT_FALSE(parse_kernel_name(name.substr(at)).ok());
    }
  }
}

TEST(ParseKernelName, RefusesHostileInput) {
  constexpr std::size_t kMegabyte = 1 << 20;
  const std::string name = kernel_name({});
  std::vector<std::string> hostile = {
      "",
      "_",
      "__",
      std::string(1, '\0'),
      std::string(kMegabyte, 'x'),
      std::string(kMegabyte, '_'),
      std::string(kMegabyte, '9'),
      name + std::string(kMegabyte, '1'),
      name + std::string(1, '\0'),
      name + std::string(1, '\0') + "_bias",
      std::string(1, '\0') + name,
      name + "\n",
      " " + name,
      name + "_",
      name + "__bias",
      name + "_bias_accumulate",
      name + "_bias_bias",
      name + "_accumulate_accumulate",
      name + "_accumulate_bias_",
      name + "_swap",
      name + "_" + name,
      replaced(name, "octavo_", "Octavo_"),
      replaced(name, "sm90", "sm100"),
      replaced(name, "gemm", "decode"),
      replaced(name, "tnt", "tnn"),
      replaced(name, "cooperative", "streamk"),
      replaced(name, "alongn", "alongm"),
      replaced(name, "256x128x128", "256x128"),
      replaced(name, "256x128x128", "256x128x128x1"),
      replaced(name, "256x128x128", "256x128x"),
      replaced(name, "256x128x128", "x256x128x128"),
      replaced(name, "256x128x128", "256X128x128"),
      replaced(name, "_1x2_", "_1_2_"),
      replaced(name, "_f32_", "_f16_"),
  };
  for (const std::string_view number : {"",
                                        "0",
                                        "00",
                                        "04",
                                        "004",
                                        "+4",
                                        "-4",
                                        " 4",
                                        "4 ",
                                        "4.0",
                                        "4e0",
                                        "0x4",
                                        "4u",
                                        "10000",
                                        "2147483647",
                                        "2147483648",
                                        "4294967300",
                                        "9223372036854775808",
                                        "18446744073709551620",
                                        "99999999999999999999999999999999",
                                        "nan",
                                        "inf"}) {
    const std::string text(number);
    hostile.push_back(replaced(name, "_s3_", "_s" + text + "_"));
    hostile.push_back(replaced(name, "_u4_", "_u" + text + "_"));
    hostile.push_back(replaced(name, "alongn8", "alongn" + text));
    hostile.push_back(replaced(name, "_1x2_", "_" + text + "x2_"));
    hostile.push_back(replaced(name, "_1x2_", "_1x" + text + "_"));
    hostile.push_back(replaced(name, "256x128x128", "256x" + text + "x128"));
  }
  for (const std::string& text : hostile) {
    const std::string refusal = refusal_of(text);
    EXPECT_NE(refusal, "accepted") << text.substr(0, 2 * kMaxKernelNameBytes);
    // A message quotes what was found, so it must stay short and printable whatever came in.
    EXPECT_LT(refusal.size(), 1024U);
    EXPECT_TRUE(std::all_of(refusal.begin(), refusal.end(), [](char c) {
      return c >= ' ' && c <= '~';
    })) << refusal;
  }
}

TEST(ParseKernelName, RefusesGranularitiesThatAreNoRecipe) {
  constexpr std::array kWords = {"none", "tensor", "row", "1x128", "128x128"};
  int num_accepted = 0;
  for (const std::string_view a : kWords) {
    for (const std::string_view b : kWords) {
      std::string operands(a);
      operands.append("f32xe4m3_").append(b).append("f32xe4m3");
      const std::string name = replaced(kernel_name({}), "1x128f32xe4m3_128x128f32xe4m3", operands);
      const bool is_recipe = (a == b && a != "128x128") || (a == "1x128" && b == "128x128");
      EXPECT_EQ(parse_kernel_name(name).ok(), is_recipe) << name;
      num_accepted += parse_kernel_name(name).ok() ? 1 : 0;
    }
  }
  EXPECT_EQ(num_accepted, 5);
}

TEST(ParseKernelName, SaysWhereWhatTheRuleAndTheFix) {
  const std::string name = kernel_name({});
  EXPECT_EQ(refusal_of(replaced(name, "256x128", "0x128")),
            "kernel name: the tile at byte 56 is \"0x128x128\"; it must be "
            "<tile_m>x<tile_n>x<tile_k> with whole numbers from 1 to 9999, without sign or "
            "leading zeros. Write it like 128x256x128.");
  EXPECT_EQ(refusal_of("octavo_sm90"),
            "kernel name: the operation at byte 11 is missing; it must be gemm. Write it like "
            "gemm.");
  EXPECT_EQ(refusal_of(replaced(name, "bf16", std::string(1, '\0') + "\"")),
            "kernel name: D at byte 51 is \"\\x00\\x22\"; it must be bf16, f16 or f32. Write it "
            "like bf16.");
  EXPECT_EQ(refusal_of(replaced(name, "_128x128f32", "_rowf32")),
            "kernel name: A and B at byte 17 have scales 1x128 and row; a recipe has none and "
            "none, tensor and tensor, row and row, 1x128 and 128x128, or 1x128 and 1x128. Change "
            "one of the two. See docs/scale_recipes.md.");
  EXPECT_EQ(refusal_of(replaced(name, "_f32_", "_f32fast_")),
            "kernel name: the sum at byte 47 is \"f32fast\", of block scales; every 128 of K has "
            "scales of its own, so their sums must be promoted. Write f32, or tensor, row or none "
            "as the scales of A and B.");
  EXPECT_EQ(
      refusal_of(name + "_bias_accumulate"),
      "kernel name: the word at byte 107 is \"accumulate\"; the raster order may be followed "
      "by split<number, from 2 on>, grouped or fused, accumulate, then bias, each at most once, "
      "and nothing else. Remove it or put it in order.");
  for (const std::string_view split : {"_split1", "_split0", "_split02", "_split", "_split2x"}) {
    EXPECT_THAT(refusal_of(name + std::string(split)), testing::HasSubstr("split<number, from 2"));
  }
  EXPECT_EQ(refusal_of(std::string(161, 'x')),
            "kernel name: the text has 161 bytes; no kernel's name has more than 160. Pass one "
            "kernel's name and nothing else.");
}

}  // namespace
}  // namespace octavo
