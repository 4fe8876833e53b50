// SPDX-License-Identifier: Apache-2.0
// And octavo/name_effect.hpp, which declares it.
#include <fmt/format.h>

#include <algorithm>
#include <list>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/prepared_gemm.hpp"
#include "cuda/tune/gemm_measurement.hpp"
#include "naming/kernel_name.hpp"
#include "octavo/error.hpp"
#include "octavo/name_effect.hpp"

namespace octavo {
namespace {

using namespace cuda;

// A module's function, and the module as long as it is needed.
class LoadedFunction {
 public:
  LoadedFunction(const Driver& api, const DeviceInfo& device, const std::vector<std::byte>& cubin,
                 const std::string& name, int shared_bytes)
      : api_(api), device_(device) {
    const ContextScope scope(api_, device_.context);
    require(api_.ModuleLoadData(&module_, cubin.data()), "cuModuleLoadData");
    try {
      require(api_.ModuleGetFunction(&function_, module_, name.c_str()), "cuModuleGetFunction");
      constexpr int kMaxDynamicSharedBytes = 8;  // CUfunction_attribute of cuda.h
      require(api_.FuncSetAttribute(function_, kMaxDynamicSharedBytes, shared_bytes),
              "cuFuncSetAttribute");
    } catch (...) {
      (void)api_.ModuleUnload(module_);
      throw;
    }
  }
  LoadedFunction(const LoadedFunction&) = delete;
  LoadedFunction& operator=(const LoadedFunction&) = delete;
  ~LoadedFunction() {
    const ContextScope scope(api_, device_.context);
    (void)api_.ModuleUnload(module_);
  }

  [[nodiscard]] void* function() const { return function_; }

 private:
  void require(int code, const char* call) const {
    if (Status s = api_.check(code, call); !s.ok()) throw s.error();
  }

  const Driver& api_;
  const DeviceInfo& device_;
  void* module_ = nullptr;
  void* function_ = nullptr;
};

// Never followed: GemmMeasurement has memory of its own.
MutableTensorView unplaced(DType dtype, std::initializer_list<std::int64_t> shape) {
  constexpr std::uintptr_t kAddress = 1U << 20U;
  return make_view(reinterpret_cast<void*>(kAddress),  // NOLINT(performance-no-int-to-ptr)
                   dtype, shape, {DeviceKind::kCuda, 0});
}

GemmProblem problem_of(const GemmConfig& config, std::int64_t m, std::int64_t n, std::int64_t k) {
  GemmProblem problem;
  problem.a = unplaced(config.a, {m, k});
  problem.b = unplaced(config.b, {n, k});
  problem.d = unplaced(config.d, {m, n});
  problem.recipe = config.recipe;
  problem.accumulation =
      config.sum == MainloopSum::kFast ? Accumulation::kFast : Accumulation::kPromoted;
  problem.output_mode = config.accumulates ? OutputMode::kAccumulate : OutputMode::kOverwrite;
  problem.num_splits = config.num_splits;
  if (config.has_bias) problem.bias = TensorView(unplaced(DType::kF32, {n}));
  return problem;
}

GemmCandidate candidate_of(const GemmConfig& config, const GemmProblem& problem,
                           int num_multiprocessors) {
  for (const GemmCandidate& candidate : gemm_candidates(problem, num_multiprocessors)) {
    if (candidate.config == config) return candidate;
  }
  throw Error(
      ErrorCode::kUnsupported,
      fmt::format("names: no plan for M={}, N={}, K={} has {}; a kernel is timed on a "
                  "product that it could be chosen for. Give other extents.",
                  problem.a.shape[0], problem.b.shape[0], problem.a.shape[1], kernel_name(config)));
}

}  // namespace

NameTiming time_octavo_names(const NameEffectReport& report, const NameComparison& entry,
                             std::int64_t m, std::int64_t n, std::int64_t k, int rounds,
                             double window_ms) {
  const GemmConfig config = parse_kernel_name(entry.entry).value();
  if (config.grouping != Grouping::kNone) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("names: {} is a kernel for many products; one product is timed. Leave "
                            "it out.",
                            entry.entry));
  }
  if (!driver().ok()) throw driver().error();
  const Result<DeviceInfo>& device = device_info(0);
  if (!device.ok()) throw device.error();
  if (!report.architecture.starts_with("sm_90")) {
    throw Error(ErrorCode::kUnsupported,
                fmt::format("names: code for {} does not run on this GPU. Assemble it for sm_90a.",
                            report.architecture));
  }
  GemmMeasurement measurement(device.value(), problem_of(config, m, n, k), window_ms);
  const int num_multiprocessors = device.value().num_multiprocessors;
  GemmPlan plan = plan_gemm(measurement.problem(), num_multiprocessors);
  set_product(measurement.problem(),
              candidate_of(config, measurement.problem(), num_multiprocessors), plan);
  std::list<PreparedGemm> kernels;
  const auto prepare = [&]() -> PreparedGemm& {
    PreparedGemm& kernel = kernels.emplace_back();
    set_plan(plan, kernel);
    return kernel;
  };
  PreparedGemm& plain = prepare();
  PreparedGemm& with_word = prepare();
  const Driver& api = driver().value();
  const LoadedFunction plain_function(api, device.value(), report.plain_cubin, entry.plain.name,
                                      plain.shared_bytes);
  const LoadedFunction word_function(api, device.value(), report.with_word_cubin,
                                     entry.with_word.name, with_word.shared_bytes);
  // What is there is not compiled and loaded again.
  plain.function = plain_function.function();
  with_word.function = word_function.function();

  NameTiming timing;
  const std::vector<std::uint8_t> bits = measurement.result(plain);
  timing.same_bits = bits == measurement.result(with_word);
  timing.is_repeatable = bits == measurement.result(plain);
  for (int round = 0; round < rounds; ++round) {
    const auto measure_plain = [&] { timing.plain_us.push_back(measurement.microseconds(plain)); };
    if (round % 2 == 0) measure_plain();
    timing.with_word_us.push_back(measurement.microseconds(with_word));
    if (round % 2 != 0) measure_plain();
  }
  return timing;
}

}  // namespace octavo
