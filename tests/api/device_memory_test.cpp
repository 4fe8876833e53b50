// SPDX-License-Identifier: Apache-2.0
// What device memory says where there is none; what it does is tested on a GPU
// (tests/gpu/device_memory_gpu_test.cpp).
#include "octavo/device_memory.hpp"

#include <gtest/gtest.h>

#include <string>

#include "cuda/driver.hpp"
#include "octavo/error.hpp"

namespace octavo {
namespace {

// The error that `action` must throw.
Error error_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "nothing was thrown";
  return {ErrorCode::kInternal, ""};
}

TEST(DeviceMemory, memory_of_the_host_is_refused) {
  const Device host{DeviceKind::kCpu, 0};
  EXPECT_EQ(error_of([&] { DeviceMemory(host, 1); }).code(), ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { synchronize(host); }).code(), ErrorCode::kInvalidArgument);
}

TEST(DeviceMemory, nothing_holds_nothing) {
  DeviceMemory nothing;
  EXPECT_EQ(nothing.data(), nullptr);
  EXPECT_EQ(nothing.num_bytes(), 0U);
  unsigned char byte = 0;
  nothing.copy_from_host(&byte, 0);
  EXPECT_EQ(error_of([&] { nothing.copy_from_host(&byte, 1); }).code(),
            ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { nothing.copy_to_host(&byte, 0, 1); }).code(),
            ErrorCode::kInvalidArgument);
}

TEST(DeviceMemory, a_missing_driver_is_named) {
  if (cuda::driver().ok()) GTEST_SKIP() << "there is a driver";
  const Error error = error_of([] { DeviceMemory({DeviceKind::kCuda, 0}, 1); });
  EXPECT_EQ(error.code(), ErrorCode::kEnvironment);
  EXPECT_NE(std::string(error.what()).find("cuda: "), std::string::npos) << error.what();
  EXPECT_NE(std::string(error.what()).find("Install"), std::string::npos) << error.what();
}

}  // namespace
}  // namespace octavo
