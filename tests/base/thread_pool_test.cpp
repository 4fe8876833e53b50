// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <chrono>
#include <cstdint>
#include <thread>
#include <vector>

#include "support/denormal_mode.hpp"

namespace octavo {
namespace {

TEST(ThreadPool, RunsEveryTaskOnce) {
  for (const std::int64_t num_tasks : {0, 1, 2, 3, 64, 1000}) {
    for (const int num_threads : {0, 1, 2, 7}) {
      std::vector<std::atomic<int>> runs(static_cast<std::size_t>(num_tasks));
      parallel_for(num_tasks, num_threads,
                   [&](std::int64_t i) { runs[static_cast<std::size_t>(i)].fetch_add(1); });
      for (const auto& count : runs) ASSERT_EQ(count.load(), 1) << num_tasks << " " << num_threads;
    }
  }
}

TEST(ThreadPool, FinishesBeforeItReturnsManyTimesOver) {
  // A loop closed a moment too early, or a worker left inside, shows as a lost increment.
  std::int64_t expected = 0;
  std::atomic<std::int64_t> total{0};
  for (int round = 0; round < 20000; ++round) {
    const std::int64_t num_tasks = round % 5;
    expected += num_tasks;
    parallel_for(num_tasks, 0,
                 [&](std::int64_t) { total.fetch_add(1, std::memory_order_relaxed); });
    ASSERT_EQ(total.load(), expected);
  }
}

TEST(ThreadPool, WakesWorkersThatWentToSleep) {
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    std::atomic<int> runs{0};
    parallel_for(100, 0, [&](std::int64_t) { runs.fetch_add(1); });
    EXPECT_EQ(runs.load(), 100);
  }
}

TEST(ThreadPool, NestedLoopsRunOnTheCallingThread) {
  std::atomic<int> runs{0};
  std::atomic<int> foreign{0};
  parallel_for(8, 0, [&](std::int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    parallel_for(8, 0, [&](std::int64_t) {
      runs.fetch_add(1);
      if (std::this_thread::get_id() != self) foreign.fetch_add(1);
    });
  });
  EXPECT_EQ(runs.load(), 64);
  EXPECT_EQ(foreign.load(), 0);
}

// Run by itself, as ctest does, this test also starts the pool from a thread that flushes.
TEST(ThreadPool, TasksKeepSubnormalsForACallerThatFlushesThem) {
  constexpr int kNumTasks = 64;
  std::vector<std::uint32_t> products(kNumTasks);
  {
    const test::FlushDenormals flush;
    const volatile float tiny = 0x1p-120F;
    parallel_for(kNumTasks, 0, [&](std::int64_t i) {
      const float product = tiny * 0x1p-10F;
      products[static_cast<std::size_t>(i)] = std::bit_cast<std::uint32_t>(product);
      // So that one thread does not run them all.
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    });
#if defined(__x86_64__)
    EXPECT_EQ(tiny * 0x1p-10F, 0.0F) << "the caller's mode is its own again";
#endif
  }
  for (const std::uint32_t bits : products)
    EXPECT_EQ(bits, std::bit_cast<std::uint32_t>(0x1p-130F));
}

TEST(ThreadPool, ServesSeveralCallingThreads) {
  std::atomic<int> runs{0};
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int round = 0; round < 500; ++round) {
        parallel_for(10, 0, [&](std::int64_t) { runs.fetch_add(1, std::memory_order_relaxed); });
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(runs.load(), 4 * 500 * 10);
}

}  // namespace
}  // namespace octavo
