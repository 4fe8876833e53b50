// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include "cuda/driver.hpp"
#include "octavo/device_memory.hpp"
#include "octavo/error.hpp"
#include "octavo/runtime.hpp"

namespace octavo {
namespace {

constexpr Device kGpu{DeviceKind::kCuda, 0};

class DeviceMemoryOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::driver().ok()) GTEST_SKIP() << cuda::driver().error().what();
  }
};

ErrorCode code_of(const auto& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST_F(DeviceMemoryOnGpu, keeps_what_was_copied_at_every_offset) {
  DeviceMemory memory(kGpu, 1000);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(memory.data()) % 256, 0U);
  std::vector<std::uint8_t> given(1000);
  for (std::size_t i = 0; i < given.size(); ++i) given[i] = static_cast<std::uint8_t>(i * 7);
  memory.copy_from_host(given.data(), 600);
  memory.copy_from_host(given.data() + 600, 400, 600);
  std::vector<std::uint8_t> got(1000);
  memory.copy_to_host(got.data(), 1000);
  EXPECT_EQ(got, given);
  memory.copy_to_host(got.data(), 10, 990);
  EXPECT_EQ(got[9], given[999]);
}

TEST_F(DeviceMemoryOnGpu, moves_and_is_empty_afterwards) {
  DeviceMemory memory(kGpu, 16);
  void* const data = memory.data();
  DeviceMemory moved(std::move(memory));
  EXPECT_EQ(moved.data(), data);
  EXPECT_EQ(memory.data(), nullptr);  // NOLINT(bugprone-use-after-move): what is left is defined
  DeviceMemory assigned;
  assigned = std::move(moved);
  EXPECT_EQ(assigned.data(), data);
  EXPECT_EQ(assigned.num_bytes(), 16U);
  EXPECT_EQ(DeviceMemory(kGpu, 0).data(), nullptr);
}

TEST_F(DeviceMemoryOnGpu, errors_name_the_cause) {
  DeviceMemory memory(kGpu, 16);
  std::uint8_t byte = 0;
  EXPECT_EQ(code_of([&] { memory.copy_from_host(&byte, 1, 16); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { memory.copy_to_host(&byte, 17); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([&] { memory.copy_to_host(&byte, 1, SIZE_MAX); }), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code_of([] { DeviceMemory(kGpu, std::size_t{1} << 50U); }), ErrorCode::kEnvironment);
  EXPECT_EQ(code_of([] { DeviceMemory({DeviceKind::kCuda, 63}, 1); }), ErrorCode::kEnvironment);
}

TEST_F(DeviceMemoryOnGpu, serves_threads_that_have_no_context) {
  std::vector<std::jthread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i] {
      const auto value = static_cast<std::uint8_t>(i + 1);
      DeviceMemory memory(kGpu, 4096);
      const std::vector<std::uint8_t> given(4096, value);
      memory.copy_from_host(given.data(), given.size());
      synchronize(kGpu);
      std::vector<std::uint8_t> got(4096);
      memory.copy_to_host(got.data(), got.size());
      EXPECT_EQ(got, given);
    });
  }
}

TEST_F(DeviceMemoryOnGpu, the_gpu_is_described) {
  const std::vector<GpuDescription> found = gpus();
  ASSERT_FALSE(found.empty());
  EXPECT_FALSE(found.front().name.empty());
  EXPECT_GT(found.front().num_multiprocessors, 0);
  EXPECT_GT(found.front().memory_bytes, 0);
  EXPECT_GT(found.front().l2_bytes, 0);
  EXPECT_GT(found.front().clock_mhz, 0);
  EXPECT_FALSE(found.front().cuda.empty());
}

}  // namespace
}  // namespace octavo
