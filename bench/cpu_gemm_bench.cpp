// SPDX-License-Identifier: Apache-2.0
// CPU products against OpenBLAS and against what the memory can deliver, interleaved in one run.
// Writes a result file of the schema that all suites share. The rules it follows: METHOD.md.
#include <cblas.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "measure/today.hpp"
#include "measuring.hpp"
#include "octavo/octavo.hpp"

namespace {

using namespace octavo;
using namespace octavo::bench;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

struct Options {
  std::string suite = OCTAVO_SOURCE_DIR "/bench/suites/cpu_gemm.json";
  std::string out;
  std::string machine = "cpu";
  int num_threads = 0;
  int num_rounds = 9;
  double min_sample_ms = 60;
  double warm_up_ms = 20;
  // Weights that a contender walks through before it sees the first again.
  double rotation_mb_decode = 1024;
  double rotation_mb_prefill = 128;
};

struct Shape {
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
  friend bool operator==(const Shape&, const Shape&) = default;
};

// Problems of the suite with one shape; they share a run.
struct ShapeGroup {
  Shape shape;
  bool emulated = false;
  std::vector<ScaleRecipe> recipes;
};

ScaleRecipe recipe_named(const std::string& name) {
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    if (name == to_string(recipe)) return recipe;
  }
  throw Error(ErrorCode::kBadFile, "the suite's recipe \"" + name +
                                       "\" is unknown; it must be none, tensor, row, block or "
                                       "block1d. Correct the suite.");
}

std::vector<ShapeGroup> group_by_shape(const json& suite) {
  std::vector<ShapeGroup> groups;
  for (const json& problem : suite.at("problems")) {
    const Shape shape{problem.at("m"), problem.at("n"), problem.at("k")};
    const bool emulated = problem.value("numerics", "default") == "emulated";
    if (groups.empty() || groups.back().shape != shape || groups.back().emulated != emulated) {
      groups.push_back({shape, emulated, {}});
    }
    groups.back().recipes.push_back(recipe_named(problem.value("recipe", "none")));
  }
  return groups;
}

// Something to be timed: one call, or a sample of calls where calls are too short to time alone.
struct Contender {
  std::string name;
  std::string recipe;
  std::string kernel;
  double bytes;  // that a call must move at least
  // Runs `count` calls.
  std::function<void(std::int64_t count)> run;
  json error = nullptr;
  std::vector<double> us = {};
};

// NOTE: OpenBLAS's workers spin for tens of milliseconds after a call, on cores that the next
// contender needs; so every sample starts after a pause. A core that has just woken is slow (its
// clock, and a virtual machine's place on the host), so calls that do not count come next.
double seconds_of(const Contender& contender, std::int64_t count, double warm_up_ms) {
  constexpr auto kPause = std::chrono::milliseconds(50);
  std::this_thread::sleep_for(kPause);
  const auto seconds_since = [](Clock::time_point begin) {
    return std::chrono::duration<double>(Clock::now() - begin).count();
  };
  const auto warm_up = Clock::now();
  const std::int64_t warm_up_count = std::max<std::int64_t>(1, count / 4);
  do {
    contender.run(warm_up_count);
  } while (seconds_since(warm_up) < warm_up_ms * 1e-3);
  const auto begin = Clock::now();
  contender.run(count);
  return seconds_since(begin);
}

// A B C, C B A, ...: a slow drift of the machine meets every contender alike.
void measure(std::vector<Contender>& contenders, const Options& options) {
  std::vector<std::int64_t> counts;
  for (const Contender& contender : contenders) {
    const double once = std::max(1e-7, seconds_of(contender, 1, options.warm_up_ms));
    counts.push_back(
        std::max<std::int64_t>(1, static_cast<std::int64_t>(options.min_sample_ms * 1e-3 / once)));
  }
  for (int round = 0; round < options.num_rounds; ++round) {
    for (std::size_t i = 0; i < contenders.size(); ++i) {
      const std::size_t at = round % 2 == 0 ? i : contenders.size() - 1 - i;
      const double seconds = seconds_of(contenders[at], counts[at], options.warm_up_ms);
      contenders[at].us.push_back(seconds * 1e6 / static_cast<double>(counts[at]));
    }
  }
}

const HugePageArray<unsigned char>& memory() {
  constexpr std::size_t kBytes = std::size_t{1} << 30U;
  static const HugePageArray<unsigned char> bytes(kBytes);
  return bytes;
}

constexpr int kReadPasses = 20;

// The most that the memory delivered in any pass: what `roofline_pct` compares with.
double best_read_gbps(int num_threads) {
  double best = 0;
  for (int pass = 0; pass < kReadPasses; ++pass) {
    const auto begin = Clock::now();
    in_parts(num_threads, memory().size(), [](std::size_t at, std::size_t part) {
      consume(read_all(memory().data() + at, part));
    });
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    best = std::max(best, 1e-9 * static_cast<double>(memory().size()) / seconds);
  }
  return best;
}

class ShapeRun {
 public:
  ShapeRun(const ShapeGroup& group, const Options& options)
      : options_(options),
        shape_(group.shape),
        threads_(options.num_threads),
        rotation_bytes_(
            1e6 * (group.shape.m == 1 ? options.rotation_mb_decode : options.rotation_mb_prefill)),
        a_f32_(random(shape_.m * shape_.k)),
        b_f32_(random(shape_.n * shape_.k)),
        d_(static_cast<std::size_t>(shape_.m * shape_.n)) {}

  std::vector<Contender> run(const ShapeGroup& group) {
    std::vector<Contender> contenders;
    if (group.emulated) {
      for (const ScaleRecipe recipe : group.recipes) {
        contenders.push_back(octavo_fp8(recipe, Numerics::kEmulated, 1));
      }
    } else {
      for (const ScaleRecipe recipe : group.recipes) {
        contenders.push_back(octavo_fp8(recipe, Numerics::kBlocked, threads_));
      }
      contenders.push_back(octavo_bf16());
      contenders.push_back(openblas());
      contenders.push_back(memory_read());
      contenders.push_back(memory_copy());
    }
    measure(contenders, options_);
    return contenders;
  }

 private:
  struct Fp8Weights {
    std::vector<std::uint8_t> a;
    std::vector<float> a_scale;
    std::vector<float> b_scale;
  };

  std::vector<float> random(std::int64_t count) {
    // Sums of uniform bytes: close enough to a Gaussian, and quick for hundreds of millions.
    std::vector<float> values(static_cast<std::size_t>(count));
    for (float& value : values) {
      const std::uint64_t bits = random_();
      int sum = 0;
      for (int i = 0; i < 8; ++i) sum += static_cast<int>((bits >> (8 * i)) & 0xFFU);
      value = static_cast<float>(sum - 1020) * (1.0F / 209.0F);
    }
    return values;
  }

  template <typename T>
  TensorView view(const T* data, DType dtype, std::int64_t rows) const {
    return make_view(static_cast<const void*>(data), dtype, {rows, shape_.k});
  }

  // FP8 codes and scales of a matrix.
  std::pair<std::vector<std::uint8_t>, std::vector<float>> quantized(
      const std::vector<float>& values, std::int64_t rows, ScaleGranularity granularity) const {
    const ScaleShape scale_extents = scale_shape(granularity, rows, shape_.k);
    std::vector<std::uint8_t> codes(values.size());
    std::vector<float> scales(static_cast<std::size_t>(scale_extents.rows * scale_extents.cols));
    QuantizeProblem problem;
    problem.x = view(values.data(), DType::kF32, rows);
    problem.q = make_view(static_cast<void*>(codes.data()), DType::kE4M3, {rows, shape_.k});
    problem.granularity = granularity;
    problem.scale =
        is_per_row(granularity)
            ? make_view(static_cast<void*>(scales.data()), DType::kF32, {scale_extents.rows})
            : make_view(static_cast<void*>(scales.data()), DType::kF32,
                        {scale_extents.rows, scale_extents.cols});
    quantize(problem, {.backend = "cpu", .num_threads = threads_});
    return {std::move(codes), std::move(scales)};
  }

  static bool is_per_row(ScaleGranularity granularity) {
    return granularity == ScaleGranularity::kRow || granularity == ScaleGranularity::kTensor;
  }

  TensorView scale_view(const std::vector<float>& scales, ScaleGranularity granularity,
                        std::int64_t rows) const {
    const ScaleShape extents = scale_shape(granularity, rows, shape_.k);
    if (is_per_row(granularity)) {
      return make_view(static_cast<const void*>(scales.data()), DType::kF32, {extents.rows});
    }
    return make_view(static_cast<const void*>(scales.data()), DType::kF32,
                     {extents.rows, extents.cols});
  }

  Contender octavo_fp8(ScaleRecipe recipe, Numerics numerics, int num_threads) {
    struct State {
      std::vector<std::uint8_t> a;
      std::vector<float> a_scale;
      std::vector<float> b_scale;
      Rotation<std::uint8_t> b;
      std::vector<std::uint16_t> d;
    };
    auto [a, a_scale] = quantized(a_f32_, shape_.m, a_granularity(recipe));
    auto [b, b_scale] = quantized(b_f32_, shape_.n, b_granularity(recipe));
    auto state = std::make_shared<State>(
        State{std::move(a), std::move(a_scale), std::move(b_scale),
              Rotation<std::uint8_t>(b, numerics == Numerics::kEmulated ? 0 : rotation_bytes_),
              std::vector<std::uint16_t>(d_.size())});
    GemmProblem problem;
    problem.a = view(state->a.data(), DType::kE4M3, shape_.m);
    problem.b = view(state->b.next(), DType::kE4M3, shape_.n);
    problem.d = make_view(static_cast<void*>(state->d.data()), DType::kBF16, {shape_.m, shape_.n});
    problem.recipe = recipe;
    problem.a_scale = scale_view(state->a_scale, a_granularity(recipe), shape_.m);
    problem.b_scale = scale_view(state->b_scale, b_granularity(recipe), shape_.n);
    const Execution execution{.backend = "cpu", .numerics = numerics, .num_threads = num_threads};
    Contender contender{
        numerics == Numerics::kEmulated ? "octavo_emulated" : "octavo", to_string(recipe),
        gemm(problem, execution).kernel,
        static_cast<double>(shape_.m * shape_.k + shape_.n * shape_.k + 2 * shape_.m * shape_.n),
        [state, problem, execution](std::int64_t count) mutable {
          for (std::int64_t i = 0; i < count; ++i) {
            problem.b.data = state->b.next();
            gemm(problem, execution);
          }
        }};
    contender.error = error_of(problem);
    return contender;
  }

  // Against FP64 sums of the same quantised operands, on a few columns: the oracle is slow.
  [[nodiscard]] json error_of(GemmProblem problem) const {
    constexpr std::int64_t kMaxColumns = 32;
    const std::int64_t columns = std::min(shape_.n, kMaxColumns);
    std::vector<float> reference(static_cast<std::size_t>(shape_.m * columns));
    TensorView result = problem.d;
    result.shape[1] = columns;
    problem.b.shape[0] = columns;
    const ScaleShape scales = scale_shape(b_granularity(problem.recipe), columns, shape_.k);
    problem.b_scale.shape[0] = scales.rows;
    problem.d = make_view(static_cast<void*>(reference.data()), DType::kF32, {shape_.m, columns});
    gemm(problem, {.backend = "cpu", .numerics = Numerics::kReference, .num_threads = threads_});
    const ErrorMetrics metrics = compare(result, problem.d);
    return {{"relative_frobenius", metrics.relative_frobenius}, {"max_abs", metrics.max_abs}};
  }

  static std::vector<std::uint16_t> bf16_of(const std::vector<float>& values) {
    std::vector<std::uint16_t> codes(values.size());
    for (std::size_t i = 0; i < values.size(); ++i) {
      std::uint32_t bits = 0;
      std::memcpy(&bits, &values[i], sizeof(bits));
      codes[i] = static_cast<std::uint16_t>(bits >> 16);
    }
    return codes;
  }

  Contender octavo_bf16() {
    struct State {
      std::vector<std::uint16_t> a;
      Rotation<std::uint16_t> b;
      std::vector<std::uint16_t> d;
    };
    auto state = std::make_shared<State>(
        State{bf16_of(a_f32_), Rotation<std::uint16_t>(bf16_of(b_f32_), rotation_bytes_),
              std::vector<std::uint16_t>(d_.size())});
    GemmProblem problem;
    problem.a = view(state->a.data(), DType::kBF16, shape_.m);
    problem.b = view(state->b.next(), DType::kBF16, shape_.n);
    problem.d = make_view(static_cast<void*>(state->d.data()), DType::kBF16, {shape_.m, shape_.n});
    const Execution execution{.backend = "cpu", .num_threads = threads_};
    return {
        "octavo_bf16", "none", gemm(problem, execution).kernel,
        2.0 * static_cast<double>(shape_.m * shape_.k + shape_.n * shape_.k + shape_.m * shape_.n),
        [state, problem, execution](std::int64_t count) mutable {
          for (std::int64_t i = 0; i < count; ++i) {
            problem.b.data = state->b.next();
            gemm(problem, execution);
          }
        }};
  }

  Contender openblas() {
    auto weights = std::make_shared<Rotation<float>>(b_f32_, rotation_bytes_);
    const auto m = static_cast<int>(shape_.m);
    const auto n = static_cast<int>(shape_.n);
    const auto k = static_cast<int>(shape_.k);
    const double bytes =
        4.0 * static_cast<double>(shape_.m * shape_.k + shape_.n * shape_.k + shape_.m * shape_.n);
    const float* a = a_f32_.data();
    float* d = d_.data();
    if (m == 1) {
      return {"openblas", "none", "cblas_sgemv", bytes, [=](std::int64_t count) {
                for (std::int64_t i = 0; i < count; ++i) {
                  cblas_sgemv(CblasRowMajor, CblasNoTrans, n, k, 1, weights->next(), k, a, 1, 0, d,
                              1);
                }
              }};
    }
    return {"openblas", "none", "cblas_sgemm", bytes, [=](std::int64_t count) {
              for (std::int64_t i = 0; i < count; ++i) {
                cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k,
                            weights->next(), k, 0, d, n);
              }
            }};
  }

  // The FP8 weights' bytes, read from or copied within a rotation of their own by as many threads
  // as the products have. A sample walks on through memory, so its threads start once.
  Contender memory_read() {
    const double bytes = static_cast<double>(shape_.n * shape_.k);
    return {"memory_read", "none", "vector loads", bytes, [this, bytes](std::int64_t count) {
              for_stretches(bytes * static_cast<double>(count),
                            [this](std::size_t begin, std::size_t length) {
                              in_parts(threads_, length, [&](std::size_t at, std::size_t part) {
                                consume(read_all(memory().data() + begin + at, part));
                              });
                            });
            }};
  }

  Contender memory_copy() {
    const double bytes = static_cast<double>(shape_.n * shape_.k);
    return {"memory_copy", "none", "memcpy", 2 * bytes, [this, bytes](std::int64_t count) {
              for_stretches(
                  bytes * static_cast<double>(count),
                  [this](std::size_t begin, std::size_t length) {
                    in_parts(threads_, length, [&](std::size_t at, std::size_t part) {
                      std::memcpy(memory().data() + begin / 2 + at,
                                  memory().data() + (memory().size() + begin) / 2 + at, part);
                    });
                  },
                  2);
            }};
  }

  // Calls work on stretches of memory() of `total` bytes together, each a `share`-th of it at most.
  void for_stretches(double total, const std::function<void(std::size_t, std::size_t)>& work,
                     std::size_t share = 1) {
    auto left = static_cast<std::size_t>(total);
    while (left > 0) {
      const std::size_t length = std::min(left, memory().size() / share - position_ / share);
      work(position_, length);
      left -= length;
      position_ = (position_ + length * share) % memory().size();
    }
  }

  const Options& options_;
  Shape shape_;
  int threads_;
  double rotation_bytes_;
  std::mt19937_64 random_{2026};
  std::vector<float> a_f32_;
  std::vector<float> b_f32_;
  std::vector<float> d_;
  std::size_t position_ = 0;
};

json rows_of(const ShapeGroup& group, const std::vector<Contender>& contenders, double read_gbps) {
  const auto median = [&contenders](std::string_view name) {
    for (const Contender& contender : contenders) {
      if (contender.name == name) return quantile(contender.us, 0.5);
    }
    return 0.0;
  };
  const double yardstick = median("openblas");
  const double weight_bytes = static_cast<double>(group.shape.n * group.shape.k);
  const double macs = weight_bytes * static_cast<double>(group.shape.m);
  json rows = json::array();
  for (const Contender& contender : contenders) {
    const double us = quantile(contender.us, 0.5);
    const bool computes = contender.name.rfind("memory", 0) != 0;
    const Shape& shape = group.shape;
    json row = {{"problem",
                 {{"op", computes ? "gemm" : contender.name},
                  {"m", shape.m},
                  {"n", shape.n},
                  {"k", shape.k},
                  {"recipe", contender.recipe},
                  {"accumulation", "promoted"}}},
                {"contender", contender.name},
                {"kernel", contender.kernel},
                {"us",
                 {{"median", us},
                  {"p10", quantile(contender.us, 0.1)},
                  {"p90", quantile(contender.us, 0.9)}}},
                {"tflops", computes ? json(2e-6 * macs / us) : json()},
                {"gbps", contender.bytes / us * 1e-3},
                {"roofline_pct", nullptr},
                {"ratio_to_yardstick", nullptr},
                {"yardstick", nullptr},
                {"error", contender.error},
                {"repeat", nullptr}};
    if (shape.m == 1 && computes && !group.emulated) {
      row["roofline_pct"] = 100 * contender.bytes / us * 1e-3 / read_gbps;
      // The same bytes, only read, by as many threads that start as late: for weights of a fraction
      // of a megabyte the start is most of the time.
      row["memory_read_pct"] = 100 * median("memory_read") * contender.bytes / weight_bytes / us;
    }
    if (yardstick > 0 && computes) {
      row["yardstick"] = shape.m == 1 ? "openblas sgemv" : "openblas sgemm";
      row["ratio_to_yardstick"] = yardstick / us;
    }
    if (contender.name.rfind("octavo", 0) == 0 && contender.name != "octavo_bf16") {
      row["repeat"] = fmt::format(
          "octavo run gemm --backend cpu --m {} --n {} --k {} --recipe {} --d-dtype bf16 "
          "--numerics {}",
          shape.m, shape.n, shape.k, contender.recipe, group.emulated ? "emulated" : "blocked");
    }
    rows.push_back(row);
    fmt::print(stderr, "{:5} x {:5} x {:5} {:16} {:6} {:11.1f} us {:8.1f} GB/s {:9.1f} GMAC/s",
               shape.m, shape.n, shape.k, contender.name, contender.recipe, us,
               contender.bytes / us * 1e-3, computes ? macs / us * 1e-3 : 0.0);
    if (yardstick > 0 && computes) fmt::print(stderr, "  x{:.2f}", yardstick / us);
    if (!row["roofline_pct"].is_null()) {
      fmt::print(stderr, "  {:.0f} % of best read, {:.0f} % of memory_read",
                 row["roofline_pct"].get<double>(), row["memory_read_pct"].get<double>());
    }
    fmt::print(stderr, "\n");
  }
  return rows;
}

std::string output_of(const char* command) {
  std::string text;
  std::FILE* pipe = popen(command, "r");
  if (pipe == nullptr) return text;
  std::array<char, 256> buffer{};
  while (std::fgets(buffer.data(), static_cast<int>(buffer.size()), pipe) != nullptr) {
    text += buffer.data();
  }
  pclose(pipe);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

json load_average() {
  std::array<double, 3> loads{};
  if (getloadavg(loads.data(), static_cast<int>(loads.size())) < 1) return nullptr;
  return loads[0];
}

int run(const Options& options, const std::string& command) {
  for (const char* name : {"OPENBLAS_CORETYPE", "OPENBLAS_L2_SIZE"}) {
    if (std::getenv(name) != nullptr) {
      fmt::print(stderr, "{} is set; it makes OpenBLAS use another kernel. Unset it.\n", name);
      return 2;
    }
  }
  openblas_set_num_threads(options.num_threads);
  std::ifstream file(options.suite);
  const json suite = json::parse(file);
  const CpuInfo cpu = cpu_info();
  json result = {
      {"schema", 1},
      {"date", measure::today()},
      {"commit", output_of("git -C " OCTAVO_SOURCE_DIR " rev-parse HEAD")},
      {"dirty", !output_of("git -C " OCTAVO_SOURCE_DIR
                           " status --porcelain --untracked-files=no -- src include bench")
                     .empty()},
      {"machine",
       {{"gpu", nullptr},
        {"driver", nullptr},
        {"cuda", nullptr},
        {"cpu", cpu.model},
        {"cores", cpu.num_cores},
        {"threads", options.num_threads},
        {"instruction_set", cpu.instruction_set},
        {"openblas", {{"core", openblas_get_corename()}, {"config", openblas_get_config()}}},
        {"load_average", {{"before", load_average()}}},
        {"sm_clock_mhz", nullptr},
        {"power_w", nullptr}}},
      {"suite", suite.at("suite")},
      {"command", command},
      {"method", "bench/METHOD.md, section CPU products"},
      {"rows", json::array()}};
  const double read_gbps = best_read_gbps(options.num_threads);
  result["machine"]["read_gbps"] = read_gbps;
  fmt::print(stderr, "memory read, best of {} passes: {:.1f} GB/s\n", kReadPasses, read_gbps);
  for (const ShapeGroup& group : group_by_shape(suite)) {
    const std::vector<Contender> contenders = ShapeRun(group, options).run(group);
    for (json& row : rows_of(group, contenders, read_gbps))
      result["rows"].push_back(std::move(row));
  }
  result["machine"]["load_average"]["after"] = load_average();
  if (options.out.empty()) {
    std::filesystem::create_directories(OCTAVO_SOURCE_DIR "/bench/results");
  }
  const std::string out =
      options.out.empty()
          ? fmt::format("{}/bench/results/{}-{}-{}.json", OCTAVO_SOURCE_DIR, measure::today(),
                        options.machine, suite.at("suite").get<std::string>())
          : options.out;
  std::ofstream written(out);
  written << result.dump(1) << '\n';
  written.close();
  if (!written) {
    throw Error(ErrorCode::kIo, out +
                                    ": the result could not be written. Give --out a path that "
                                    "can be.");
  }
  fmt::print(stderr, "{}\n", out);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.num_threads = cpu_info().num_cores;
  CLI::App app("CPU products against OpenBLAS and memory bandwidth");
  app.add_option("suite", options.suite, "suite file");
  app.add_option("--out", options.out, "result file");
  app.add_option("--machine", options.machine, "word for the machine in the result file's name");
  app.add_option("--threads", options.num_threads, "threads of every contender")
      ->check(CLI::Range(1, 4096));
  app.add_option("--rounds", options.num_rounds, "samples of each contender")
      ->check(CLI::Range(3, 1000));
  app.add_option("--sample-ms", options.min_sample_ms, "shortest sample");
  app.add_option("--warm-up-ms", options.warm_up_ms, "calls before each sample that do not count");
  app.add_option("--decode-mb", options.rotation_mb_decode, "rotating weights at M = 1");
  app.add_option("--prefill-mb", options.rotation_mb_prefill, "rotating weights at M > 1");
  CLI11_PARSE(app, argc, argv);
  std::string command = "env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE cpu_gemm_bench";
  for (int i = 1; i < argc; ++i) command += std::string(" ") + argv[i];
  try {
    return run(options, command);
  } catch (const std::exception& error) {
    fmt::print(stderr, "{}\n", error.what());
    return 1;
  }
}
