// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/tune_gemms.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <list>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "cuda/driver.hpp"
#include "cuda/gemm_launch.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"
#include "cuda/plan/gemm_plan.hpp"
#include "cuda/prepared_gemm.hpp"
#include "cuda/tune/choose_fastest.hpp"
#include "cuda/tune/gemm_measurement.hpp"
#include "cuda/tune/record_folder.hpp"
#include "cuda/tune/tuning_record.hpp"
#include "naming/kernel_name.hpp"
#include "octavo/runtime.hpp"

namespace octavo::cuda {
namespace {

using Clock = std::chrono::steady_clock;

class Tuner {
 public:
  Tuner(std::span<const GemmProblem> problems, const TuningOptions& options, RecordFolder folder)
      : problems_(problems), options_(options), folder_(std::move(folder)), begin_(Clock::now()) {}

  std::vector<TuningReport> run() {
    std::vector<TuningReport> reports;
    for (std::size_t i = 0; i < problems_.size(); ++i) {
      at_ = i;
      try {
        reports.push_back(tune(problems_[i]));
      } catch (const std::exception& error) {
        reports.push_back(skipped(error.what()));
      }
    }
    return reports;
  }

 private:
  static TuningReport skipped(std::string why) {
    return {TuningOutcome::kSkipped, {}, std::move(why)};
  }

  [[nodiscard]] bool out_of_time() const {
    return std::chrono::duration<double>(Clock::now() - begin_).count() > options_.budget_s;
  }

  void say(std::string doing) const {
    if (options_.on_progress) options_.on_progress({at_, problems_.size(), std::move(doing)});
  }

  TuningReport tune(const GemmProblem& problem) {
    if (const std::vector<Reason> reasons = gemm_refusals(problem, {}); !reasons.empty()) {
      return skipped(to_string(reasons.front()));
    }
    const int ordinal = problem.a.device.ordinal;
    const Result<DeviceInfo>& device = device_info(ordinal);
    if (!device.ok()) throw device.error();
    const GemmPlan plan = plan_gemm(problem, device.value().num_multiprocessors);
    if (plan.work != GemmWork::kProduct) return skipped("nothing is multiplied: M, N or K is 0");
    const std::vector<GemmCandidate> candidates =
        gemm_candidates(problem, device.value().num_multiprocessors);
    const GpuDescription gpu = gpus().at(static_cast<std::size_t>(ordinal));
    TuningRecord record;
    record.environment = environment_key(gpu);
    record.problem = problem_key(problem, gpu, plan.config);
    if (!options_.again) {
      std::optional<TuningRecord> known = folder_.find(record.environment, record.problem);
      const auto offers = [&known](const GemmCandidate& candidate) {
        return kernel_name(candidate.config) == known->kernel;
      };
      if (known && std::any_of(candidates.begin(), candidates.end(), offers)) {
        return {TuningOutcome::kKnown, std::move(*known), ""};
      }
    }
    if (out_of_time()) return skipped("the time is up");
    return measured(device.value(), problem, plan, candidates, std::move(record));
  }

  TuningReport measured(const DeviceInfo& device, const GemmProblem& problem, const GemmPlan& plan,
                        const std::vector<GemmCandidate>& candidates, TuningRecord record) {
    // Of a D that a kernel of its own finishes, the product's part is measured.
    GemmProblem product = problem;
    product.d.dtype = plan.config.d;
    product.output_mode =
        plan.config.accumulates ? OutputMode::kAccumulate : OutputMode::kOverwrite;
    if (!plan.config.has_bias) product.bias = {};
    say("operands");
    GemmMeasurement measurement(device, product, options_.window_ms);
    say(fmt::format("compiling {} kernels", candidates.size()));
    GemmPlan measured_plan = plan_gemm(measurement.problem(), device.num_multiprocessors);
    std::list<PreparedGemm> kernels;
    std::vector<PreparedGemm*> by_index;
    for (const GemmCandidate& candidate : candidates) {
      PreparedGemm& kernel = kernels.emplace_back();
      set_product(measurement.problem(), candidate, measured_plan);
      set_plan(measured_plan, kernel);
      by_index.push_back(&kernel);
    }
    {
      std::vector<std::jthread> threads;
      for (const PreparedGemm& kernel : kernels) {
        // What fails here fails again, with its reason, where it is measured.
        threads.emplace_back([&] { (void)load_kernels(device, kernel); });
      }
    }
    say(fmt::format("checking {} kernels", candidates.size()));
    // All of them first: a window after a check would find the GPU rested.
    std::vector<std::string> wrong(kernels.size());
    for (std::size_t i = 0; i < by_index.size(); ++i) {
      try {
        measurement.check(*by_index[i]);
      } catch (const std::exception& error) {
        wrong[i] = error.what();
      }
    }
    if (!wrong.front().empty()) return skipped(wrong.front());
    say(fmt::format("measuring {} kernels", candidates.size()));
    const FastestChoice choice = choose_fastest(
        kernels.size(),
        [&](std::size_t i) {
          if (!wrong[i].empty()) throw Error(ErrorCode::kInternal, wrong[i]);
          return measurement.microseconds(*by_index[i]);
        },
        [&] { return out_of_time(); });
    if (const std::string& failed = choice.candidates.front().failed; !failed.empty()) {
      return skipped(failed);
    }
    record.kernel = by_index[choice.chosen]->kernel;
    record.us = choice.candidates[choice.chosen].median();
    record.model_kernel = by_index.front()->kernel;
    record.model_us = choice.candidates.front().median();
    record.num_candidates = static_cast<int>(candidates.size());
    if (folder_.put(record) != WriteOutcome::kWritten) {
      return skipped(
          "the record could not be written: OCTAVO_CACHE_DIR must name a folder that can be");
    }
    return {TuningOutcome::kMeasured, std::move(record), ""};
  }

  std::span<const GemmProblem> problems_;
  const TuningOptions& options_;
  RecordFolder folder_;
  Clock::time_point begin_;
  std::size_t at_ = 0;
};

}  // namespace

Result<std::vector<TuningReport>> tune_gemms(std::span<const GemmProblem> problems,
                                             const TuningOptions& options) {
  if (!driver().ok()) return driver().error();
  if (Result<std::string> nvrtc = nvrtc_description(); !nvrtc.ok()) return nvrtc.error();
  Result<RecordFolder> folder = default_record_folder();
  if (!folder.ok()) return folder.error();
  std::vector<TuningReport> reports = Tuner(problems, options, folder.value()).run();
  forget_plans();
  return reports;
}

}  // namespace octavo::cuda
