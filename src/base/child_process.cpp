// SPDX-License-Identifier: Apache-2.0
#include "base/child_process.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>  // NOLINT(modernize-deprecated-headers): kill() is POSIX's
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <optional>
#include <thread>

extern char** environ;  // NOLINT(readability-redundant-declaration): not every libc declares it

namespace octavo {
namespace {

Error not_started(const std::string& program, int code) {
  return {ErrorCode::kEnvironment,
          fmt::format("{}: the program cannot be started ({}). Install it or name another path.",
                      program, std::strerror(code))};
}

using Clock = std::chrono::steady_clock;

// More than a compiler says; what comes behind is read and dropped.
constexpr std::size_t kMostOutput = std::size_t{64} << 20U;

// What is written to the pipe until its end; false if that is not there in time.
bool read_all(int pipe, Clock::time_point deadline, std::string& output) {
  std::array<char, 65536> chunk{};
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    pollfd wait{pipe, POLLIN, 0};
    if (::poll(&wait, 1, static_cast<int>(left)) <= 0) continue;  // the time is looked at again
    const ssize_t count = ::read(pipe, chunk.data(), chunk.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return true;
    output.append(chunk.data(),
                  std::min(static_cast<std::size_t>(count), kMostOutput - output.size()));
  }
}

// How the child ended; nothing if it has not by then, or somebody else took the answer.
std::optional<int> wait_for(pid_t child, Clock::time_point deadline) {
  constexpr auto kPause = std::chrono::milliseconds(1);
  for (;;) {
    int status = 0;
    const pid_t ended = ::waitpid(child, &status, WNOHANG);
    if (ended == child) return status;
    if ((ended < 0 && errno != EINTR) || Clock::now() > deadline) return std::nullopt;
    std::this_thread::sleep_for(kPause);
  }
}

}  // namespace

Result<ChildResult> run_child(const std::vector<std::string>& arguments,
                              std::chrono::seconds limit) {
  std::vector<char*> argv;
  argv.reserve(arguments.size() + 1);
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return not_started(arguments.front(), errno);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  // A group of its own: what it starts is ended with it.
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  pid_t child = 0;
  const int code =
      ::posix_spawnp(&child, argv.front(), &actions, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  if (code != 0) {
    ::close(ends[0]);
    return not_started(arguments.front(), code);
  }
  ChildResult result;
  const Clock::time_point deadline = Clock::now() + limit;
  std::optional<int> status;
  if (read_all(ends[0], deadline, result.output)) status = wait_for(child, deadline);
  ::close(ends[0]);
  if (!status) {
    result.is_late = true;
    ::kill(-child, SIGKILL);
    constexpr auto kToEnd = std::chrono::seconds(10);
    status = wait_for(child, Clock::now() + kToEnd);
  }
  if (status && WIFSIGNALED(*status)) result.signal = WTERMSIG(*status);
  if (status && WIFEXITED(*status)) result.exit_code = WEXITSTATUS(*status);
  return result;
}

}  // namespace octavo
