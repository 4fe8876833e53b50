// SPDX-License-Identifier: Apache-2.0
// The cache with a stand-in for the compiler: what is compiled again, what is not, and what happens
// to bad files, bad folders and other processes.
#include "cuda/jit/cubin_cache.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <latch>
#include <new>
#include <random>
#include <thread>

#include "fmt/format.h"
#include "jit/cache_folder.hpp"
#include "support/writer_process.hpp"

namespace octavo {
namespace {

using testing::HasSubstr;

const KernelSource kSource = {"octavo_probe", "the text of a kernel"};

// One fresh cache (a new process, as far as memory goes) asked once; how often it compiled.
int compilations_of(const std::filesystem::path& folder, const KernelSource& source = kSource) {
  const StandInCompiler stand_in;
  CubinCache cache(folder, stand_in.compiler());
  const Result<CompiledKernel> kernel = cache.get_or_compile(source);
  EXPECT_TRUE(kernel.ok() && kernel.value() == stand_in_kernel(source));
  return *stand_in.calls;
}

std::filesystem::path path_in(const std::filesystem::path& folder) {
  return CubinCache(folder, StandInCompiler().compiler()).path_of(kSource);
}

TEST(CubinCache, CompilesOnceForTheProcessAndOnceForTheFolder) {
  const TemporaryFolder folder;
  const StandInCompiler stand_in;
  CubinCache cache(folder.path(), stand_in.compiler());
  for (int i = 0; i < 3; ++i) {
    const Result<CompiledKernel> kernel = cache.get_or_compile(kSource);
    ASSERT_TRUE(kernel.ok());
    EXPECT_EQ(kernel.value(), stand_in_kernel(kSource));
  }
  EXPECT_EQ(*stand_in.calls, 1);
  EXPECT_EQ(files_in(folder.path()), std::vector{cache.path_of(kSource)});
  EXPECT_EQ(compilations_of(folder.path()), 0);
}

TEST(CubinCache, NamesFilesByEntryAndKey) {
  const CubinCache cache("/folder", StandInCompiler().compiler());
  const std::string name = cache.path_of(kSource).filename().string();
  ASSERT_EQ(name.size(), kSource.entry.size() + 1 + 2 * kCubinKeyBytes + 6) << name;
  EXPECT_TRUE(name.starts_with("octavo_probe-")) << name;
  EXPECT_TRUE(name.ends_with(".cubin")) << name;
}

TEST(CubinCache, KeyDependsOnEverythingThatDecidesTheResult) {
  const StandInCompiler stand_in;
  const CubinCache cache("", stand_in.compiler());
  const CubinCache other("", stand_in.compiler("stand-in 2"));
  const CubinKey key = cache.key_of(kSource);
  EXPECT_EQ(key, CubinCache("elsewhere", stand_in.compiler()).key_of(kSource));
  EXPECT_NE(key, other.key_of(kSource));
  EXPECT_NE(key, cache.key_of({kSource.entry, kSource.text + " "}));
  EXPECT_NE(key, cache.key_of({kSource.entry + "_", kSource.text}));
  // The same letters, cut elsewhere.
  EXPECT_NE(cache.key_of({"ab", "c"}), cache.key_of({"a", "bc"}));
}

TEST(CubinCache, C67_rebuilds_a_truncated_file) {
  const TemporaryFolder folder;
  ASSERT_EQ(compilations_of(folder.path()), 1);
  const auto path = path_in(folder.path());
  const std::vector<std::byte> whole = read_bytes(path);
  ASSERT_GT(whole.size(), 3000U);
  constexpr std::size_t kStep = 37;
  for (std::size_t length = 0; length < whole.size(); length += kStep) {
    write_bytes(path, std::span(whole).first(length));
    ASSERT_EQ(compilations_of(folder.path()), 1) << length;
    ASSERT_EQ(read_bytes(path), whole) << length;
  }
  EXPECT_EQ(compilations_of(folder.path()), 0);
}

TEST(CubinCache, RebuildsADamagedFile) {
  const TemporaryFolder folder;
  ASSERT_EQ(compilations_of(folder.path()), 1);
  const auto path = path_in(folder.path());
  const std::vector<std::byte> whole = read_bytes(path);
  constexpr std::size_t kStep = 61;
  for (std::size_t offset = 0; offset < whole.size(); offset += kStep) {
    std::vector<std::byte> damaged = whole;
    damaged[offset] ^= std::byte{0x40};
    write_bytes(path, damaged);
    ASSERT_EQ(compilations_of(folder.path()), 1) << offset;
    ASSERT_EQ(read_bytes(path), whole) << offset;
  }
}

TEST(CubinCache, RebuildsAForeignFile) {
  const TemporaryFolder folder;
  const auto path = path_in(folder.path());
  // Another kernel's whole and valid file under this kernel's name.
  const KernelSource other = {"octavo_probe", "another text"};
  ASSERT_EQ(compilations_of(folder.path(), other), 1);
  const auto files = files_in(folder.path());
  ASSERT_EQ(files.size(), 1U);
  std::filesystem::rename(files.front(), path);
  EXPECT_EQ(compilations_of(folder.path()), 1);
  // Something that never was a kernel, and a file of zeros.
  for (const std::byte filling : {std::byte{'x'}, std::byte{0}}) {
    write_bytes(path, std::vector<std::byte>(5000, filling));
    EXPECT_EQ(compilations_of(folder.path()), 1);
  }
  EXPECT_EQ(compilations_of(folder.path()), 0);
}

TEST(CubinCache, WorksFromMemoryWithoutAFolder) {
  const StandInCompiler stand_in;
  CubinCache cache("", stand_in.compiler());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(cache.get_or_compile(kSource).ok());
  EXPECT_EQ(*stand_in.calls, 1);
  EXPECT_EQ(compilations_of(""), 1);
}

TEST(CubinCache, C68_creates_a_missing_folder) {
  const TemporaryFolder folder;
  const auto missing = folder.path() / "one" / "two";
  EXPECT_EQ(compilations_of(missing), 1);
  EXPECT_EQ(compilations_of(missing), 0);
}

TEST(CubinCache, C68_works_from_memory_where_the_folder_cannot_be_written) {
  const TemporaryFolder folder;
  // A file in the folder's place stops root too; so does /proc, which takes no new files.
  const auto file = folder.path() / "file";
  write_bytes(file, std::vector<std::byte>(1));
  for (const std::filesystem::path& bad :
       {file, file / "below", std::filesystem::path("/proc/octavo")}) {
    const StandInCompiler stand_in;
    CubinCache cache(bad, stand_in.compiler());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(cache.get_or_compile(kSource).ok()) << bad;
    EXPECT_EQ(*stand_in.calls, 1) << bad;
  }
}

TEST(CubinCache, IgnoresLeftoverTemporaries) {
  const TemporaryFolder folder;
  const auto path = path_in(folder.path());
  const CubinCache cache(folder.path(), StandInCompiler().compiler());
  const auto whole = encode_cubin_file(cache.key_of(kSource), stand_in_kernel(kSource));
  const auto leftover = path.string() + ".tmp.1.0123456789abcdef";
  write_bytes(leftover, std::span(whole).first(whole.size() / 2));
  EXPECT_EQ(compilations_of(folder.path()), 1);
  EXPECT_EQ(compilations_of(folder.path()), 0);
  EXPECT_EQ(read_bytes(leftover).size(), whole.size() / 2);
}

TEST(CubinCache, RefusesEntriesThatCannotBeFileNames) {
  const TemporaryFolder folder;
  const StandInCompiler stand_in;
  CubinCache cache(folder.path(), stand_in.compiler());
  for (const std::string& entry :
       {std::string(), std::string("../escape"), std::string("a/b"), std::string("a b"),
        std::string("1a"), std::string("a\0b", 3), std::string(kMaxEntryLength + 1, 'a')}) {
    const Result<CompiledKernel> kernel = cache.get_or_compile({entry, "text"});
    ASSERT_FALSE(kernel.ok()) << entry;
    EXPECT_THAT(kernel.error().what(), HasSubstr("C identifier"));
  }
  EXPECT_EQ(*stand_in.calls, 0);
  EXPECT_TRUE(cache.get_or_compile({std::string(kMaxEntryLength, 'a'), "text"}).ok());
  EXPECT_EQ(files_in(folder.path()).size(), 1U);
}

TEST(CubinCache, PassesErrorsOnAndTriesAgain) {
  const TemporaryFolder folder;
  int calls = 0;
  CubinCache cache(folder.path(),
                   {"failing once", [&](const KernelSource& source) {
                      ++calls;
                      if (calls > 1) {
                        return Result<CompiledKernel>(stand_in_kernel(source));
                      }
                      return Result<CompiledKernel>(Error(ErrorCode::kInternal, "the whole log"));
                    }});
  const Result<CompiledKernel> first = cache.get_or_compile(kSource);
  ASSERT_FALSE(first.ok());
  EXPECT_STREQ(first.error().what(), "the whole log");
  EXPECT_TRUE(files_in(folder.path()).empty());
  EXPECT_TRUE(cache.get_or_compile(kSource).ok());
  EXPECT_EQ(calls, 2);
}

TEST(CubinCache, PassesExceptionsOnAndTriesAgain) {
  int calls = 0;
  CubinCache cache("", {"throwing once", [&](const KernelSource& source) {
                          if (++calls == 1) throw std::bad_alloc();
                          return Result<CompiledKernel>(stand_in_kernel(source));
                        }});
  EXPECT_THROW((void)cache.get_or_compile(kSource), std::bad_alloc);
  EXPECT_TRUE(cache.get_or_compile(kSource).ok());
}

TEST(CubinCache, ThreadsThatWantOneKernelCompileItOnce) {
  constexpr int kThreads = 8;
  std::atomic<int> calls = 0;
  CubinCache cache("", {"slow", [&](const KernelSource& source) {
                          ++calls;
                          std::this_thread::sleep_for(std::chrono::milliseconds(30));
                          return Result<CompiledKernel>(stand_in_kernel(source));
                        }});
  std::latch start(kThreads);
  std::atomic<int> correct = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      start.arrive_and_wait();
      const Result<CompiledKernel> kernel = cache.get_or_compile(kSource);
      if (kernel.ok() && kernel.value() == stand_in_kernel(kSource)) ++correct;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(correct, kThreads);
}

TEST(CubinCache, DifferentKernelsCompileInParallel) {
  // Each compilation waits for the other to begin; one after the other would never meet.
  std::atomic<int> begun = 0;
  std::atomic<int> met = 0;
  CubinCache cache("", {"meeting", [&](const KernelSource& source) {
                          ++begun;
                          const auto limit =
                              std::chrono::steady_clock::now() + std::chrono::seconds(10);
                          while (begun < 2 && std::chrono::steady_clock::now() < limit) {
                            std::this_thread::yield();
                          }
                          if (begun == 2) ++met;
                          return Result<CompiledKernel>(stand_in_kernel(source));
                        }});
  std::thread other([&] { (void)cache.get_or_compile({"octavo_other", "other text"}); });
  (void)cache.get_or_compile(kSource);
  other.join();
  EXPECT_EQ(met, 2);
}

// --- processes

// Runs the function in a child, which never returns to the test.
template <typename Function>
pid_t in_child(Function function) {
  const pid_t child = fork();
  if (child == 0) {
    function();
    _exit(0);
  }
  return child;
}

// The kernel of a visible file, or nothing if it is not whole. The key is in its name.
std::optional<CompiledKernel> read_by_name(const std::filesystem::path& path) {
  const std::string stem = path.stem().string();
  const std::string digits = stem.substr(stem.rfind('-') + 1);
  CubinKey key{};
  if (digits.size() != 2 * key.size()) return std::nullopt;
  for (std::size_t i = 0; i < key.size(); ++i) {
    key[i] = static_cast<std::byte>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return read_cubin_file(path, key);
}

TEST(CubinCache, C68_reads_a_folder_that_it_may_not_write) {
  const TemporaryFolder folder;
  ASSERT_EQ(compilations_of(folder.path()), 1);
  using std::filesystem::perms;
  constexpr auto kReadOnly = static_cast<perms>(0555);
  std::filesystem::permissions(folder.path(), kReadOnly);
  constexpr int kWrong = 1;
  constexpr int kCannotBecomeNobody = 2;
  const pid_t child = in_child([&] {
    // Permission bits do not bind root.
    constexpr uid_t kNobody = 65534;
    if (geteuid() == 0 && setuid(kNobody) != 0) _exit(kCannotBecomeNobody);
    if (compilations_of(folder.path()) != 0) _exit(kWrong);
    if (compilations_of(folder.path(), {"octavo_other", "text"}) != 1) _exit(kWrong);
  });
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  std::filesystem::permissions(folder.path(), perms::owner_all);
  ASSERT_TRUE(WIFEXITED(status));
  if (WEXITSTATUS(status) == kCannotBecomeNobody) GTEST_SKIP() << "root may not give up its rights";
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(files_in(folder.path()).size(), 1U);
}

TEST(CubinCache, C67_processes_at_once_leave_one_valid_file) {
  constexpr int kChildren = 4;
  constexpr int kRepeats = 10;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    const TemporaryFolder folder;
    std::vector<pid_t> children;
    for (int i = 0; i < kChildren; ++i) {
      children.push_back(in_child([&] {
        CubinCache cache(folder.path(), StandInCompiler().compiler());
        const Result<CompiledKernel> kernel = cache.get_or_compile(kSource);
        if (!kernel.ok() || !(kernel.value() == stand_in_kernel(kSource))) _exit(1);
      }));
      ASSERT_GT(children.back(), 0);
    }
    for (const pid_t child : children) {
      int status = -1;
      ASSERT_EQ(waitpid(child, &status, 0), child);
      EXPECT_EQ(status, 0);
    }
    EXPECT_EQ(files_in(folder.path()), std::vector{path_in(folder.path())});
    EXPECT_EQ(compilations_of(folder.path()), 0);
  }
}

TEST(CubinCache, C67_a_killed_writer_leaves_no_invalid_file) {
  const TemporaryFolder folder;
  std::mt19937 random(20);
  std::uniform_int_distribution<int> delay_us(0, 15000);
  constexpr int kRepeats = 40;
  for (int repeat = 0; repeat < kRepeats; ++repeat) {
    // Every kernel again and again: files appear and are replaced until the kill. Large ones, so
    // that the kill often comes in the middle of one.
    test::WriterProcess writer([&](int i) {
      const KernelSource source = {"octavo_probe", fmt::format("text {}", i % 16)};
      const CubinCache names(folder.path(), StandInCompiler().compiler());
      (void)write_cubin_file(names.path_of(source), names.key_of(source),
                             stand_in_kernel(source, 100000));
    });
    std::this_thread::sleep_for(std::chrono::microseconds(delay_us(random)));
    ASSERT_TRUE(writer.kill()) << "it ended by itself";
    for (const std::filesystem::path& path : files_in(folder.path())) {
      if (path.extension() != ".cubin") continue;
      ASSERT_TRUE(read_by_name(path).has_value()) << path;
    }
  }
  const auto files = files_in(folder.path());
  EXPECT_GT(std::ranges::count(files, ".cubin", &std::filesystem::path::extension), 0)
      << "no child lived long enough to write: the test saw nothing";
}

TEST(CubinCache, TheDefaultFolderComesFromTheEnvironment) {
  const auto folder_with = [](const char* cache, const char* xdg, const char* home) {
    int pipe_ends[2];
    if (pipe(pipe_ends) != 0) return std::string("no pipe");
    // The environment is read once for each process.
    const pid_t child = in_child([&] {
      const auto set = [](const char* name, const char* value) {
        value == nullptr ? unsetenv(name) : setenv(name, value, 1);
      };
      set("OCTAVO_CACHE_DIR", cache);
      set("XDG_CACHE_HOME", xdg);
      set("HOME", home);
      const Result<std::filesystem::path> folder = default_cubin_folder();
      const std::string text = folder.ok() ? folder.value().string() : "error";
      if (write(pipe_ends[1], text.data(), text.size()) < 0) _exit(1);
    });
    close(pipe_ends[1]);
    std::string text(1000, '\0');
    const ssize_t count = read(pipe_ends[0], text.data(), text.size());
    close(pipe_ends[0]);
    waitpid(child, nullptr, 0);
    text.resize(static_cast<std::size_t>(std::max<ssize_t>(count, 0)));
    return text;
  };
  EXPECT_EQ(folder_with("/c", "/x", "/h"), "/c");
  EXPECT_EQ(folder_with(nullptr, "/x", "/h"), "/x/octavo/cubin");
  EXPECT_EQ(folder_with("", "/x", "/h"), "/x/octavo/cubin");
  EXPECT_EQ(folder_with(nullptr, nullptr, "/h"), "/h/.cache/octavo/cubin");
  EXPECT_EQ(folder_with(nullptr, "relative", "/h"), "/h/.cache/octavo/cubin");
  EXPECT_EQ(folder_with(nullptr, nullptr, nullptr), "");
}

}  // namespace
}  // namespace octavo
