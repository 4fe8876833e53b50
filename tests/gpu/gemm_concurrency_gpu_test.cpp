// SPDX-License-Identifier: Apache-2.0
// Products from several threads, in CUDA graphs, and from processes that start together on an empty
// kernel cache.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "gpu/gemm_on_gpu.hpp"
#include "gpu/gpu_stream.hpp"

namespace octavo::test {
namespace {

// One that needs every small kernel: a repacked operand, an output finished apart.
constexpr GemmSpec kEverything{.m = 70,
                               .n = 144,
                               .k = 273,
                               .d = DType::kE4M3,
                               .recipe = ScaleRecipe::kBlock,
                               .bias = true,
                               .d_scale = true};

TEST_F(GemmOnGpu, several_threads_on_streams_of_their_own) {
  constexpr int kThreads = 8;
  constexpr int kRounds = 20;
  const auto work = [](int index) {
    const GpuStream stream;
    GemmSpec spec = kEverything;
    spec.m += index;
    spec.d = index % 2 == 0 ? DType::kE4M3 : DType::kF32;
    spec.d_scale = is_fp8(spec.d);
    spec.seed = static_cast<std::uint64_t>(index) + 1;
    GemmData data(spec);
    const GemmProblem host = data.problem();
    (void)gemm(host, kEmulated);
    std::vector<std::uint8_t> want = data.d.bytes();
    data.d.fill_bytes(0xFF);
    const DeviceGemm device(host);
    Gpu::instance().synchronize();
    for (int round = 0; round < kRounds; ++round) {
      (void)gemm(device.problem, {.backend = "cuda", .stream = stream.get()});
    }
    stream.wait();
    EXPECT_EQ(device.d.bytes(), want) << "thread " << index;
  };
  std::vector<std::jthread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, i);
}

// Replays with new data in the same memory, with memory of the library's own and the caller's.
void capture_and_replay(const GemmSpec& spec, bool own_workspace) {
  GemmData data(spec);
  const GemmProblem host = data.problem();
  const DeviceGemm device(host);
  GpuStream stream;
  Execution execution{.backend = "cuda", .stream = stream.get()};
  const std::size_t needed = workspace_bytes(device.problem, execution);
  const cuda::DevicePointer workspace = own_workspace ? Gpu::instance().allocate(needed) : 0;
  if (own_workspace) {
    execution.workspace = reinterpret_cast<void*>(workspace);
    execution.workspace_bytes = needed;
  }
  Gpu::instance().synchronize();
  stream.capture([&] { (void)gemm(device.problem, execution); });
  std::mt19937_64 random(8);
  for (int round = 0; round < 3; ++round) {
    randomize(data.a, Data::kGaussian, random);
    Gpu::instance().upload(reinterpret_cast<cuda::DevicePointer>(device.problem.a.data),
                           data.a.bytes().data(), data.a.bytes().size());
    Gpu::instance().synchronize();
    stream.replay();
    stream.wait();
    (void)gemm(host, kEmulated);
    EXPECT_TRUE(same_output(device, host, "replay " + std::to_string(round)));
  }
  if (own_workspace) Gpu::instance().free(workspace);
}

TEST_F(GemmOnGpu, captured_and_replayed) {
  for (const bool own_workspace : {false, true}) capture_and_replay(kEverything, own_workspace);
}

// Kernels that this process has not used: compiled and loaded during the capture, which goes on.
TEST_F(GemmOnGpu, C76_first_call_inside_graph_capture) {
  capture_and_replay({.m = 40,
                      .n = 72,
                      .k = 131,
                      .a = DType::kE5M2,
                      .d = DType::kF16,
                      .recipe = ScaleRecipe::kTensor,
                      .output_mode = OutputMode::kOverwrite,
                      .bias = true},
                     false);
}

constexpr const char* kChildFilter = "GemmOnGpu.a_process_of_many";

// What each process of the test below runs; quick by itself.
TEST_F(GemmOnGpu, a_process_of_many) { expect_equal_bits(kEverything); }

// Starts this program for that one test; true if it passes.
bool wait_for(pid_t child) {
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}
pid_t start_child(const std::filesystem::path& cache) {
  std::vector<std::string> environment{"OCTAVO_CACHE_DIR=" + cache.string()};
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!std::string(*entry).starts_with("OCTAVO_CACHE_DIR=")) environment.emplace_back(*entry);
  }
  std::string program = "/proc/self/exe";
  std::string filter = std::string("--gtest_filter=") + kChildFilter;
  std::vector<char*> arguments{program.data(), filter.data(), nullptr};
  std::vector<char*> variables;
  for (std::string& entry : environment) variables.push_back(entry.data());
  variables.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, "/dev/null", O_WRONLY, 0);
  pid_t child = -1;
  const int code = posix_spawn(&child, std::filesystem::read_symlink(program).c_str(), &actions,
                               nullptr, arguments.data(), variables.data());
  posix_spawn_file_actions_destroy(&actions);
  return code == 0 ? child : -1;
}

// Name, size and time of every file.
std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> files_of(
    const std::filesystem::path& folder) {
  std::map<std::string, std::pair<std::uintmax_t, std::filesystem::file_time_type>> files;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    files[entry.path().filename().string()] = {entry.file_size(), entry.last_write_time()};
  }
  return files;
}

TEST_F(GemmOnGpu, C67_processes_that_start_together_on_an_empty_cache) {
  std::string folder = (std::filesystem::temp_directory_path() / "octavo cache XXXXXX").string();
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::filesystem::path cache = folder;
  constexpr int kProcesses = 8;
  std::vector<pid_t> children;
  for (int i = 0; i < kProcesses; ++i) children.push_back(start_child(cache));
  for (const pid_t child : children) {
    ASSERT_GT(child, 0);
    EXPECT_TRUE(wait_for(child));
  }
  const auto files = files_of(cache);
  EXPECT_EQ(files.size(), 3U);  // the product and two small kernels, and nothing half-written
  for (const auto& [name, facts] : files) {
    EXPECT_EQ(std::filesystem::path(name).extension(), ".cubin") << name;
  }
  // A later process finds them valid: one that is not would be compiled and written again.
  EXPECT_TRUE(wait_for(start_child(cache)));
  EXPECT_TRUE(files_of(cache) == files);
  std::filesystem::remove_all(cache);
}

}  // namespace
}  // namespace octavo::test
