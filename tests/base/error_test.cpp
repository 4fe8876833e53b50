// SPDX-License-Identifier: Apache-2.0
#include "octavo/error.hpp"

#include <gtest/gtest.h>

#include <string>

namespace octavo {
namespace {

Result<std::string> text_or_error(bool good) {
  if (good) return std::string("yes");
  return Error(ErrorCode::kIo, "open: nothing there");
}

TEST(Result, HoldsAValue) {
  Result<std::string> result = text_or_error(true);
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result.value(), "yes");
  EXPECT_EQ(std::move(result).value(), "yes");
}

TEST(Result, ThrowsItsErrorWhenAskedForAValue) {
  const Result<std::string> result = text_or_error(false);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code(), ErrorCode::kIo);
  try {
    (void)result.value();
    FAIL() << "value() of a failed Result returned";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
    EXPECT_STREQ(error.what(), "open: nothing there");
  }
}

TEST(Error, EveryCodeHasItsOwnName) {
  EXPECT_STREQ(to_string(ErrorCode::kInvalidArgument), "invalid argument");
  EXPECT_STREQ(to_string(ErrorCode::kUnsupported), "unsupported");
  EXPECT_STREQ(to_string(ErrorCode::kEnvironment), "environment");
  EXPECT_STREQ(to_string(ErrorCode::kIo), "io");
  EXPECT_STREQ(to_string(ErrorCode::kBadFile), "bad file");
  EXPECT_STREQ(to_string(ErrorCode::kInternal), "internal");
}

}  // namespace
}  // namespace octavo
