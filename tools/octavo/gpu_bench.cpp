// SPDX-License-Identifier: Apache-2.0
#include "gpu_bench.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cublaslt_gemm.hpp"
#include "gpu_bench_inputs.hpp"
#include "gpu_bench_report.hpp"
#include "measure/gpu_stream.hpp"
#include "measure/nvml_sampler.hpp"
#include "measure/today.hpp"
#include "octavo/octavo.hpp"
#include "options.hpp"
#include "result_file.hpp"
#include "tensor_file.hpp"

namespace octavo::cli {
namespace {

double seconds_since(measure::Clock::time_point begin) {
  return std::chrono::duration<double>(measure::Clock::now() - begin).count();
}

class ShapeRun {
 public:
  ShapeRun(const measure::GpuStream& gpu, const CublasLt* cublaslt, const DeviceMemory& workspace,
           const GpuBenchOptions& options, BenchShape shape, Session& session)
      : gpu_(gpu),
        cublaslt_(cublaslt),
        workspace_(workspace),
        options_(options),
        shape_(shape),
        session_(session),
        host_(shape, kSeed),
        sample_(host_, kSeed + 1),
        sets_(make_input_sets(gpu, host_)) {}

  [[nodiscard]] std::size_t num_sets() const { return sets_.size(); }

  // A contender that fails is left out, with what it said; the others go on.
  std::vector<Contender> run(const std::vector<const ContenderKind*>& kinds) {
    std::vector<Contender> contenders;
    for (const ContenderKind* kind : kinds) {
      Contender contender;
      contender.kind = kind;
      session_.progress(fmt::format("{} {}: preparing, checking", text_of(shape_), kind->name));
      try {
        prepare(contender);
      } catch (const std::exception& error) {
        leave_out(contender, error.what());
      }
      contenders.push_back(std::move(contender));
    }
    session_.progress(fmt::format("{}: measuring", text_of(shape_)));
    measure(contenders);
    session_.progress("");
    return contenders;
  }

 private:
  static constexpr std::uint64_t kSeed = 2026;

  void leave_out(Contender& contender, const char* why) const {
    contender.graph.reset();
    contender.us.clear();
    contender.skipped_because = why;
    session_.clear_progress();
    session_.text(
        fmt::format("{} {:24} LEFT OUT: {}\n", text_of(shape_), contender.kind->name, why));
  }

  void prepare(Contender& contender) {
    if (contender.kind->maker == Maker::kOctavo) {
      prepare_octavo(contender);
    } else {
      prepare_cublaslt(contender);
    }
    check(contender);
    contender.graph = graph_of(contender.enqueue);
  }

  // NOTE: called before a graph is captured, so that kernels are compiled and loaded by then.
  void prepare_octavo(Contender& contender) {
    const ContenderKind& kind = *contender.kind;
    contender.enqueue = [this, &kind](const InputSet& set) { (void)octavo_product(set, kind); };
    const GemmReport report = octavo_product(sets_.front(), kind);
    contender.kernel = report.kernel;
    contender.num_splits = report.num_splits;
    gpu_.wait();
  }

  GemmReport octavo_product(const InputSet& set, const ContenderKind& kind) const {
    return gemm(device_problem(set, shape_, kind.recipe, kind.accumulation),
                {.backend = "cuda", .stream = gpu_.stream()});
  }

  static CublasLtOperands operands_of(const InputSet& set, ScaleRecipe recipe) {
    const std::size_t r = HostOperands::index_of(recipe);
    return {set.a.data(), set.b.data(), static_cast<const float*>(set.a_scales[r].data()),
            static_cast<const float*>(set.b_scales[r].data()), set.d.data()};
  }

  void prepare_cublaslt(Contender& contender) {
    if (cublaslt_ == nullptr) throw Error(ErrorCode::kEnvironment, "cuBLASLt was not loaded");
    const ContenderKind& kind = *contender.kind;
    const bool blocks = kind.recipe == ScaleRecipe::kBlock;
    // Its 128x128 scales have rows of a multiple of four.
    if (constexpr std::int64_t kScaleRow = 4;
        blocks && num_scale_blocks(shape_.k) % kScaleRow != 0) {
      throw Error(ErrorCode::kUnsupported, "K/128 is no multiple of 4: the scales would be padded");
    }
    auto product = std::make_shared<CublasLtProduct>(
        *cublaslt_, shape_.m, shape_.n, shape_.k,
        blocks ? CublasLtScales::kBlock : CublasLtScales::kTensor,
        kind.accumulation == Accumulation::kFast ? CublasLtSum::kFast : CublasLtSum::kDefault,
        workspace_.data());
    contender.enqueue = [this, product, &kind](const InputSet& set) {
      product->enqueue(operands_of(set, kind.recipe), gpu_.stream());
    };
    contender.kernel = choose_algorithm(*product, contender);
  }

  // The quickest of what the heuristic offers, each timed at this shape under load.
  std::string choose_algorithm(CublasLtProduct& product, const Contender& contender) const {
    struct Candidate {
      CublasLtAlgorithm algorithm;
      std::unique_ptr<measure::Graph> graph;
      double us = 0;
    };
    constexpr double kTryMs = 60;
    constexpr int kTries = 3;
    std::vector<Candidate> candidates;
    std::string refused = "the heuristic offers no algorithm";
    const auto offered = product.candidates(operands_of(sets_.front(), contender.kind->recipe));
    for (const CublasLtAlgorithm& algorithm : offered) {
      product.use(algorithm);
      try {
        contender.enqueue(sets_.front());
        gpu_.wait();
        candidates.push_back({algorithm, graph_of(contender.enqueue)});
        candidates.back().us = window_us(*candidates.back().graph, kTryMs);
      } catch (const std::exception& error) {
        refused = error.what();
      }
    }
    if (candidates.empty()) throw Error(ErrorCode::kUnsupported, refused);
    // The first look met a GPU that was still speeding up or slowing down; these meet it alike.
    std::vector<std::vector<double>> us(candidates.size());
    for (int attempt = 0; attempt < kTries; ++attempt) {
      for (std::size_t i = 0; i < candidates.size(); ++i) {
        const std::size_t at = attempt % 2 == 0 ? i : candidates.size() - 1 - i;
        us[at].push_back(window_us(*candidates[at].graph, kTryMs));
      }
    }
    std::size_t best = 0;
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      candidates[i].us = measure::quantile(us[i], 0.5);
      if (candidates[i].us < candidates[best].us) best = i;
    }
    product.use(candidates[best].algorithm);
    return fmt::format("{} (candidate {} of {})", product.algorithm_text(), best + 1,
                       candidates.size());
  }

  // One launch for each input set.
  std::unique_ptr<measure::Graph> graph_of(
      const std::function<void(const InputSet&)>& enqueue) const {
    return std::make_unique<measure::Graph>(gpu_, [&] {
      for (const InputSet& set : sets_) enqueue(set);
    });
  }

  [[nodiscard]] double us_of(double ms, std::int64_t num_replays) const {
    return ms * 1e3 / static_cast<double>(num_replays) / static_cast<double>(sets_.size());
  }

  [[nodiscard]] static std::int64_t replays_for(double ms, double replay_ms) {
    constexpr double kShortestMs = 1e-3;
    return std::max<std::int64_t>(
        1, static_cast<std::int64_t>(std::ceil(ms / std::max(kShortestMs, replay_ms))));
  }

  [[nodiscard]] double window_us(const measure::Graph& graph, double ms) const {
    const std::int64_t num_replays = replays_for(ms, graph.replay_ms(1));
    (void)graph.replay_ms(num_replays);  // a lead, as in measure()
    return us_of(graph.replay_ms(num_replays), num_replays);
  }

  // Throws if the product is wrong.
  void check(Contender& contender) const {
    const ContenderKind& kind = *contender.kind;
    constexpr unsigned char kPoison = 0xFF;  // BF16 NaN
    const auto product_of = [&](const InputSet& set) {
      gpu_.fill(set.d.data(), kPoison, set.d.num_bytes());
      contender.enqueue(set);
      gpu_.wait();
      return sample_.download(set);
    };
    const std::vector<std::uint16_t> got = product_of(sets_.front());
    const ErrorMetrics metrics = sample_.error_of(got, kind.recipe);
    contender.error = {{"relative_frobenius", metrics.relative_frobenius},
                       {"num_compared", metrics.num_elements}};
    if (kind.maker == Maker::kOctavo) {
      const std::vector<std::uint16_t> expected =
          sample_.emulated(kind.recipe, kind.accumulation, contender.num_splits);
      const std::int64_t num_different = count_different(got, expected);
      contender.error["num_different_from_emulation"] = num_different;
      contender.error["num_compared_with_emulation"] = expected.size();
      if (num_different != 0) {
        throw Error(ErrorCode::kUnsupported,
                    fmt::format("WRONG: {} of {} elements differ from the emulated tensor core "
                                "(relative error {:.3g}, {} not finite), kernel {}",
                                num_different, expected.size(), metrics.relative_frobenius,
                                metrics.num_not_finite, contender.kernel));
      }
      if (count_different(product_of(sets_.back()), expected) != 0) {
        throw Error(ErrorCode::kUnsupported, "WRONG: another input set gives other bits");
      }
    }
    // One tensor-core accumulator through K = 16,384 gives 0.0035; scales in the wrong places,
    // which lie within a factor of two, about 0.3.
    constexpr double kMaxError = 0.05;
    if (metrics.num_not_finite != 0 || !(metrics.relative_frobenius < kMaxError)) {
      throw Error(
          ErrorCode::kUnsupported,
          fmt::format("WRONG: relative error {:.3g}, {} elements not finite, kernel {}",
                      metrics.relative_frobenius, metrics.num_not_finite, contender.kernel));
    }
  }

  static std::int64_t count_different(const std::vector<std::uint16_t>& got,
                                      const std::vector<std::uint16_t>& expected) {
    std::int64_t count = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) count += got[i] != expected[i] ? 1 : 0;
    return count;
  }

  // A B C, C B A, ...: the GPU's slow drift (heat, power) meets every contender alike. Each window
  // comes after a lead of the same length and the same work: the clock follows the power of the
  // last 100 ms or so, and without a lead that is the contender before.
  void measure(std::vector<Contender>& contenders) const {
    std::vector<Contender*> timed;
    for (Contender& contender : contenders) {
      if (contender.graph != nullptr) timed.push_back(&contender);
    }
    const auto guarded = [this](Contender& contender, const auto& work) {
      if (!contender.skipped_because.empty()) return;
      try {
        work();
      } catch (const std::exception& error) {
        leave_out(contender, error.what());
      }
    };
    for (Contender* contender : timed) {
      guarded(*contender, [&] {
        const std::int64_t first_guess =
            replays_for(options_.window_ms, contender->graph->replay_ms(1));
        const double ms = contender->graph->replay_ms(first_guess);
        contender->num_replays =
            replays_for(options_.window_ms, ms / static_cast<double>(first_guess));
      });
    }
    for (int round = 0; round < options_.num_rounds; ++round) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        Contender& contender = *timed[round % 2 == 0 ? i : timed.size() - 1 - i];
        guarded(contender, [&] {
          (void)contender.graph->replay_ms(contender.num_replays);
          const measure::Clock::time_point begin = measure::Clock::now();
          const double ms = contender.graph->replay_ms(contender.num_replays);
          contender.windows.push_back({begin, measure::Clock::now()});
          contender.us.push_back(us_of(ms, contender.num_replays));
        });
      }
    }
  }

  const measure::GpuStream& gpu_;
  const CublasLt* cublaslt_;
  const DeviceMemory& workspace_;
  const GpuBenchOptions& options_;
  BenchShape shape_;
  Session& session_;
  HostOperands host_;
  SampledProduct sample_;
  std::vector<InputSet> sets_;
};

void refuse(const std::string& where, const std::string& what) {
  throw UsageError(fmt::format(
      "bench: {} has {}; on a GPU the shapes of a suite are measured, each with every contender's "
      "own recipe, and nothing else of a problem. Leave it out, or name --backend cpu.",
      where, what));
}

// Each shape once, however many recipes the suite names for it.
std::vector<BenchShape> shapes_of(const BenchSuite& suite, const std::string& which) {
  std::vector<BenchShape> shapes;
  for (std::size_t i = 0; i < suite.problems.size(); ++i) {
    const GemmRequest& request = suite.problems[i].request;
    const std::string where = fmt::format("problems[{}]", i);
    if (request.batch != 0) refuse(where, "a batch");
    if (request.bias) refuse(where, "a bias");
    if (request.accumulate) refuse(where, "an output to add to");
    if (request.num_splits != kAutomaticSplits) refuse(where, "splits");
    if (suite.problems[i].numerics != Numerics::kDefault) refuse(where, "numerics");
    const BenchShape shape{request.m, request.n, request.k};
    const bool known_already = std::find(shapes.begin(), shapes.end(), shape) != shapes.end();
    if (known_already) continue;
    if (which == "all" || (which == "large") == (shape.m >= kLargeM)) shapes.push_back(shape);
  }
  return shapes;
}

std::vector<const ContenderKind*> kinds_of(const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    const bool exists = std::any_of(kKinds.begin(), kKinds.end(),
                                    [&](const ContenderKind& kind) { return kind.name == name; });
    if (exists) continue;
    std::string known_names;
    for (const ContenderKind& kind : kKinds) {
      known_names += std::string(known_names.empty() ? "" : ", ") + kind.name;
    }
    throw UsageError(
        fmt::format("--contenders: \"{}\" was given; it must be some of {}, with "
                    "commas between.",
                    name, known_names));
  }
  std::vector<const ContenderKind*> kinds;
  for (const ContenderKind& kind : kKinds) {
    const bool wanted = std::find(names.begin(), names.end(), kind.name) != names.end();
    if (names.empty() || wanted || kind.name == std::string_view(kYardstick)) {
      kinds.push_back(&kind);
    }
  }
  return kinds;
}

}  // namespace

void bench_on_gpu(const BenchSuite& suite, const GpuBenchOptions& options,
                  const std::string& command, Session& session) {
  const measure::Clock::time_point begin = measure::Clock::now();
  const std::vector<const ContenderKind*> kinds = kinds_of(options.contenders);
  const std::vector<BenchShape> shapes = shapes_of(suite, options.shapes);
  for (const BackendInfo& info : list_backends()) {
    if (info.name == "cuda" && !info.available) {
      throw Error(ErrorCode::kEnvironment, info.unavailable_because);
    }
  }
  const measure::GpuStream gpu;
  const measure::NvmlSampler sampler(gpu.bus_id());
  const GpuDescription description = gpus().at(static_cast<std::size_t>(measure::kGpu.ordinal));
  std::optional<CublasLt> cublaslt;
  try {
    cublaslt.emplace(options.cublaslt);
  } catch (const Error& error) {
    session.text(fmt::format("no yardstick: {}\n", error.what()));
  }
  const DeviceMemory workspace(measure::kGpu, CublasLtProduct::kWorkspaceBytes);
  const bool given = !options.commit.empty();
  Json result = {{"schema", kResultSchema},
                 {"date", measure::today()},
                 {"commit", given ? Json(options.commit) : commit_here()},
                 {"dirty", given ? Json(options.dirty) : dirty_here()},
                 {"machine",
                  {{"gpu", description.name},
                   {"driver", description.driver},
                   {"cuda", description.cuda},
                   {"nvrtc", description.nvrtc},
                   {"cublaslt", cublaslt.has_value() ? Json(cublaslt->version()) : Json()},
                   {"cpu", cpu_info().model},
                   {"cores", cpu_info().num_cores},
                   {"power_limit_w", known(sampler.power_limit_w(), sampler.power_limit_w() > 0)},
                   {"sm_clock_mhz", nullptr},
                   {"power_w", nullptr}}},
                 {"suite", suite.name},
                 {"command", command},
                 {"method", "bench/METHOD.md, section GPU products"},
                 {"rounds", options.num_rounds},
                 {"window_ms", options.window_ms},
                 {"rows", Json::array()},
                 {"not_measured", Json::array()},
                 {"summary", Json::array()}};
  // Written before the hour of measuring, so that a path that cannot be written is noticed, and
  // after every shape, for a run may be cut off.
  const auto write = [&] {
    if (!options.out.empty()) write_result(result, options.out);
  };
  write();
  std::vector<measure::TimeWindow> windows;
  bool all_right = true;
  bool broken = false;
  for (const BenchShape shape : shapes) {
    const double used_s = seconds_since(begin);
    if (broken || used_s > options.budget_s) {
      result["not_measured"].push_back({{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
      session.text(fmt::format("{} not measured\n", text_of(shape)));
      continue;
    }
    try {
      ShapeRun shape_run(gpu, cublaslt.has_value() ? &*cublaslt : nullptr, workspace, options,
                         shape, session);
      const std::vector<Contender> contenders = shape_run.run(kinds);
      for (Json& row : rows_of(shape, shape_run.num_sets(), contenders, sampler)) {
        session.text(line_of(row));
        result["rows"].push_back(std::move(row));
      }
      for (const Contender& contender : contenders) {
        windows.insert(windows.end(), contender.windows.begin(), contender.windows.end());
        const bool ours = contender.kind->maker == Maker::kOctavo;
        all_right = all_right && (!ours || contender.skipped_because.empty());
      }
      gpu.wait();  // an error that stays with the context shows here
    } catch (const std::exception& error) {
      session.text(fmt::format("{} {}\n", text_of(shape), error.what()));
      broken = true;
    }
    const measure::ClockAndPower load = sampler.medians(windows);
    result["machine"]["sm_clock_mhz"] = known(load.sm_clock_mhz, load.num_samples > 0);
    result["machine"]["power_w"] = known(load.power_w, load.num_samples > 0);
    result["summary"] = summary_of(result.at("rows"));
    write();
  }
  write();
  session.text(summary_text(result.at("summary")));
  session.document(std::move(result));
  if (broken || !all_right) session.finish_with(ExitCode::kCheckFailed);
}

}  // namespace octavo::cli
