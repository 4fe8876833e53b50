// SPDX-License-Identifier: Apache-2.0
// parallel_for for tasks that need scratch memory: running out of it is the one thing that may go
// wrong in them, and a task must not throw.
#pragma once

#include <atomic>
#include <cstdint>
#include <new>

#include "base/thread_pool.hpp"

namespace octavo::cpu {

// Throws std::bad_alloc, as the caller's own allocation would, if a task did.
template <typename F>
void for_each_task(std::int64_t num_tasks, int num_threads, const F& task) {
  std::atomic<bool> out_of_memory{false};
  parallel_for(num_tasks, num_threads, [&](std::int64_t task_idx) {
    try {
      task(task_idx);
    } catch (const std::bad_alloc&) {
      out_of_memory.store(true, std::memory_order_relaxed);
    }
  });
  if (out_of_memory.load()) throw std::bad_alloc();
}

}  // namespace octavo::cpu
