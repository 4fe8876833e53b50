// SPDX-License-Identifier: Apache-2.0
// FP8 products on the GPU against cuBLASLt, interleaved in one run under sustained load.
// Writes a result file of the schema that all suites share. The rules it follows: METHOD.md.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cublaslt_gemm.hpp"
#include "cuda_device.hpp"
#include "gpu_gemm_inputs.hpp"
#include "gpu_gemm_report.hpp"
#include "measuring.hpp"
#include "nvml_sampler.hpp"
#include "octavo/octavo.hpp"

namespace {

using namespace octavo;
using namespace octavo::bench;
using nlohmann::json;

struct Options {
  std::string suite;
  std::string out;
  std::string commit;
  std::string cublaslt;
  std::string shapes = "all";
  std::vector<std::string> contenders;
  bool dirty = false;
  int num_rounds = 5;
  double window_ms = 120;
  double budget_s = 240;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

class ShapeRun {
 public:
  ShapeRun(const Gpu& gpu, const CublasLt* cublaslt, const DeviceBuffer& workspace,
           const Options& options, Shape shape)
      : gpu_(gpu),
        cublaslt_(cublaslt),
        workspace_(workspace),
        options_(options),
        shape_(shape),
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
      fmt::print(stderr, "{} {:24} ", text_of(shape_), kind->name);
      std::fflush(stderr);
      try {
        prepare(contender);
        fmt::print(stderr, "right: {} {}\n", contender.error.dump(), contender.kernel);
      } catch (const std::exception& error) {
        contender.graph.reset();
        contender.skipped_because = error.what();
        fmt::print(stderr, "LEFT OUT: {}\n", error.what());
      }
      contenders.push_back(std::move(contender));
    }
    measure(contenders);
    return contenders;
  }

 private:
  static constexpr std::uint64_t kSeed = 2026;

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
    contender.kernel = octavo_product(sets_.front(), kind).kernel;
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
      cublasLtMatmulAlgo_t algorithm;
      std::unique_ptr<Graph> graph;
      double us = 0;
    };
    constexpr double kTryMs = 20;
    constexpr int kTries = 3;
    std::vector<Candidate> candidates;
    std::string refused = "the heuristic offers no algorithm";
    const auto offered = product.candidates(operands_of(sets_.front(), contender.kind->recipe));
    for (const cublasLtMatmulAlgo_t& algorithm : offered) {
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
      candidates[i].us = quantile(us[i], 0.5);
      if (candidates[i].us < candidates[best].us) best = i;
    }
    product.use(candidates[best].algorithm);
    return fmt::format("{} (candidate {} of {})", product.algorithm_text(), best + 1,
                       candidates.size());
  }

  // One launch for each input set.
  std::unique_ptr<Graph> graph_of(const std::function<void(const InputSet&)>& enqueue) const {
    return std::make_unique<Graph>(gpu_, [&] {
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

  [[nodiscard]] double window_us(const Graph& graph, double ms) const {
    const std::int64_t num_replays = replays_for(ms, graph.replay_ms(1));
    return us_of(graph.replay_ms(num_replays), num_replays);
  }

  // Throws if the product is wrong.
  void check(Contender& contender) const {
    const ContenderKind& kind = *contender.kind;
    constexpr unsigned char kPoison = 0xFF;  // BF16 NaN
    const auto product_of = [&](const InputSet& set) {
      gpu_.fill(set.d.address(), kPoison, set.d.bytes());
      contender.enqueue(set);
      gpu_.wait();
      return sample_.download(gpu_, set);
    };
    const std::vector<std::uint16_t> got = product_of(sets_.front());
    const ErrorMetrics metrics = sample_.error_of(got, kind.recipe);
    contender.error = {{"relative_frobenius", metrics.relative_frobenius},
                       {"num_compared", metrics.num_elements}};
    if (kind.maker == Maker::kOctavo) {
      const std::vector<std::uint16_t> expected = sample_.emulated(kind.recipe, kind.accumulation);
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

  // A B C, C B A, ...: the GPU's slow drift (heat, power) meets every contender alike.
  void measure(std::vector<Contender>& contenders) const {
    constexpr double kLoadMs = 300;
    std::vector<Contender*> timed;
    Contender* yardstick = nullptr;
    for (Contender& contender : contenders) {
      if (contender.graph == nullptr) continue;
      timed.push_back(&contender);
      if (contender.kind->name == std::string_view(kYardstick)) yardstick = &contender;
    }
    const auto guarded = [this](Contender& contender, const auto& work) {
      if (!contender.skipped_because.empty()) return;
      try {
        work();
      } catch (const std::exception& error) {
        contender.skipped_because = error.what();
        contender.us.clear();
        fmt::print(stderr, "{} {:24} LEFT OUT: {}\n", text_of(shape_), contender.kind->name,
                   error.what());
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
    if (yardstick != nullptr) {
      guarded(*yardstick, [&] {
        const double windows = std::ceil(kLoadMs / options_.window_ms);
        for (int i = 0; i < static_cast<int>(windows); ++i) {
          (void)yardstick->graph->replay_ms(yardstick->num_replays);
        }
      });
    }
    for (int round = 0; round < options_.num_rounds; ++round) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        Contender& contender = *timed[round % 2 == 0 ? i : timed.size() - 1 - i];
        guarded(contender, [&] {
          const Clock::time_point begin = Clock::now();
          const double ms = contender.graph->replay_ms(contender.num_replays);
          contender.windows.push_back({begin, Clock::now()});
          contender.us.push_back(us_of(ms, contender.num_replays));
        });
      }
    }
  }

  const Gpu& gpu_;
  const CublasLt* cublaslt_;
  const DeviceBuffer& workspace_;
  const Options& options_;
  Shape shape_;
  HostOperands host_;
  SampledProduct sample_;
  std::vector<InputSet> sets_;
};

std::string today() {
  const std::time_t now = std::time(nullptr);
  std::array<char, 16> text{};
  std::tm parts{};
  gmtime_r(&now, &parts);
  std::strftime(text.data(), text.size(), "%Y-%m-%d", &parts);
  return text.data();
}

void write(const std::string& path, const json& result) {
  std::ofstream file(path);
  file << result.dump(1) << '\n';
  file.close();
  if (!file) {
    throw Error(ErrorCode::kIo, path +
                                    ": the result could not be written. Give --out a path that "
                                    "can be.");
  }
}

std::vector<Shape> shapes_of(const json& suite, const std::string& which) {
  std::vector<Shape> shapes;
  for (const json& problem : suite.at("problems")) {
    const Shape shape{problem.at("m"), problem.at("n"), problem.at("k")};
    if (problem.at("op") != "gemm" || std::min({shape.m, shape.n, shape.k}) < 1) {
      throw Error(ErrorCode::kBadFile, "a problem of the suite is no gemm of at least 1x1x1: " +
                                           problem.dump() + ". Correct the suite.");
    }
    if (which == "all" || (which == "large") == (shape.m >= kLargeM)) shapes.push_back(shape);
  }
  return shapes;
}

std::vector<const ContenderKind*> kinds_of(const std::vector<std::string>& names) {
  std::vector<const ContenderKind*> kinds;
  for (const ContenderKind& kind : kKinds) {
    const bool wanted = std::find(names.begin(), names.end(), kind.name) != names.end();
    if (names.empty() || wanted || kind.name == std::string_view(kYardstick)) {
      kinds.push_back(&kind);
    }
  }
  return kinds;
}

int run(const Options& options, const std::string& command) {
  const Clock::time_point begin = Clock::now();
  std::ifstream file(options.suite);
  const json suite = json::parse(file);
  const std::vector<Shape> shapes = shapes_of(suite, options.shapes);
  const Gpu gpu;
  const NvmlSampler sampler(gpu.bus_id());
  std::optional<CublasLt> cublaslt;
  try {
    cublaslt.emplace(options.cublaslt);
  } catch (const Error& error) {
    fmt::print(stderr, "NO YARDSTICK: {}\n", error.what());
  }
  const DeviceBuffer workspace(gpu, CublasLtProduct::kWorkspaceBytes);
  json result = {{"schema", 1},
                 {"date", today()},
                 {"commit", options.commit},
                 {"dirty", options.dirty},
                 {"machine",
                  {{"gpu", gpu.name()},
                   {"driver", sampler.driver()},
                   {"cuda", gpu.cuda_version()},
                   {"cublaslt", cublaslt.has_value() ? json(cublaslt->version()) : json()},
                   {"cpu", cpu_info().model},
                   {"power_limit_w", known(sampler.power_limit_w(), sampler.power_limit_w() > 0)},
                   {"sm_clock_mhz", nullptr},
                   {"power_w", nullptr}}},
                 {"suite", suite.at("suite")},
                 {"command", command},
                 {"method", "bench/METHOD.md, section GPU products"},
                 {"rounds", options.num_rounds},
                 {"window_ms", options.window_ms},
                 {"rows", json::array()},
                 {"not_measured", json::array()},
                 {"summary", json::array()}};
  fmt::print(stderr, "{}\n", result.at("machine").dump());
  write(options.out, result);
  std::vector<TimeWindow> windows;
  int status = 0;
  for (const Shape shape : shapes) {
    const double used_s = seconds_since(begin);
    if (status != 0 || used_s > options.budget_s) {
      result["not_measured"].push_back({{"m", shape.m}, {"n", shape.n}, {"k", shape.k}});
      fmt::print(stderr, "{} not measured\n", text_of(shape));
      continue;
    }
    try {
      ShapeRun shape_run(gpu, cublaslt.has_value() ? &*cublaslt : nullptr, workspace, options,
                         shape);
      const std::vector<Contender> contenders = shape_run.run(kinds_of(options.contenders));
      for (json& row : rows_of(shape, shape_run.num_sets(), contenders, sampler)) {
        result["rows"].push_back(std::move(row));
      }
      for (const Contender& contender : contenders) {
        windows.insert(windows.end(), contender.windows.begin(), contender.windows.end());
      }
      gpu.wait();  // an error that stays with the context shows here
      fmt::print(stderr, "{} took {:.1f} s\n", text_of(shape), seconds_since(begin) - used_s);
    } catch (const std::exception& error) {
      fmt::print(stderr, "{} {}\n", text_of(shape), error.what());
      status = 1;
    }
    const ClockAndPower load = sampler.medians(windows);
    result["machine"]["sm_clock_mhz"] = known(load.sm_clock_mhz, load.num_samples > 0);
    result["machine"]["power_w"] = known(load.power_w, load.num_samples > 0);
    result["summary"] = summary_of(result.at("rows"));
    // After every shape, for a run may be cut off.
    write(options.out, result);
  }
  write(options.out, result);
  print_summary(result.at("summary"));
  fmt::print(stderr, "{}, {:.0f} s\n", options.out, seconds_since(begin));
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  std::vector<std::string> names;
  for (const ContenderKind& kind : kKinds) names.emplace_back(kind.name);
  CLI::App app("FP8 products on the GPU against cuBLASLt");
  app.add_option("suite", options.suite, "suite file")->required()->check(CLI::ExistingFile);
  app.add_option("--out", options.out, "result file")->required();
  app.add_option("--commit", options.commit, "commit that was built, for the result file")
      ->required();
  app.add_flag("--dirty", options.dirty, "sources differed from that commit");
  app.add_option("--shapes", options.shapes, "large: M of 1024 and more")
      ->check(CLI::IsMember({"large", "small", "all"}));
  app.add_option("--contenders", options.contenders,
                 "separated by commas; the yardstick always runs too")
      ->delimiter(',')
      ->check(CLI::IsMember(names));
  app.add_option("--rounds", options.num_rounds, "windows of each contender")
      ->check(CLI::Range(1, 1000));
  app.add_option("--window-ms", options.window_ms, "shortest window")
      ->check(CLI::Range(1.0, 10000.0));
  app.add_option("--budget-s", options.budget_s, "no shape is begun later than this");
  app.add_option("--cublaslt", options.cublaslt, "file of the cuBLASLt library");
  CLI11_PARSE(app, argc, argv);
  std::string command = "gpu_gemm_bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    return run(options, command);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
