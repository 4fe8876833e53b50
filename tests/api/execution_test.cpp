// SPDX-License-Identifier: Apache-2.0
// The rules of Execution: back ends by name, streams, threads, concurrent callers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "octavo/octavo.hpp"

namespace octavo {
namespace {

using ::testing::HasSubstr;

struct Product {
  std::int64_t m, n, k;
  std::vector<std::uint8_t> a, b;
  std::vector<float> d;

  Product(std::int64_t rows, std::int64_t cols, std::int64_t depth, unsigned seed)
      : m(rows),
        n(cols),
        k(depth),
        a(static_cast<std::size_t>(rows * depth)),
        b(static_cast<std::size_t>(cols * depth)),
        d(static_cast<std::size_t>(rows * cols), -7.0F) {
    std::mt19937 generator(seed);
    // Codes below 0x50 and their negatives: finite, moderate values.
    for (auto* codes : {&a, &b}) {
      for (std::uint8_t& code : *codes) {
        code = static_cast<std::uint8_t>((generator() % 0x50) | ((generator() & 1U) << 7));
      }
    }
  }

  [[nodiscard]] GemmProblem problem() {
    GemmProblem result;
    result.a = make_view(a.data(), DType::kE4M3, {m, k});
    result.b = make_view(b.data(), DType::kE4M3, {n, k});
    result.d = make_view(d.data(), DType::kF32, {m, n});
    return result;
  }
};

std::string message_of(const GemmProblem& problem, const Execution& execution, ErrorCode code) {
  try {
    gemm(problem, execution);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "gemm() accepted what it should refuse";
  return {};
}

TEST(Execution, CpuIsListedLastAndAvailable) {
  const std::vector<BackendInfo> backends = list_backends();
  ASSERT_FALSE(backends.empty());
  EXPECT_EQ(backends.back().name, "cpu");
  EXPECT_TRUE(backends.back().available);
  EXPECT_FALSE(backends.back().description.empty());
}

TEST(Execution, BackendIsForcedByName) {
  Product product(3, 5, 64, 1);
  EXPECT_EQ(gemm(product.problem(), {.backend = "cpu"}).backend, "cpu");
  const std::string message =
      message_of(product.problem(), {.backend = "tpu"}, ErrorCode::kInvalidArgument);
  EXPECT_THAT(message, HasSubstr("backend is \"tpu\""));
  EXPECT_THAT(message, HasSubstr("\"cpu\""));
}

TEST(Execution, SupportsSaysWhichKernelRunsOrWhyNone) {
  Product product(3, 5, 64, 2);
  for (const SupportReport& report : supports(product.problem(), {.backend = "cpu"})) {
    EXPECT_TRUE(report.supported);
    EXPECT_EQ(report.kernel, gemm(product.problem(), {.backend = "cpu"}).kernel);
  }
  std::vector<float> values(3 * 64, 1.0F);
  GemmProblem mixed = product.problem();
  mixed.a = make_view(values.data(), DType::kF32, {3, 64});
  const std::vector<SupportReport> reports =
      supports(mixed, {.backend = "cpu", .numerics = Numerics::kEmulated});
  ASSERT_EQ(reports.size(), 1U);
  EXPECT_FALSE(reports[0].supported);
  ASSERT_EQ(reports[0].reasons.size(), 1U);
  EXPECT_EQ(reports[0].reasons[0].field, "a");
  EXPECT_THAT(message_of(mixed, {.backend = "cpu", .numerics = Numerics::kEmulated},
                         ErrorCode::kUnsupported),
              HasSubstr("a is f32"));
}

// Graph capture: work on "cpu" never becomes part of a stream, so a stream is refused before
// anything is computed.
TEST(Execution, CpuRefusesAStreamAndLeavesTheOutputAlone) {
  Product product(3, 5, 64, 3);
  int not_a_stream = 0;
  const std::string message = message_of(
      product.problem(), {.backend = "cpu", .stream = &not_a_stream}, ErrorCode::kUnsupported);
  EXPECT_THAT(message, HasSubstr("stream"));
  EXPECT_THAT(message, HasSubstr("graph"));
  for (const float value : product.d) ASSERT_EQ(value, -7.0F);
}

TEST(Execution, CpuNeedsNoWorkspaceAndIgnoresALargerOne) {
  Product product(3, 5, 64, 4);
  EXPECT_EQ(workspace_bytes(product.problem(), {.backend = "cpu"}), 0U);
  std::array<char, 64> workspace{};
  workspace.fill('w');
  gemm(product.problem(),
       {.backend = "cpu", .workspace = workspace.data(), .workspace_bytes = workspace.size()});
  for (const char byte : workspace) ASSERT_EQ(byte, 'w');
}

// Any number of threads may call at once, on problems of their own and on shared inputs.
TEST(Execution, ConcurrentCallersGetTheBitsOfASingleCaller) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kEmulated, Numerics::kBlocked}) {
    Product shared(33, 65, 300, 5);
    gemm(shared.problem(), {.backend = "cpu", .numerics = numerics});
    constexpr int kCallers = 4;
    std::vector<std::vector<float>> outputs(kCallers);
    std::vector<std::thread> callers;
    for (int caller = 0; caller < kCallers; ++caller) {
      callers.emplace_back([&, caller] {
        for (int round = 0; round < 20; ++round) {
          std::vector<float> d(shared.d.size(), -1.0F);
          GemmProblem problem = shared.problem();
          problem.d = make_view(d.data(), DType::kF32, {shared.m, shared.n});
          gemm(problem, {.backend = "cpu", .numerics = numerics});
          outputs[static_cast<std::size_t>(caller)] = d;
        }
      });
    }
    for (std::thread& caller : callers) caller.join();
    for (const auto& output : outputs) EXPECT_EQ(output, shared.d) << to_string(numerics);
  }
}

TEST(Execution, ResultsDoNotDependOnTheNumberOfThreads) {
  for (const Numerics numerics : {Numerics::kReference, Numerics::kEmulated, Numerics::kBlocked}) {
    Product product(40, 130, 257, 6);
    gemm(product.problem(), {.backend = "cpu", .numerics = numerics, .num_threads = 1});
    const std::vector<float> single = product.d;
    gemm(product.problem(), {.backend = "cpu", .numerics = numerics, .num_threads = 0});
    EXPECT_EQ(product.d, single) << to_string(numerics);
  }
}

}  // namespace
}  // namespace octavo
