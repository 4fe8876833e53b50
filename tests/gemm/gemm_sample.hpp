// SPDX-License-Identifier: Apache-2.0
// Error of a finished product on a random sample of its elements against literal FP64: cheap for
// large shapes, and independent of every way the library computes.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "octavo/gemm.hpp"
#include "support/gemm_data.hpp"

namespace octavo::test {

constexpr Numerics kEveryNumerics[] = {Numerics::kReference, Numerics::kEmulated,
                                       Numerics::kBlocked};

[[nodiscard]] inline Execution on_cpu(Numerics numerics) {
  return {.backend = "cpu", .numerics = numerics};
}

// Largest accumulation error, against the quantised operands, that each way may show with FP32
// output: FP64 sums round once, FP32 sums lose a few bits, the tensor core cuts to 13 bits
// (docs/numerics.md, section "How large the errors are").
[[nodiscard]] inline double promoted_bound(Numerics numerics, Data data) {
  if (numerics == Numerics::kReference) return 1e-7;
  if (numerics == Numerics::kBlocked) return 5e-6;
  return data == Data::kPositive ? 8e-4 : 3e-4;
}

// Relative Frobenius error on the sample. The last row and column are always in it.
[[nodiscard]] inline double sampled_error(const GemmProblem& problem, int num_samples = 500) {
  std::mt19937_64 random(99);
  const bool batched = problem.d.rank == 3;
  const std::int64_t num_batches = batched ? problem.d.shape[0] : 1;
  const std::int64_t rows = problem.d.shape[static_cast<std::size_t>(problem.d.rank - 2)];
  const std::int64_t cols = problem.d.shape[static_cast<std::size_t>(problem.d.rank - 1)];
  double error = 0;
  double size = 0;
  for (int i = 0; i < num_samples; ++i) {
    const auto below = [&](std::int64_t extent) {
      return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(extent));
    };
    const std::int64_t batch = below(num_batches);
    const std::int64_t row = i % 16 == 0 ? rows - 1 : below(rows);
    const std::int64_t col = i % 16 == 1 ? cols - 1 : below(cols);
    const double want = literal_fp64(problem, {}, batch, row, col);
    const double got =
        load_element(problem.d.data, problem.d.dtype, offset_of(problem.d, batch, row, col));
    error += (got - want) * (got - want);
    size += want * want;
  }
  return std::sqrt(error / size);
}

// Runs every case for each way the CPU computes.
class Gemm : public ::testing::TestWithParam<Numerics> {
 protected:
  [[nodiscard]] static Execution execution() { return on_cpu(GetParam()); }

  // Computes the problem and checks a sample of D.
  static void expect_right(const GemmSpec& spec, const GemmProblem& problem) {
    gemm(problem, execution());
    EXPECT_LE(sampled_error(problem), promoted_bound(GetParam(), spec.data))
        << repeat_line(spec, GetParam());
  }
};

[[nodiscard]] inline std::string numerics_name(const ::testing::TestParamInfo<Numerics>& info) {
  return to_string(info.param);
}

}  // namespace octavo::test
