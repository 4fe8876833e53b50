// SPDX-License-Identifier: Apache-2.0
// A process that writes until it is killed, for tests of what a writer leaves behind that dies at
// any moment.
#pragma once

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <functional>
#include <stdexcept>

namespace octavo::test {

class WriterProcess {
 public:
  // A child runs write(0), write(1), ... . Returns once write(0) is done, however slow the machine
  // is, so that a kill after any delay interrupts a later one.
  explicit WriterProcess(const std::function<void(int)>& write) {
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("fork");
    if (process_ == 0) {
      write(0);
      const char done = 1;
      if (::write(ends[1], &done, 1) != 1) std::_Exit(1);
      for (int i = 1;; ++i) write(i);
    }
    ::close(ends[1]);
    char done = 0;
    const bool ready = ::read(ends[0], &done, 1) == 1;
    ::close(ends[0]);
    if (!ready) {
      kill();
      throw std::runtime_error("the writer ended before it had written once");
    }
  }
  ~WriterProcess() { kill(); }
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  // Returns once the process is gone. Does nothing the second time.
  void kill() {
    if (process_ == 0) return;
    ::kill(process_, SIGKILL);
    ::waitpid(process_, nullptr, 0);
    process_ = 0;
  }

 private:
  pid_t process_ = 0;
};

}  // namespace octavo::test
