// SPDX-License-Identifier: Apache-2.0
// A product as the command line or a suite describes it: sizes, types, recipe and data, no memory.
// Operands are made from it in gemm_operands.hpp.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/gemm.hpp"
#include "random_data.hpp"
#include "session.hpp"

namespace CLI {
class App;
}

namespace octavo::cli {

inline constexpr std::array kValueTypes{DType::kE4M3, DType::kE5M2, DType::kBF16, DType::kF16,
                                        DType::kF32};
inline constexpr std::array kScaleTypes{DType::kF32, DType::kUE8M0};
inline constexpr std::array kRecipes{ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                     ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};
inline constexpr std::array kAccumulations{Accumulation::kPromoted, Accumulation::kFast};
inline constexpr std::array kNumericsModes{Numerics::kDefault, Numerics::kReference,
                                           Numerics::kEmulated, Numerics::kBlocked};

struct GemmRequest {
  std::int64_t m = 256;
  std::int64_t n = 256;
  std::int64_t k = 256;
  std::int64_t batch = 0;  // 0: operands have no batch dimension
  DType a_dtype = DType::kE4M3;
  DType b_dtype = DType::kE4M3;
  DType d_dtype = DType::kF32;
  DType scale_dtype = DType::kF32;
  ScaleRecipe recipe = ScaleRecipe::kBlock;
  Accumulation accumulation = Accumulation::kPromoted;
  bool bias = false;
  bool accumulate = false;
  std::int64_t num_splits = 0;
  Distribution data = Distribution::kGaussian;
  std::int64_t seed = 1;
};

// How it is to be carried out.
struct ExecutionRequest {
  std::string backend;  // empty: the first that serves the problem
  Numerics numerics = Numerics::kDefault;
  std::int64_t num_threads = 0;

  [[nodiscard]] Execution execution() const;
};

void add_gemm_options(CLI::App& verb, GemmRequest& request);
void add_execution_options(CLI::App& verb, ExecutionRequest& request);

[[nodiscard]] Json to_json(const GemmRequest& request);

// A shape with the batch dimension in front, where there is one.
[[nodiscard]] std::vector<std::int64_t> with_batch(std::int64_t batch,
                                                   std::vector<std::int64_t> shape);

// "octavo run gemm --m 1 ...": the command that repeats it.
[[nodiscard]] std::string repeat_command(const GemmRequest& request, const ExecutionRequest& how);

// Throws Error kEnvironment if operands of this size would not fit in the machine's memory.
void require_memory(const char* where, double needed_bytes);
void require_gemm_memory(const char* where, const GemmRequest& request);

}  // namespace octavo::cli
