// SPDX-License-Identifier: Apache-2.0
// One pool of worker threads for the process. It is not a task graph: a caller hands over a loop
// and works along with the others until the loop is done.
#pragma once

#include <cstdint>
#include <type_traits>

namespace octavo {

// A borrowed callable void(int64_t task_idx); must outlive the call it is given to. Must not throw.
class TaskRef {
 public:
  template <typename F>
  requires(!std::is_same_v<std::remove_cvref_t<F>, TaskRef>)
      TaskRef(const F& f)  // NOLINT(google-explicit-constructor)
      : object_(&f), call_([](const void* object, std::int64_t task_idx) {
          (*static_cast<const F*>(object))(task_idx);
        }) {}

  void operator()(std::int64_t task_idx) const { call_(object_, task_idx); }

 private:
  const void* object_;
  void (*call_)(const void*, std::int64_t);
};

// Cores this process may run on (its affinity mask), at least 1.
[[nodiscard]] int num_usable_cores();

// Runs task(0) .. task(num_tasks - 1), in any order, on up to num_threads threads (0: one per
// usable core), and returns when all are done. Called from inside a task, or while another thread
// is in parallel_for, it runs the whole loop on the calling thread: several user threads are
// parallel already. Tasks compute with subnormal numbers, whatever mode the caller is in.
void parallel_for(std::int64_t num_tasks, int num_threads, TaskRef task);

}  // namespace octavo
