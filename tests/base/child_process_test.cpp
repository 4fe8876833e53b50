// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <csignal>

namespace octavo {
namespace {

using std::chrono::seconds;

TEST(ChildProcess, gives_output_and_exit_code) {
  const ChildResult child =
      run_child({"sh", "-c", "echo a; echo b >&2; exit 3"}, seconds(20)).value();
  EXPECT_EQ(child.output, "a\nb\n");
  EXPECT_EQ(child.exit_code, 3);
  EXPECT_FALSE(child.succeeded());
  EXPECT_TRUE(run_child({"true"}, seconds(20)).value().succeeded());
}

TEST(ChildProcess, takes_more_than_a_pipe_holds) {
  const ChildResult child =
      run_child({"sh", "-c", "head -c 3000000 /dev/zero"}, seconds(20)).value();
  EXPECT_EQ(child.output.size(), 3000000U);
}

TEST(ChildProcess, reports_signals_and_ends_what_takes_too_long) {
  EXPECT_EQ(run_child({"sh", "-c", "kill -SEGV $$"}, seconds(20)).value().signal, SIGSEGV);
  const auto begin = std::chrono::steady_clock::now();
  const ChildResult late = run_child({"sleep", "60"}, seconds(1)).value();
  EXPECT_TRUE(late.is_late);
  EXPECT_FALSE(late.succeeded());
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

TEST(ChildProcess, ends_what_closes_its_output_and_goes_on) {
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(run_child({"sh", "-c", "exec >&- 2>&-; sleep 60"}, seconds(1)).value().is_late);
  // And what it started.
  EXPECT_TRUE(run_child({"sh", "-c", "sleep 60 & wait"}, seconds(1)).value().is_late);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(30));
}

TEST(ChildProcess, says_what_cannot_be_started) {
  const Result<ChildResult> child = run_child({"/nowhere/at/all"}, seconds(1));
  ASSERT_FALSE(child.ok());
  EXPECT_EQ(child.error().code(), ErrorCode::kEnvironment);
}

}  // namespace
}  // namespace octavo
