// SPDX-License-Identifier: Apache-2.0
// Quantization and dequantization on the GPU against a copy within device memory, interleaved in
// one run. Writes a result file of the schema that all suites share. The rules it follows:
// METHOD.md, section GPU quantization.
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
#include "measure/gpu_stream.hpp"
#include "measure/nvml_sampler.hpp"
#include "measure/quantile.hpp"
#include "octavo/octavo.hpp"

namespace {

using namespace octavo;
using namespace octavo::measure;
using nlohmann::json;

using Options = bench::GpuOptions;

struct Shape {
  std::int64_t rows;
  std::int64_t cols;
};

// 64 MiB of BF16 and more, with the hidden sizes of large models.
constexpr std::array kShapes{Shape{8192, 4096}, Shape{16384, 2048}, Shape{8192, 7168},
                             Shape{4096, 16384}, Shape{32768, 7168}};

enum class Work { kCopy, kQuantize, kDequantize };
enum class ScaleLayout { kRowMajor, kColumnMajor };

struct Kind {
  const char* name;
  Work work;
  ScaleGranularity granularity = ScaleGranularity::kTensor;
  DType x = DType::kBF16;
  DType scale = DType::kF32;
  ScaleLayout layout = ScaleLayout::kRowMajor;
  ScaleSource source = ScaleSource::kDynamic;
};

// Those of one type of x are interleaved, and compared with its copy.
constexpr std::array kKinds{
    Kind{"copy", Work::kCopy},
    Kind{"tensor", Work::kQuantize, ScaleGranularity::kTensor},
    Kind{"row", Work::kQuantize, ScaleGranularity::kRow},
    Kind{"1x128", Work::kQuantize, ScaleGranularity::kBlock1x128},
    Kind{"1x128_ue8m0_mmajor", Work::kQuantize, ScaleGranularity::kBlock1x128, DType::kBF16,
         DType::kUE8M0, ScaleLayout::kColumnMajor},
    Kind{"128x128", Work::kQuantize, ScaleGranularity::kBlock128x128},
    Kind{"tensor_given", Work::kQuantize, ScaleGranularity::kTensor, DType::kBF16, DType::kF32,
         ScaleLayout::kRowMajor, ScaleSource::kGiven},
    // These overwrite x, and so come last.
    Kind{"dequantize_1x128", Work::kDequantize, ScaleGranularity::kBlock1x128},
    Kind{"dequantize_row", Work::kDequantize, ScaleGranularity::kRow},
    Kind{"copy_f32", Work::kCopy, ScaleGranularity::kTensor, DType::kF32},
    Kind{"row_f32", Work::kQuantize, ScaleGranularity::kRow, DType::kF32},
    Kind{"1x128_f32", Work::kQuantize, ScaleGranularity::kBlock1x128, DType::kF32},
};

// Bytes that must move. A tensor's dynamic scale needs x twice; `reads_of_x` counts both or one.
double bytes_moved(Shape shape, const Kind& kind, int reads_of_x) {
  const double elements = static_cast<double>(shape.rows) * static_cast<double>(shape.cols);
  const double x_bytes = elements * size_bytes(kind.x);
  if (kind.work == Work::kCopy) return 2 * x_bytes;
  const ScaleShape scales = scale_shape(kind.granularity, shape.rows, shape.cols);
  return reads_of_x * x_bytes + elements +
         static_cast<double>(scales.rows * scales.cols * size_bytes(kind.scale));
}
int reads_of_x(const Kind& kind) {
  return kind.work == Work::kQuantize && kind.granularity == ScaleGranularity::kTensor &&
                 kind.source == ScaleSource::kDynamic
             ? 2
             : 1;
}

struct Contender {
  const Kind* kind = nullptr;
  std::string kernel;
  std::string skipped_because;  // empty if it is timed
  std::unique_ptr<Graph> graph;
  std::int64_t num_replays = 1;
  std::vector<double> us;
  std::vector<TimeWindow> windows;
};

// Device memory of one input set. All sets hold the same values.
struct Buffers {
  DeviceMemory x;
  DeviceMemory copy_of_x;
  DeviceMemory q;
  DeviceMemory f32_scale;
  DeviceMemory ue8m0_scale;

  [[nodiscard]] const DeviceMemory& scale(const Kind& kind) const {
    return kind.scale == DType::kF32 ? f32_scale : ue8m0_scale;
  }
  [[nodiscard]] DeviceMemory& scale(const Kind& kind) {
    return kind.scale == DType::kF32 ? f32_scale : ue8m0_scale;
  }
};

class ShapeRun {
 public:
  ShapeRun(const GpuStream& gpu, const Options& options, Shape shape)
      : gpu_(gpu), options_(options), shape_(shape) {
    const auto elements = static_cast<std::size_t>(shape.rows * shape.cols);
    // Ten times the second-level cache, and no fewer sets than leave none of it to the next one.
    constexpr std::size_t kBytesOfSets = std::size_t{512} << 20U;
    constexpr std::size_t kLeastSets = 3;
    const std::size_t x_bytes = elements * sizeof(float);
    const std::size_t num_sets =
        std::max(kLeastSets, kBytesOfSets / (elements * sizeof(std::uint16_t)));
    const ScaleShape scales = scale_shape(ScaleGranularity::kBlock1x128, shape.rows, shape.cols);
    const auto num_scales = static_cast<std::size_t>(scales.rows * scales.cols);
    for (std::size_t i = 0; i < num_sets; ++i) {
      sets_.push_back({DeviceMemory(kGpu, x_bytes), DeviceMemory(kGpu, x_bytes),
                       DeviceMemory(kGpu, elements), DeviceMemory(kGpu, num_scales * sizeof(float)),
                       DeviceMemory(kGpu, num_scales)});
    }
    std::mt19937_64 random(kSeed);
    std::normal_distribution<float> normal(0.0F, 1.0F);
    values_.resize(static_cast<std::size_t>(kStripe * shape.cols));
    for (float& value : values_) value = normal(random);
  }

  std::vector<Contender> run(DType x) {
    fill_x(x);
    std::vector<Contender> contenders;
    for (const Kind& kind : kKinds) {
      if (kind.x == x) contenders.push_back(prepared(kind));
    }
    measure(contenders);
    return contenders;
  }

  [[nodiscard]] std::size_t num_sets() const { return sets_.size(); }

 private:
  static constexpr std::uint64_t kSeed = 2026;
  static constexpr std::int64_t kStripe = kScaleBlock;  // rows that are repeated all over x

  std::vector<std::uint8_t> encoded(DType dtype) const {
    std::vector<std::uint8_t> bytes;
    const auto size = static_cast<std::size_t>(size_bytes(dtype));
    bytes.resize(values_.size() * size);
    for (std::size_t i = 0; i < values_.size(); ++i) {
      const std::uint32_t code = encode(dtype, values_[i]);
      std::memcpy(bytes.data() + i * size, &code, size);
    }
    return bytes;
  }

  void fill_x(DType dtype) {
    stripe_ = encoded(dtype);
    const std::size_t total = static_cast<std::size_t>(shape_.rows / kStripe) * stripe_.size();
    for (Buffers& set : sets_) {
      set.x.copy_from_host(stripe_.data(), stripe_.size());
      for (std::size_t done = stripe_.size(); done < total; done *= 2) {
        gpu_.copy(static_cast<std::byte*>(set.x.data()) + done, set.x.data(),
                  std::min(done, total - done));
      }
    }
    gpu_.wait();
  }

  template <typename Pointer>
  static auto view(Pointer* data, DType dtype, std::int64_t rows, std::int64_t cols,
                   Device device) {
    return make_view(data, dtype, {rows, cols}, device);
  }

  // A scale tensor for `rows` rows, in `memory`.
  [[nodiscard]] MutableTensorView scale_view(const Kind& kind, std::int64_t rows, void* memory,
                                             Device device) const {
    const ScaleShape scales = scale_shape(kind.granularity, rows, shape_.cols);
    MutableTensorView scale = view(memory, kind.scale, scales.rows, scales.cols, device);
    if (kind.layout == ScaleLayout::kColumnMajor) {
      scale.strides[0] = 1;
      scale.strides[1] = scales.rows;
    }
    if (kind.granularity == ScaleGranularity::kTensor) scale.rank = 1;
    return scale;
  }

  [[nodiscard]] QuantizeProblem quantize_problem(const Kind& kind, std::int64_t rows, void* x,
                                                 void* q, void* scale, Device device) const {
    QuantizeProblem problem;
    problem.x = view(x, kind.x, rows, shape_.cols, device);
    problem.q = view(q, DType::kE4M3, rows, shape_.cols, device);
    problem.granularity = kind.granularity;
    problem.scale = scale_view(kind, rows, scale, device);
    problem.scale_source = kind.source;
    return problem;
  }

  std::string enqueue(const Kind& kind, const Buffers& set) const {
    const Execution execution{.backend = "cuda", .stream = gpu_.stream()};
    if (kind.work == Work::kCopy) {
      gpu_.copy(set.copy_of_x.data(), set.x.data(),
                static_cast<std::size_t>(shape_.rows * shape_.cols * size_bytes(kind.x)));
      return "cuMemcpyDtoDAsync";
    }
    const QuantizeProblem problem = quantize_problem(kind, shape_.rows, set.x.data(), set.q.data(),
                                                     set.scale(kind).data(), kGpu);
    if (kind.work == Work::kQuantize) return quantize(problem, execution).kernel;
    const MutableTensorView x = view(set.x.data(), kind.x, shape_.rows, shape_.cols, kGpu);
    return dequantize({problem.q, problem.scale, kind.granularity, x}, execution).kernel;
  }

  Contender prepared(const Kind& kind) {
    Contender contender;
    contender.kind = &kind;
    try {
      if (kind.source == ScaleSource::kGiven) {
        const float scale = 1.0F / 64;
        for (Buffers& set : sets_) set.scale(kind).copy_from_host(&scale, sizeof(scale));
      }
      if (kind.work == Work::kDequantize) prepare_codes(kind);
      contender.kernel = enqueue(kind, sets_.front());
      gpu_.wait();
      if (kind.work == Work::kQuantize) check(kind, sets_.front());
      contender.graph = std::make_unique<Graph>(gpu_, [&] {
        for (const Buffers& set : sets_) (void)enqueue(kind, set);
      });
    } catch (const std::exception& error) {
      contender.skipped_because = error.what();
      fmt::print(stderr, "{} LEFT OUT: {}\n", kind.name, error.what());
    }
    return contender;
  }

  void prepare_codes(const Kind& kind) {
    Kind forward = kind;
    forward.work = Work::kQuantize;
    for (const Buffers& set : sets_) (void)enqueue(forward, set);
    gpu_.wait();
  }

  // The first and the last stripe of codes, and their scales, must be the CPU's. Throws if not.
  void check(const Kind& kind, const Buffers& set) {
    std::vector<std::uint8_t> q(static_cast<std::size_t>(kStripe * shape_.cols));
    const ScaleShape scales = scale_shape(kind.granularity, kStripe, shape_.cols);
    std::vector<std::uint8_t> scale(static_cast<std::size_t>(scales.rows * scales.cols) *
                                    sizeof(float));
    if (kind.source == ScaleSource::kGiven) {
      set.scale(kind).copy_to_host(scale.data(), sizeof(float));
    }
    (void)quantize(quantize_problem(kind, kStripe, stripe_.data(), q.data(), scale.data(), {}),
                   {.backend = "cpu"});
    std::vector<std::uint8_t> got(q.size());
    const auto total = static_cast<std::size_t>(shape_.rows * shape_.cols);
    for (const std::size_t first : {std::size_t{0}, total - got.size()}) {
      set.q.copy_to_host(got.data(), got.size(), first);
      if (got != q) throw Error(ErrorCode::kInternal, "WRONG: codes differ from the CPU's");
    }
    if (kind.layout == ScaleLayout::kColumnMajor) return;
    const auto scale_bytes =
        static_cast<std::size_t>(scales.rows * scales.cols * size_bytes(kind.scale));
    std::vector<std::uint8_t> got_scale(scale_bytes);
    set.scale(kind).copy_to_host(got_scale.data(), scale_bytes);
    if (std::memcmp(got_scale.data(), scale.data(), scale_bytes) != 0) {
      throw Error(ErrorCode::kInternal, "WRONG: scales differ from the CPU's");
    }
  }

  // A B C, C B A, ...: a slow drift meets every contender alike.
  void measure(std::vector<Contender>& contenders) const {
    std::vector<Contender*> timed;
    for (Contender& contender : contenders) {
      if (contender.graph == nullptr) continue;
      constexpr double kShortestMs = 1e-3;
      const double ms = std::max(kShortestMs, contender.graph->replay_ms(1));
      contender.num_replays =
          std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(options_.window_ms / ms)));
      (void)contender.graph->replay_ms(contender.num_replays);
      timed.push_back(&contender);
    }
    for (int round = 0; round < options_.num_rounds; ++round) {
      for (std::size_t i = 0; i < timed.size(); ++i) {
        Contender& contender = *timed[round % 2 == 0 ? i : timed.size() - 1 - i];
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
  Shape shape_;
  std::vector<Buffers> sets_;
  std::vector<float> values_;
  std::vector<std::uint8_t> stripe_;
};

json rows_of(Shape shape, std::size_t num_sets, const std::vector<Contender>& contenders,
             const NvmlSampler& sampler) {
  double copy_gbps = 0;
  const char* yardstick = "";
  const auto gbps = [shape](const Contender& contender, int reads) {
    return contender.us.empty()
               ? 0
               : bytes_moved(shape, *contender.kind, reads) / quantile(contender.us, 0.5) * 1e-3;
  };
  for (const Contender& contender : contenders) {
    if (contender.kind->work != Work::kCopy) continue;
    copy_gbps = gbps(contender, 1);
    yardstick = contender.kind->name;
  }
  json rows = json::array();
  for (const Contender& contender : contenders) {
    const Kind& kind = *contender.kind;
    const bool timed = !contender.us.empty();
    const double rate = gbps(contender, reads_of_x(kind));
    const double rate_one_read = gbps(contender, 1);
    const bool has_ratio = timed && copy_gbps > 0;
    const ClockAndPower load = sampler.medians(contender.windows);
    const char* const op = kind.work == Work::kCopy       ? "copy"
                           : kind.work == Work::kQuantize ? "quantize"
                                                          : "dequantize";
    json row = {{"problem",
                 {{"op", op},
                  {"rows", shape.rows},
                  {"cols", shape.cols},
                  {"granularity", to_string(kind.granularity)},
                  {"x", to_string(kind.x)},
                  {"q", "e4m3"},
                  {"scale", to_string(kind.scale)}}},
                {"contender", kind.name},
                {"kernel", contender.kernel},
                {"us", nullptr},
                {"gbps", bench::known(rate, timed)},
                {"gbps_counting_one_read", bench::known(rate_one_read, timed)},
                {"ratio_to_yardstick", bench::known(rate / copy_gbps, has_ratio)},
                {"ratio_counting_one_read", bench::known(rate_one_read / copy_gbps, has_ratio)},
                {"yardstick", yardstick},
                {"sm_clock_mhz", bench::known(load.sm_clock_mhz, load.num_samples > 0)},
                {"power_w", bench::known(load.power_w, load.num_samples > 0)},
                {"input_sets", num_sets},
                {"skipped", nullptr}};
    if (timed) {
      row["us"] = {{"median", quantile(contender.us, 0.5)},
                   {"p10", quantile(contender.us, 0.1)},
                   {"p90", quantile(contender.us, 0.9)}};
      fmt::print(
          "{:5} x {:5} {:20} {:8.1f} us {:6.0f} GB/s {:.3f} of copy ({:.3f} if x is read "
          "once) {:4.0f} MHz {:3.0f} W\n",
          shape.rows, shape.cols, kind.name, quantile(contender.us, 0.5), rate, rate / copy_gbps,
          rate_one_read / copy_gbps, load.sm_clock_mhz, load.power_w);
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
  json result = bench::new_result(options, sampler, "gpu_quantize", "GPU quantization", command);
  int status = 0;
  for (const Shape shape : kShapes) {
    ShapeRun shape_run(gpu, options, shape);
    for (const DType x : {DType::kBF16, DType::kF32}) {
      const std::vector<Contender> contenders = shape_run.run(x);
      for (json& row : rows_of(shape, shape_run.num_sets(), contenders, sampler)) {
        if (!row.at("skipped").is_null()) status = 1;
        result["rows"].push_back(std::move(row));
      }
    }
    bench::write_result(result, options.out);
  }
  return status;
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  options.num_rounds = 7;
  CLI::App app("Quantization on the GPU against a copy within device memory");
  bench::add_options(app, options);
  CLI11_PARSE(app, argc, argv);
  return bench::run_command("gpu_quantize_bench", argc, argv,
                            [&](const std::string& command) { return run(options, command); });
}
