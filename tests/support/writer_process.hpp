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
  // is, so that a kill after any delay interrupts a later one. An exception ends the child.
  explicit WriterProcess(const std::function<void(int)>& write) {
    const auto write_or_abort = [&write](int i) noexcept { write(i); };
    int ends[2];
    if (::pipe(ends) != 0) throw std::runtime_error("pipe");
    process_ = ::fork();
    if (process_ < 0) throw std::runtime_error("fork");
    if (process_ == 0) {
      write_or_abort(0);
      const char done = 1;
      if (::write(ends[1], &done, 1) != 1) std::_Exit(1);
      for (int i = 1;; ++i) write_or_abort(i);
    }
    ::close(ends[1]);
    char done = 0;
    const bool ready = ::read(ends[0], &done, 1) == 1;
    ::close(ends[0]);
    if (!ready) {
      (void)kill();
      throw std::runtime_error("the writer ended before it had written once");
    }
  }
  ~WriterProcess() { (void)kill(); }
  WriterProcess(const WriterProcess&) = delete;
  WriterProcess& operator=(const WriterProcess&) = delete;

  // Returns once the process is gone: whether it wrote until now. False the second time.
  [[nodiscard]] bool kill() {
    if (process_ == 0) return false;
    ::kill(process_, SIGKILL);
    int status = 0;
    const bool waited = ::waitpid(process_, &status, 0) == process_;
    process_ = 0;
    return waited && WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
  }

 private:
  pid_t process_ = 0;
};

}  // namespace octavo::test
