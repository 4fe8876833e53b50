// SPDX-License-Identifier: Apache-2.0
// Compilation with the machine's NVRTC; no GPU. Skipped where there is no NVRTC.
#include "cuda/jit/nvrtc_compiler.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <thread>

#include "cuda/jit/cubin_cache.hpp"
#include "cuda/jit/embedded_headers.hpp"
#include "cuda/jit/source_dump.hpp"
#include "jit/cache_folder.hpp"

namespace octavo {
namespace {

using testing::HasSubstr;
using testing::Not;

class NvrtcCompiler : public testing::Test {
 protected:
  void SetUp() override {
    const Result<std::string> nvrtc = nvrtc_description();
    if (!nvrtc.ok()) GTEST_SKIP() << nvrtc.error().what();
  }
};

const KernelSource kUsesTheContract = {"octavo_probe", R"(
#include "kernels/contract/gemm_config.hpp"
constexpr octavo::GemmConfig kConfig = {.tile_n = 128};
template <octavo::GemmConfig kC>
__device__ void fill(int* out) { out[threadIdx.x] = num_parts(kC) + kC.tile_n; }
extern "C" __global__ void octavo_probe(int* out) { fill<kConfig>(out); }
)"};

TEST_F(NvrtcCompiler, CompilesAKernelThatIncludesTheContract) {
  const Result<CompiledKernel> kernel = compile_kernel(kUsesTheContract);
  ASSERT_TRUE(kernel.ok()) << kernel.error().what();
  ASSERT_GT(kernel.value().cubin.size(), 4U);
  EXPECT_EQ(std::memcmp(kernel.value().cubin.data(), "\177ELF", 4), 0);
  EXPECT_THAT(kernel.value().log, HasSubstr("octavo_probe"));
  EXPECT_GT(kernel.value().resources.registers, 0);
  EXPECT_EQ(kernel.value().resources.stack_bytes, 0);
  EXPECT_EQ(kernel.value().resources.spill_store_bytes, 0);
}

TEST_F(NvrtcCompiler, CompilesEveryEmbeddedHeaderByItself) {
  for (const EmbeddedHeader& header : embedded_headers()) {
    const Result<CompiledKernel> kernel =
        compile_kernel({"octavo_probe", std::string("#include <") + header.name +
                                            ">\nextern \"C\" __global__ void octavo_probe() {}\n"});
    EXPECT_TRUE(kernel.ok()) << kernel.error().what();
  }
}

TEST_F(NvrtcCompiler, AnErrorCarriesTheWholeLogAndHowToRepeatIt) {
  const Result<CompiledKernel> kernel = compile_kernel(
      {"octavo_probe",
       "extern \"C\" __global__ void octavo_probe() { first_fault; }\nint f() { last_fault; }\n"});
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.error().code(), ErrorCode::kInternal);
  EXPECT_THAT(kernel.error().what(), HasSubstr("octavo_probe.cu(1): error"));
  EXPECT_THAT(kernel.error().what(), HasSubstr("\"first_fault\""));
  EXPECT_THAT(kernel.error().what(), HasSubstr("\"last_fault\""));
  EXPECT_THAT(kernel.error().what(), HasSubstr("OCTAVO_JIT_DUMP"));
}

TEST_F(NvrtcCompiler, NamesAnIncludeItCannotFind) {
  const Result<CompiledKernel> kernel =
      compile_kernel({"octavo_probe", "#include \"kernels/nowhere.cuh\"\n"});
  ASSERT_FALSE(kernel.ok());
  EXPECT_THAT(kernel.error().what(), HasSubstr("kernels/nowhere.cuh"));
}

TEST_F(NvrtcCompiler, RefusesASourceWithoutItsEntry) {
  // Without extern "C" the symbol is another.
  for (const char* text : {"", "__global__ void octavo_probe() {}",
                           "extern \"C\" __global__ void octavo_other() {}"}) {
    const Result<CompiledKernel> kernel = compile_kernel({"octavo_probe", text});
    ASSERT_FALSE(kernel.ok()) << text;
    EXPECT_THAT(kernel.error().what(), HasSubstr("names no kernel octavo_probe"));
  }
}

TEST_F(NvrtcCompiler, RefusesASetmaxnregThatPtxasIgnores) {
  // ptxas needs a launch bound to know the registers at entry.
  const std::string body =
      "octavo_probe(int* p) { asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\"); p[0] = 1; }";
  const Result<CompiledKernel> refused =
      compile_kernel({"octavo_probe", "extern \"C\" __global__ void " + body});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().what(), HasSubstr("C7508"));
  EXPECT_THAT(refused.error().what(), HasSubstr("setmaxnreg"));
  const Result<CompiledKernel> accepted = compile_kernel(
      {"octavo_probe", "extern \"C\" __global__ void __launch_bounds__(384, 1) " + body});
  EXPECT_TRUE(accepted.ok()) << accepted.error().what();
}

TEST_F(NvrtcCompiler, ReportsSpills) {
  const Result<CompiledKernel> kernel = compile_kernel({"octavo_probe", R"(
extern "C" __global__ void __launch_bounds__(1024, 2) octavo_probe(float* p) {
  float v[64];
  for (int i = 0; i < 64; ++i) v[i] = p[i * 1024 + threadIdx.x];
  __syncthreads();
  for (int i = 0; i < 64; ++i) p[(i + threadIdx.x) * 3] = v[i];
})"});
  ASSERT_TRUE(kernel.ok()) << kernel.error().what();
  EXPECT_EQ(kernel.value().resources.registers, 32);
  EXPECT_GT(kernel.value().resources.spill_store_bytes, 0);
  EXPECT_GT(kernel.value().resources.spill_load_bytes, 0);
}

TEST_F(NvrtcCompiler, CompilesInSeveralThreads) {
  constexpr int kThreads = 4;
  std::vector<int> compiled(kThreads);
  std::vector<std::thread> threads;
  for (int& slot : compiled) {
    threads.emplace_back([&slot] { slot = compile_kernel(kUsesTheContract).ok() ? 1 : 0; });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(compiled, testing::Each(1));
}

TEST_F(NvrtcCompiler, ItsIdentityHoldsFlagsAndHeaders) {
  const Result<KernelCompiler> compiler = nvrtc_compiler();
  ASSERT_TRUE(compiler.ok());
  EXPECT_THAT(compiler.value().identity, HasSubstr("--gpu-architecture=sm_90a --std=c++20"));
  EXPECT_THAT(compiler.value().identity, testing::ContainsRegex("headers [0-9a-f]+$"));
  EXPECT_THAT(compiler.value().identity, Not(HasSubstr("/")));
}

TEST_F(NvrtcCompiler, FillsTheCache) {
  const TemporaryFolder folder;
  const Result<KernelCompiler> compiler = nvrtc_compiler();
  ASSERT_TRUE(compiler.ok());
  CubinCache first(folder.path(), compiler.value());
  const Result<CompiledKernel> kernel = first.get_or_compile(kUsesTheContract);
  ASSERT_TRUE(kernel.ok()) << kernel.error().what();
  KernelCompiler refusing = compiler.value();
  refusing.compile = [](const KernelSource&) {
    return Result<CompiledKernel>(Error(ErrorCode::kInternal, "compiled again"));
  };
  CubinCache second(folder.path(), refusing);
  const Result<CompiledKernel> again = second.get_or_compile(kUsesTheContract);
  ASSERT_TRUE(again.ok()) << again.error().what();
  EXPECT_EQ(again.value(), kernel.value());
}

// --- the kept source; needs no NVRTC

TEST(SourceDump, KeepsTheSourceAndEveryHeader) {
  const TemporaryFolder folder;
  const std::string message = dump_source(kUsesTheContract, folder.path().string());
  EXPECT_THAT(message, HasSubstr("nvcc -arch=sm_90a"));
  const auto root = folder.path() / "octavo_probe";
  EXPECT_THAT(message, HasSubstr((root / "octavo_probe.cu").string()));
  const auto text_of = [](const std::filesystem::path& path) {
    const auto bytes = read_bytes(path);
    return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  EXPECT_EQ(text_of(root / "octavo_probe.cu"), kUsesTheContract.text);
  for (const EmbeddedHeader& header : embedded_headers()) {
    EXPECT_EQ(text_of(root / header.name), header.text) << header.name;
  }
}

TEST(SourceDump, ItsCommandWorks) {
  if (std::system("nvcc --version >/dev/null 2>&1") != 0) GTEST_SKIP() << "nvcc is not installed";
  const TemporaryFolder folder;
  const std::string message = dump_source(kUsesTheContract, folder.path().string());
  const std::string command = message.substr(message.find("nvcc "));
  EXPECT_EQ(std::system((command + " >/dev/null 2>&1").c_str()), 0) << command;
  EXPECT_TRUE(std::filesystem::exists(folder.path() / "octavo_probe" / "octavo_probe.cubin"));
}

TEST(SourceDump, SaysWhatToDoWhereItKeepsNothing) {
  EXPECT_THAT(dump_source(kUsesTheContract, ""), HasSubstr("set OCTAVO_JIT_DUMP"));
  EXPECT_THAT(dump_source(kUsesTheContract, "/proc/octavo"), HasSubstr("could not be written"));
}

}  // namespace
}  // namespace octavo
