// SPDX-License-Identifier: Apache-2.0
// Grouped block-scaled products on the GPU against one dense product and against the rate of
// memory, interleaved in one run. Writes a result file of the schema that all suites share. The
// rules it follows: METHOD.md, section Grouped products.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "bench/gpu_result.hpp"
#include "cuda/driver.hpp"
#include "cuda/grouped_launch.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "measure/gpu_stream.hpp"
#include "measure/nvml_sampler.hpp"
#include "measure/quantile.hpp"
#include "octavo/octavo.hpp"

namespace {

using namespace octavo;
using namespace octavo::measure;
using nlohmann::json;

struct Options : bench::GpuOptions {
  std::string only;  // cases whose name has it
  bool every_candidate = false;
};

// What a case is held against.
enum class Target {
  kDense,          // one product of as many rows in all
  kDenseOrMemory,  // the slower of: a dense product of the rows rounded up to 64 for each group, or
                   // all bytes once at the rate of memory
  kMemory,         // weights at the rate of memory
};

constexpr double kMemoryBytesPerUs = 4.3e6;  // a copy's, read and written (H200)

struct Case {
  std::int64_t groups;
  std::int64_t rows;  // of a group on average
  double spread;      // from rows * (1 - spread) to rows * (1 + spread)
  std::int64_t n;
  std::int64_t k;
  Target target;

  [[nodiscard]] std::int64_t rows_of(std::int64_t group) const {
    // All residues once in 64 groups, in no order.
    constexpr std::int64_t kSteps = 64;
    constexpr std::int64_t kStride = 37;
    const double at = (static_cast<double>(group * kStride % kSteps) + 0.5) / kSteps;
    const double factor = 1 + spread * (2 * at - 1);
    return std::max<std::int64_t>(1, std::llround(static_cast<double>(rows) * factor));
  }
  [[nodiscard]] bool masked() const { return target == Target::kMemory; }
  [[nodiscard]] std::int64_t capacity() const { return (rows_of_largest() + 63) / 64 * 64; }
  [[nodiscard]] std::int64_t rows_of_largest() const {
    std::int64_t most = 0;
    for (std::int64_t g = 0; g < groups; ++g) most = std::max(most, rows_of(g));
    return most;
  }
  [[nodiscard]] std::int64_t total(std::int64_t unit) const {
    std::int64_t sum = 0;
    for (std::int64_t g = 0; g < groups; ++g) sum += (rows_of(g) + unit - 1) / unit * unit;
    return sum;
  }
  // Of the dense product; a multiple of 4, so that it reads its scales as the grouped one does.
  [[nodiscard]] std::int64_t dense_rows() const {
    return target == Target::kDense ? (total(1) + 3) / 4 * 4 : total(64);
  }
  // All that must move once: weights, rows, results, scales.
  [[nodiscard]] double bytes() const {
    const auto m = static_cast<double>(total(1));
    return weight_bytes() + m * static_cast<double>(k) + 2 * m * static_cast<double>(n) +
           4 * m * static_cast<double>(k) / kScaleBlock;
  }
  [[nodiscard]] double weight_bytes() const { return static_cast<double>(groups * n * k); }
  [[nodiscard]] double operations() const {
    return 2 * static_cast<double>(total(1)) * static_cast<double>(n) * static_cast<double>(k);
  }
  [[nodiscard]] std::string name() const {
    return fmt::format("{} {} x {} rows, N {}, K {}",
                       masked()                   ? "masked"
                       : target == Target::kDense ? "large"
                                                  : "small",
                       groups, rows, n, k);
  }
};

std::vector<Case> all_cases() {
  constexpr std::array<std::array<std::int64_t, 2>, 2> kLayers{{{4096, 7168}, {7168, 2048}}};
  std::vector<Case> cases;
  for (const auto& [n, k] : kLayers) {
    cases.push_back({4, 8192, 0.4, n, k, Target::kDense});
    cases.push_back({8, 5120, 0.2, n, k, Target::kDense});
    for (const std::int64_t groups : {8, 32, 256}) {
      for (const std::int64_t rows : {16, 64, 128, 256, 512, 1024}) {
        cases.push_back({groups, rows, 0.5, n, k, Target::kDenseOrMemory});
      }
    }
    for (const std::int64_t rows : {1, 16, 64}) {
      cases.push_back({32, rows, 0, n, k, Target::kMemory});
    }
    cases.push_back({32, 32, 1, n, k, Target::kMemory});
  }
  return cases;
}

struct InputSet {
  DeviceMemory b;
  DeviceMemory b_scale;
};

struct Contender {
  std::string name;
  std::string kernel;
  std::string skipped_because;  // empty if it is timed
  std::unique_ptr<Graph> graph;
  std::int64_t num_replays = 1;
  std::vector<double> us;
  std::vector<TimeWindow> windows;
};

class CaseRun {
 public:
  CaseRun(const GpuStream& gpu, const Options& options, const Case& what)
      : gpu_(gpu), options_(options), case_(what), k_blocks_(num_scale_blocks(what.k)) {
    // Values that both operands are cut out of, at places of their own.
    constexpr std::size_t kPool = std::size_t{1} << 22U;
    std::mt19937_64 random(kSeed);
    std::normal_distribution<float> normal(0, 100);
    pool_.resize(kPool);
    for (std::uint8_t& code : pool_) {
      code = static_cast<std::uint8_t>(encode(DType::kE4M3, normal(random)));
    }
    std::uniform_real_distribution<float> exponent(-0.5F, 0.5F);
    scale_pool_.resize(kPool / kScaleBlock);
    for (float& scale : scale_pool_) scale = std::exp2(exponent(random));
    DeviceMemory pool(kGpu, kPool);
    pool.copy_from_host(pool_.data(), kPool);
    DeviceMemory scale_pool(kGpu, scale_pool_.size() * sizeof(float));
    scale_pool.copy_from_host(scale_pool_.data(), scale_pool.num_bytes());
    // A dense product has the rows of the groups rounded up.
    rows_ = case_.masked() ? case_.groups * case_.capacity() : case_.total(1);
    buffer_rows_ = std::max((rows_ + 3) / 4 * 4, case_.total(64));
    a_ = DeviceMemory(kGpu, static_cast<std::size_t>(buffer_rows_ * case_.k));
    a_scale_ = DeviceMemory(kGpu, static_cast<std::size_t>(buffer_rows_ * k_blocks_ * 4));
    d_ = DeviceMemory(kGpu, static_cast<std::size_t>(buffer_rows_ * case_.n * 2));
    repeat(pool, a_);
    repeat(scale_pool, a_scale_);
    // Four times the second-level cache.
    constexpr double kBytesOfSets = 240e6;
    const int num_sets =
        std::max(1, static_cast<int>(std::ceil(kBytesOfSets / case_.weight_bytes())));
    for (int i = 0; i < num_sets; ++i) {
      InputSet set{DeviceMemory(kGpu, static_cast<std::size_t>(case_.groups * case_.n * case_.k)),
                   DeviceMemory(kGpu, static_cast<std::size_t>(case_.groups * b_scales() * 4))};
      repeat(pool, set.b);
      repeat(scale_pool, set.b_scale);
      sets_.push_back(std::move(set));
    }
    std::vector<std::int32_t> ends;
    std::vector<std::int32_t> counts;
    std::int64_t end = 0;
    for (std::int64_t g = 0; g < case_.groups; ++g) {
      end += case_.rows_of(g);
      ends.push_back(static_cast<std::int32_t>(end));
      counts.push_back(static_cast<std::int32_t>(case_.rows_of(g)));
    }
    ends_ = DeviceMemory(kGpu, ends.size() * sizeof(ends[0]));
    counts_ = DeviceMemory(kGpu, counts.size() * sizeof(counts[0]));
    ends_.copy_from_host(ends.data(), ends_.num_bytes());
    counts_.copy_from_host(counts.data(), counts_.num_bytes());
    gpu_.wait();
  }

  std::vector<Contender> run() {
    std::vector<Contender> contenders;
    contenders.push_back(prepared("octavo_grouped", [this](const InputSet& set) {
      return grouped_gemm(grouped(set), execution()).kernel;
    }));
    if (options_.every_candidate) {
      const cuda::DeviceInfo& device = cuda::device_info(kGpu.ordinal).value();
      for (const cuda::GemmCandidate& candidate :
           cuda::grouped_candidates(grouped(sets_.front()), device.num_multiprocessors)) {
        auto kernel = std::make_shared<cuda::PreparedGemm>();
        cuda::GemmPlan plan =
            cuda::plan_grouped(grouped(sets_.front()), device.num_multiprocessors);
        plan.config = candidate.config;
        cuda::set_plan(plan, *kernel);
        contenders.push_back(prepared(
            fmt::format("{}x{} cluster {} {}", candidate.config.tile_m, candidate.config.tile_n,
                        candidate.config.cluster_n, candidate.microseconds),
            [this, kernel, &device](const InputSet& set) {
              (void)cuda::launch_grouped(device, grouped(set), execution(), *kernel);
              return kernel->kernel;
            }));
      }
    }
    if (case_.target != Target::kMemory) {
      const std::int64_t rows = case_.dense_rows();
      contenders.push_back(prepared("octavo_dense", [this, rows](const InputSet& set) {
        return gemm(dense(set, rows), execution()).kernel;
      }));
    }
    measure(contenders);
    return contenders;
  }

  [[nodiscard]] std::size_t num_sets() const { return sets_.size(); }

 private:
  static constexpr std::uint64_t kSeed = 2026;

  [[nodiscard]] std::int64_t b_scales() const { return num_scale_blocks(case_.n) * k_blocks_; }
  [[nodiscard]] Execution execution() const { return {.backend = "cuda", .stream = gpu_.stream()}; }

  // Fills `to` with the values of `pool` again and again.
  void repeat(const DeviceMemory& pool, DeviceMemory& to) const {
    auto* const bytes = static_cast<std::byte*>(to.data());
    for (std::size_t done = 0; done < to.num_bytes();) {
      // Not whole pools, so that groups differ.
      const std::size_t some = std::min(pool.num_bytes() - 4096, to.num_bytes() - done);
      gpu_.copy(bytes + done, pool.data(), some);
      done += some;
    }
    gpu_.wait();
  }
  // The byte at `position` of what repeat() filled.
  [[nodiscard]] std::uint8_t code_at(std::size_t position) const {
    return pool_[position % (pool_.size() - 4096)];
  }
  [[nodiscard]] float scale_at(std::size_t position) const {
    return scale_pool_[position % (scale_pool_.size() - 1024)];
  }

  template <typename... Extents>
  static TensorView view(const DeviceMemory& memory, DType dtype, Extents... extents) {
    return make_view(static_cast<const void*>(memory.data()), dtype, {extents...}, kGpu);
  }

  // M-major scales of `rows` rows; the kernel reads them in place.
  [[nodiscard]] TensorView a_scale(std::int64_t rows) const {
    TensorView scale = view(a_scale_, DType::kF32, rows, k_blocks_);
    scale.strides = {1, buffer_rows_};
    return scale;
  }

  [[nodiscard]] GroupedGemmProblem grouped(const InputSet& set) {
    GroupedGemmProblem problem;
    problem.b = view(set.b, DType::kE4M3, case_.groups, case_.n, case_.k);
    problem.b_scale =
        view(set.b_scale, DType::kF32, case_.groups, num_scale_blocks(case_.n), k_blocks_);
    problem.recipe = ScaleRecipe::kBlock;
    if (case_.masked()) {
      problem.a = view(a_, DType::kE4M3, case_.groups, case_.capacity(), case_.k);
      problem.d =
          make_view(d_.data(), DType::kBF16, {case_.groups, case_.capacity(), case_.n}, kGpu);
      problem.a_scale = view(a_scale_, DType::kF32, case_.groups, case_.capacity(), k_blocks_);
      problem.group_rows = view(counts_, DType::kI32, case_.groups);
      problem.expected_rows = case_.rows;
    } else {
      const std::int64_t rows = (rows_ + 3) / 4 * 4;
      problem.a = view(a_, DType::kE4M3, rows, case_.k);
      problem.d = make_view(d_.data(), DType::kBF16, {rows, case_.n}, kGpu);
      problem.a_scale = a_scale(rows);
      problem.group_ends = view(ends_, DType::kI32, case_.groups);
    }
    return problem;
  }

  [[nodiscard]] GemmProblem dense(const InputSet& set, std::int64_t rows) {
    GemmProblem problem;
    problem.a = view(a_, DType::kE4M3, rows, case_.k);
    problem.b = view(set.b, DType::kE4M3, case_.n, case_.k);
    problem.d = make_view(d_.data(), DType::kBF16, {rows, case_.n}, kGpu);
    problem.recipe = ScaleRecipe::kBlock;
    problem.a_scale = a_scale(rows);
    problem.b_scale = view(set.b_scale, DType::kF32, num_scale_blocks(case_.n), k_blocks_);
    return problem;
  }

  template <typename Enqueue>
  Contender prepared(std::string name, const Enqueue& enqueue) {
    Contender contender;
    contender.name = std::move(name);
    try {
      constexpr unsigned char kPoison = 0xFF;  // BF16 NaN
      gpu_.fill(d_.data(), kPoison, d_.num_bytes());
      contender.kernel = enqueue(sets_.front());
      gpu_.wait();
      if (contender.name != "octavo_dense") check();
      contender.graph = std::make_unique<Graph>(gpu_, [&] {
        for (const InputSet& set : sets_) (void)enqueue(set);
      });
    } catch (const std::exception& error) {
      contender.skipped_because = error.what();
      fmt::print(stderr, "{} {} LEFT OUT: {}\n", case_.name(), contender.name, error.what());
    }
    return contender;
  }

  // The first and the last row of some groups must have the bits of the emulated tensor core.
  void check() const {
    const auto n = static_cast<std::size_t>(case_.n);
    const auto k = static_cast<std::size_t>(case_.k);
    const auto blocks = static_cast<std::size_t>(k_blocks_);
    std::size_t begin = 0;
    for (std::int64_t g = 0; g < case_.groups; ++g) {
      const auto rows = static_cast<std::size_t>(case_.rows_of(g));
      if (case_.masked()) begin = static_cast<std::size_t>(g * case_.capacity());
      if (g == 0 || g == case_.groups / 2 || g == case_.groups - 1) {
        for (const std::size_t row : {begin, begin + rows - 1}) check_row(row, g, n, k, blocks);
      }
      begin += rows;
    }
  }

  void check_row(std::size_t row, std::int64_t group, std::size_t n, std::size_t k,
                 std::size_t blocks) const {
    constexpr std::size_t kColumns = 256;  // the last
    const std::size_t first = n - kColumns;
    std::vector<std::uint8_t> a(k);
    std::vector<std::uint8_t> b(kColumns * k);
    std::vector<float> a_scale(blocks);
    std::vector<float> b_scale(kColumns / kScaleBlock * blocks);
    std::vector<std::uint16_t> want(kColumns);
    std::vector<std::uint16_t> got(kColumns);
    const auto g = static_cast<std::size_t>(group);
    for (std::size_t i = 0; i < k; ++i) a[i] = code_at(row * k + i);
    for (std::size_t i = 0; i < b.size(); ++i) b[i] = code_at((g * n + first) * k + i);
    for (std::size_t i = 0; i < blocks; ++i) {
      a_scale[i] = case_.masked() ? scale_at(row * blocks + i)
                                  : scale_at(i * static_cast<std::size_t>(buffer_rows_) + row);
    }
    for (std::size_t i = 0; i < b_scale.size(); ++i) {
      b_scale[i] = scale_at((g * n + first) / kScaleBlock * blocks + i);
    }
    const auto columns = static_cast<std::int64_t>(kColumns);
    GemmProblem problem;
    problem.a = make_view(static_cast<const void*>(a.data()), DType::kE4M3, {1, case_.k});
    problem.b = make_view(static_cast<const void*>(b.data()), DType::kE4M3, {columns, case_.k});
    problem.d = make_view(static_cast<void*>(want.data()), DType::kBF16, {1, columns});
    problem.recipe = ScaleRecipe::kBlock;
    problem.a_scale =
        make_view(static_cast<const void*>(a_scale.data()), DType::kF32, {1, k_blocks_});
    problem.b_scale = make_view(static_cast<const void*>(b_scale.data()), DType::kF32,
                                {columns / kScaleBlock, k_blocks_});
    (void)gemm(problem, {.backend = "cpu", .numerics = Numerics::kEmulated});
    d_.copy_to_host(got.data(), got.size() * 2, (row * n + first) * 2);
    if (got != want) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("WRONG: row {} of D differs from the emulated tensor core", row));
    }
  }

  // A B C, C B A, ..., each window after one of the same work that does not count (METHOD.md).
  void measure(std::vector<Contender>& contenders) const {
    std::vector<Contender*> timed;
    for (Contender& contender : contenders) {
      if (contender.graph == nullptr) continue;
      constexpr double kShortestMs = 1e-3;
      (void)contender.graph->replay_ms(3);
      const double ms = std::max(kShortestMs, contender.graph->replay_ms(3) / 3);
      contender.num_replays =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(options_.window_ms / ms)));
      timed.push_back(&contender);
    }
    for (int round = 0; round < options_.num_rounds; ++round) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        Contender& contender = *timed[round % 2 == 0 ? i : timed.size() - 1 - i];
        (void)contender.graph->replay_ms(contender.num_replays);
        const Clock::time_point begin = Clock::now();
        const double ms = contender.graph->replay_ms(contender.num_replays);
        contender.windows.push_back({begin, Clock::now()});
        contender.us.push_back(ms * 1e3 / static_cast<double>(contender.num_replays) /
                               static_cast<double>(sets_.size()));
      }
    }
  }

  const GpuStream& gpu_;
  const Options& options_;
  Case case_;
  std::int64_t k_blocks_;
  std::int64_t rows_ = 0;         // of `a` in use
  std::int64_t buffer_rows_ = 0;  // that there is memory for
  std::vector<std::uint8_t> pool_;
  std::vector<float> scale_pool_;
  DeviceMemory a_, a_scale_, d_, ends_, counts_;
  std::vector<InputSet> sets_;
};

json rows_of(const Case& what, std::size_t num_sets, const std::vector<Contender>& contenders,
             const NvmlSampler& sampler) {
  double dense_us = 0;
  for (const Contender& contender : contenders) {
    if (contender.name == "octavo_dense" && !contender.us.empty()) {
      dense_us = quantile(contender.us, 0.5);
    }
  }
  const double memory_us = what.bytes() / kMemoryBytesPerUs;
  json rows = json::array();
  for (const Contender& contender : contenders) {
    const bool timed = !contender.us.empty();
    const bool is_dense = contender.name == "octavo_dense";
    const double us = timed ? quantile(contender.us, 0.5) : 1;
    const ClockAndPower load = sampler.medians(contender.windows);
    const double target_us = what.target == Target::kDense           ? dense_us
                             : what.target == Target::kDenseOrMemory ? std::max(dense_us, memory_us)
                                                                     : memory_us;
    const bool has_ratio = timed && !is_dense && target_us > 0;
    const double operations = is_dense ? 2.0 * static_cast<double>(what.dense_rows()) *
                                             static_cast<double>(what.n * what.k)
                                       : what.operations();
    json row = {
        {"problem",
         {{"op", "grouped_gemm"},
          {"groups", what.groups},
          {"rows", what.rows},
          {"spread", what.spread},
          {"total_rows", what.total(1)},
          {"n", what.n},
          {"k", what.k},
          {"masked", what.masked()},
          {"recipe", "block"}}},
        {"contender", contender.name},
        {"kernel", contender.kernel},
        {"us", nullptr},
        {"tflops", bench::known(operations / us * 1e-6, timed)},
        {"weights_gbps", bench::known(what.weight_bytes() / us * 1e-3, timed && !is_dense)},
        {"target", what.target == Target::kDense ? "dense"
                   : what.target == Target::kMemory
                       ? "memory"
                       : (dense_us > memory_us ? "dense, rows rounded up to 64" : "memory")},
        {"target_us", bench::known(target_us, target_us > 0)},
        {"ratio_to_target", bench::known(target_us / us, has_ratio)},
        {"sm_clock_mhz", bench::known(load.sm_clock_mhz, load.num_samples > 0)},
        {"power_w", bench::known(load.power_w, load.num_samples > 0)},
        {"input_sets", num_sets},
        {"skipped", nullptr}};
    if (timed) {
      row["us"] = {{"median", us},
                   {"p10", quantile(contender.us, 0.1)},
                   {"p90", quantile(contender.us, 0.9)}};
      fmt::print(
          "{:38} {:24} {:8.1f} us {:5.0f} TFLOP/s {:5.0f} GB/s of weights x{:.3f} of {} {:4.0f} "
          "MHz {:3.0f} W\n",
          what.name(), contender.name, us, operations / us * 1e-6, what.weight_bytes() / us * 1e-3,
          has_ratio ? target_us / us : 0.0, row.at("target").get<std::string>(), load.sm_clock_mhz,
          load.power_w);
    } else {
      row["skipped"] = contender.skipped_because;
    }
    rows.push_back(std::move(row));
  }
  std::fflush(stdout);
  return rows;
}

int run(const Options& options, const std::string& command) {
  const GpuStream gpu;
  const NvmlSampler sampler(gpu.bus_id());
  json result = bench::new_result(options, sampler, "gpu_grouped", "Grouped products", command);
  int status = 0;
  for (const Case& what : all_cases()) {
    if (what.name().find(options.only) == std::string::npos) continue;
    CaseRun case_run(gpu, options, what);
    const std::vector<Contender> contenders = case_run.run();
    for (json& row : rows_of(what, case_run.num_sets(), contenders, sampler)) {
      if (!row.at("skipped").is_null()) status = 1;
      result["rows"].push_back(std::move(row));
    }
    bench::write_result(result, options.out);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.window_ms = 60;
  CLI::App app("Grouped products on the GPU against dense ones and against the rate of memory");
  bench::add_options(app, options);
  app.add_option("--only", options.only, "cases whose name has this in it");
  app.add_flag("--every-candidate", options.every_candidate,
               "also every kernel that the plan could have chosen");
  CLI11_PARSE(app, argc, argv);
  return bench::run_command("gpu_grouped_bench", argc, argv,
                            [&](const std::string& command) { return run(options, command); });
}
