// SPDX-License-Identifier: Apache-2.0
// The teaching kernels compile without spills; what they compute is tested on a GPU
// (tests/gpu/naive_gpu_test.cpp).
#include "support/naive_kernels.hpp"

#include <gtest/gtest.h>

#include "cuda/jit/nvrtc_compiler.hpp"

namespace octavo::test {
namespace {

TEST(NaiveKernels, compile_without_spills) {
  if (const Result<std::string> nvrtc = nvrtc_description(); !nvrtc.ok()) {
    GTEST_SKIP() << nvrtc.error().what();
  }
  for (const NaiveKernel& kernel : {kNaiveGemm, kTiledGemm, kWgmmaGemm}) {
    const Result<CompiledKernel> compiled = compile_kernel(kernel.source());
    ASSERT_TRUE(compiled.ok()) << compiled.error().what();
    EXPECT_EQ(compiled.value().resources.spill_store_bytes, 0) << kernel.name;
    EXPECT_EQ(compiled.value().resources.stack_bytes, 0) << kernel.name;
  }
}

}  // namespace
}  // namespace octavo::test
