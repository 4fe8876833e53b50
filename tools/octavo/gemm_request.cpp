// SPDX-License-Identifier: Apache-2.0
#include "gemm_request.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <limits>

#include "octavo/error.hpp"
#include "options.hpp"

namespace octavo::cli {
namespace {

// Limits of the command, not of the library: beyond them a typing error is likelier than a wish.
constexpr Bounds<std::int64_t> kExtentBounds{0, std::int64_t{1} << 24};
constexpr Bounds<std::int64_t> kBatchBounds{0, std::int64_t{1} << 16};
constexpr Bounds<std::int64_t> kSplitBounds{0, std::int64_t{1} << 17};
constexpr Bounds<std::int64_t> kSeedBounds{0, std::numeric_limits<std::int64_t>::max()};
constexpr Bounds<std::int64_t> kThreadBounds{0, 4096};

double needed_bytes(const GemmRequest& request) {
  // Operands as drawn and as quantized, D, its reference and its F32 copy: up to 8 bytes an
  // operand's element and 16 an output.
  constexpr double kBytesPerOperand = 8;
  constexpr double kBytesPerOutput = 16;
  const auto m = static_cast<double>(request.m);
  const auto n = static_cast<double>(request.n);
  const auto k = static_cast<double>(request.k);
  return static_cast<double>(std::max<std::int64_t>(request.batch, 1)) *
         ((m + n) * k * kBytesPerOperand + m * n * kBytesPerOutput);
}

}  // namespace

Execution ExecutionRequest::execution() const {
  Execution execution;
  execution.backend = backend;
  execution.numerics = numerics;
  execution.num_threads = static_cast<int>(num_threads);
  return execution;
}

void add_gemm_options(CLI::App& verb, GemmRequest& request) {
  add_integer(verb, "--m", request.m, kExtentBounds, "Rows of A and D");
  add_integer(verb, "--n", request.n, kExtentBounds, "Rows of B, columns of D");
  add_integer(verb, "--k", request.k, kExtentBounds, "Columns of A and B");
  add_integer(verb, "--batch", request.batch, kBatchBounds, "Products in a batch; 0: no batch");
  add_enum(verb, "--recipe", request.recipe, kRecipes, "How the FP8 operands are scaled");
  add_enum(verb, "--scales", request.scale_dtype, kScaleTypes, "Type of the scales");
  add_enum(verb, "--a-dtype", request.a_dtype, kValueTypes, "Type of A");
  add_enum(verb, "--b-dtype", request.b_dtype, kValueTypes, "Type of B");
  add_enum(verb, "--d-dtype", request.d_dtype, kValueTypes, "Type of D");
  add_enum(verb, "--accumulation", request.accumulation, kAccumulations,
           "How partial sums are kept");
  add_flag(verb, "--bias", request.bias, "Add a random bias");
  add_flag(verb, "--accumulate", request.accumulate, "Add to a random D instead of overwriting it");
  add_integer(verb, "--splits", request.num_splits, kSplitBounds,
              "Parts that K is cut into; 0: the back end chooses");
  add_enum(verb, "--data", request.data, kDistributions, "Distribution of the random data");
  add_integer(verb, "--seed", request.seed, kSeedBounds, "Seed of the random data");
}

void add_execution_options(CLI::App& verb, ExecutionRequest& request) {
  add_text(verb, "--backend", request.backend,
           "Back end by name; the first that serves the problem if left out");
  add_enum(verb, "--numerics", request.numerics, kNumericsModes, "How it is computed");
  add_integer(verb, "--threads", request.num_threads, kThreadBounds,
              "Threads on the CPU; 0: every usable core");
}

Json to_json(const GemmRequest& request) {
  return {{"op", "gemm"},
          {"m", request.m},
          {"n", request.n},
          {"k", request.k},
          {"batch", request.batch},
          {"recipe", to_string(request.recipe)},
          {"scales", to_string(request.scale_dtype)},
          {"a_dtype", to_string(request.a_dtype)},
          {"b_dtype", to_string(request.b_dtype)},
          {"d_dtype", to_string(request.d_dtype)},
          {"accumulation", to_string(request.accumulation)},
          {"bias", request.bias},
          {"accumulate", request.accumulate},
          {"splits", request.num_splits},
          {"data", to_string(request.data)},
          {"seed", request.seed}};
}

std::vector<std::int64_t> with_batch(std::int64_t batch, std::vector<std::int64_t> shape) {
  if (batch > 0) shape.insert(shape.begin(), batch);
  return shape;
}

std::string repeat_command(const GemmRequest& request, const ExecutionRequest& how) {
  const GemmRequest defaults;
  std::string command = fmt::format("octavo run gemm --m {} --n {} --k {} --recipe {}", request.m,
                                    request.n, request.k, to_string(request.recipe));
  const auto add = [&command](const char* option, const auto& value, const auto& usual) {
    if (value != usual) command += fmt::format(" {} {}", option, value);
  };
  const auto add_word = [&command](const char* option, auto value, auto usual) {
    if (value != usual) command += fmt::format(" {} {}", option, to_string(value));
  };
  add("--batch", request.batch, defaults.batch);
  add_word("--scales", request.scale_dtype, defaults.scale_dtype);
  add_word("--a-dtype", request.a_dtype, defaults.a_dtype);
  add_word("--b-dtype", request.b_dtype, defaults.b_dtype);
  add_word("--d-dtype", request.d_dtype, defaults.d_dtype);
  add_word("--accumulation", request.accumulation, defaults.accumulation);
  if (request.bias) command += " --bias";
  if (request.accumulate) command += " --accumulate";
  add("--splits", request.num_splits, defaults.num_splits);
  add_word("--data", request.data, defaults.data);
  add("--seed", request.seed, defaults.seed);
  if (!how.backend.empty()) command += " --backend " + how.backend;
  add_word("--numerics", how.numerics, Numerics::kDefault);
  add("--threads", how.num_threads, std::int64_t{0});
  return command;
}

void require_memory(const char* where, double needed_bytes) {
  constexpr double kUsableShare = 0.8;  // the rest is for the system and the check's own copies
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  const double present =
      static_cast<double>(sysconf(_SC_PHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE));
  if (needed_bytes <= kUsableShare * present) return;
  throw Error(ErrorCode::kEnvironment,
              fmt::format("{}: the operands and their checks take {:.1f} GiB; this machine has "
                          "{:.1f} GiB of memory. Use smaller sizes.",
                          where, needed_bytes / kGibibyte, present / kGibibyte));
}

void require_gemm_memory(const char* where, const GemmRequest& request) {
  require_memory(where, needed_bytes(request));
}

}  // namespace octavo::cli
