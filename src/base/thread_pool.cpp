// SPDX-License-Identifier: Apache-2.0
#include "base/thread_pool.hpp"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <vector>

#include "base/keep_denormals.hpp"

namespace octavo {
namespace {

inline void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// PERF: a decoder layer issues a product every few tens of microseconds; waking a sleeping thread
// costs about as much, so a worker looks for the next loop this many times before it sleeps.
constexpr int kSpinsBeforeSleep = 20000;

class ThreadPool {
 public:
  explicit ThreadPool(int num_workers) {
    workers_.reserve(static_cast<std::size_t>(num_workers));
    for (int i = 0; i < num_workers; ++i) workers_.emplace_back([this, i] { work(i); });
  }

  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  ~ThreadPool() {
    stopping_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    for (std::thread& worker : workers_) worker.join();
  }

  [[nodiscard]] bool try_acquire() { return !busy_.exchange(true, std::memory_order_acquire); }
  void release() { busy_.store(false, std::memory_order_release); }

  // The caller holds the pool.
  void run(std::int64_t num_tasks, int num_workers, TaskRef task) {
    task_ = &task;
    num_tasks_ = num_tasks;
    num_workers_ = num_workers;
    next_task_.store(0, std::memory_order_relaxed);
    // ORDER: open_ publishes the four fields above to every worker that reads it as true.
    open_.store(true);
    epoch_.fetch_add(1);
    epoch_.notify_all();
    take_tasks();
    // ORDER: sequentially consistent on both sides: a worker either sees the loop closed, or its
    // increment of num_inside_ is seen here.
    open_.store(false);
    while (num_inside_.load() != 0) pause_core();
  }

 private:
  void take_tasks() {
    const TaskRef& task = *task_;
    for (;;) {
      const std::int64_t task_idx = next_task_.fetch_add(1, std::memory_order_relaxed);
      if (task_idx >= num_tasks_) return;
      task(task_idx);
    }
  }

  void work(int worker_idx) {
    // A thread starts in the mode of the one that started it.
    const KeepDenormals keep_denormals;
    std::uint64_t seen = 0;
    for (;;) {
      for (int spins = 0; epoch_.load() == seen && spins < kSpinsBeforeSleep; ++spins) pause_core();
      epoch_.wait(seen);
      seen = epoch_.load();
      if (stopping_.load()) return;
      num_inside_.fetch_add(1);
      if (open_.load() && worker_idx < num_workers_) take_tasks();
      num_inside_.fetch_sub(1);
    }
  }

  std::atomic<bool> busy_{false};
  std::atomic<bool> open_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<int> num_inside_{0};
  std::atomic<std::uint64_t> epoch_{0};
  std::atomic<std::int64_t> next_task_{0};
  const TaskRef* task_ = nullptr;
  std::int64_t num_tasks_ = 0;
  int num_workers_ = 0;
  std::vector<std::thread> workers_;
};

ThreadPool& pool() {
  static ThreadPool instance(num_usable_cores() - 1);
  return instance;
}

}  // namespace

int num_usable_cores() {
  static const int count = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return 1;
    return std::max(1, CPU_COUNT(&set));
  }();
  return count;
}

void parallel_for(std::int64_t num_tasks, int num_threads, TaskRef task) {
  const KeepDenormals keep_denormals;
  const int limit =
      num_threads > 0 ? std::min(num_threads, num_usable_cores()) : num_usable_cores();
  const auto wanted = static_cast<int>(std::min<std::int64_t>(limit, num_tasks));
  if (wanted > 1 && pool().try_acquire()) {
    pool().run(num_tasks, wanted - 1, task);
    pool().release();
    return;
  }
  for (std::int64_t i = 0; i < num_tasks; ++i) task(i);
}

}  // namespace octavo
