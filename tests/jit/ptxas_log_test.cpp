// SPDX-License-Identifier: Apache-2.0
// Logs as ptxas of CUDA 13.0 writes them.
#include "cuda/jit/ptxas_log.hpp"

#include <gtest/gtest.h>

#include "fmt/format.h"

namespace octavo {
namespace {

constexpr const char* kSpilling =
    "ptxas warning : Registers are spilled to local memory in function 'octavo_probe', 196 bytes "
    "spill stores, 200 bytes spill loads\n"
    "ptxas info    : 0 bytes gmem\n"
    "ptxas info    : Compiling entry function 'octavo_probe' for 'sm_90a'\n"
    "ptxas info    : Function properties for octavo_probe\n"
    "ptxas         .     336 bytes stack frame, 196 bytes spill stores, 200 bytes spill loads\n"
    "ptxas info    : Used 32 registers, used 1 barriers, 336 bytes cumulative stack size\n"
    "ptxas info    : Compile time = 32.295 ms\n"
    "ptxas info    : Function properties for _Z5twicef\n"
    "ptxas         .     16 bytes stack frame, 8 bytes spill stores, 4 bytes spill loads\n";

TEST(PtxasLog, ReadsRegistersStackAndTheSpillsOfEveryFunction) {
  const auto resources = parse_resources(kSpilling, "octavo_probe");
  ASSERT_TRUE(resources.has_value());
  EXPECT_EQ(resources->registers, 32);
  EXPECT_EQ(resources->stack_bytes, 336);
  EXPECT_EQ(resources->spill_store_bytes, 204);
  EXPECT_EQ(resources->spill_load_bytes, 204);
}

TEST(PtxasLog, KnowsKernelsByTheirWholeName) {
  EXPECT_FALSE(parse_resources(kSpilling, "octavo_prob").has_value());
  EXPECT_FALSE(parse_resources(kSpilling, "octavo_probe2").has_value());
  EXPECT_FALSE(parse_resources("", "octavo_probe").has_value());
}

TEST(PtxasLog, NeverReadsANumberThatIsNone) {
  for (const char* used : {"Used  registers", "Used 99999999999999999999 registers", "Used"}) {
    const std::string log =
        fmt::format("ptxas info    : Compiling entry function 'k' for 'sm_90a'\n{}", used);
    EXPECT_FALSE(parse_resources(log, "k").has_value()) << used;
  }
}

TEST(PtxasLog, FindsEachLostGuaranteeAndNothingElse) {
  EXPECT_TRUE(lost_guarantees(kSpilling).empty());
  for (const int code : {7504, 7505, 7508, 7509, 7510, 7519, 7520}) {
    const std::string line =
        fmt::format("ptxas info    : (C{}) Potential Performance Loss: something", code);
    const auto lost = lost_guarantees(fmt::format("{}{}\nmore\n", kSpilling, line));
    ASSERT_EQ(lost.size(), 1U) << code;
    EXPECT_EQ(lost.front(), line);
  }
  EXPECT_TRUE(lost_guarantees("ptxas info    : (C7511) other\nC7510 in a comment\n").empty());
}

}  // namespace
}  // namespace octavo
