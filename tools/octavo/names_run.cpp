// SPDX-License-Identifier: Apache-2.0
#include "names_run.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "launch_file.hpp"
#include "measure/gpu_kernel.hpp"
#include "measure/gpu_stream.hpp"
#include "octavo/device_memory.hpp"
#include "octavo/error.hpp"
#include "octavo/naming.hpp"
#include "octavo/quantize.hpp"
#include "random_data.hpp"

namespace octavo::cli {
namespace {

using measure::kGpu;

// A buffer is this many values, again and again: no power of two, so that rows are not alike.
constexpr std::int64_t kPool = 65'521;

std::vector<std::byte> pool_of(const LaunchBuffer& buffer, std::uint64_t seed) {
  const auto element = static_cast<std::size_t>(size_bytes(buffer.dtype));
  RandomStream random(seed);
  std::vector<std::byte> pool(static_cast<std::size_t>(kPool) * element);
  for (std::size_t i = 0; i < static_cast<std::size_t>(kPool); ++i) {
    const auto value = [&]() -> float {
      switch (buffer.fill) {
        case BufferFill::kNormal: return static_cast<float>(random.next_gaussian());
        case BufferFill::kUniform: return static_cast<float>(random.next_uniform());
        case BufferFill::kOnes: return 1;
        default: return 0;
      }
    }();
    std::uint32_t code = 0;
    if (buffer.dtype == DType::kF32) {
      std::memcpy(&code, &value, sizeof(code));
    } else if (buffer.dtype == DType::kI32) {
      code = static_cast<std::uint32_t>(static_cast<std::int32_t>(value));
    } else {
      code = encode(buffer.dtype, value);
    }
    std::memcpy(&pool[i * element], &code, element);
  }
  return pool;
}

class GenericRun {
 public:
  explicit GenericRun(const KernelLaunch& launch) : launch_(launch) {
    for (const LaunchArgument& argument : launch.arguments) {
      values_.push_back(0);
      if (const auto* buffer = std::get_if<LaunchBuffer>(&argument)) {
        const auto element = static_cast<std::size_t>(size_bytes(buffer->dtype));
        buffers_.push_back(*buffer);
        memories_.emplace_back(kGpu, static_cast<std::size_t>(buffer->count) * element);
        const void* data = memories_.back().data();
        std::memcpy(&values_.back(), &data, sizeof(data));
      } else if (const auto* number = std::get_if<std::int32_t>(&argument)) {
        std::memcpy(&values_.back(), number, sizeof(*number));
      } else if (const auto* real = std::get_if<float>(&argument)) {
        std::memcpy(&values_.back(), real, sizeof(*real));
      } else {
        values_.back() = std::get<std::uint64_t>(argument);
      }
    }
    for (std::uint64_t& value : values_) addresses_.push_back(&value);
  }

  NameTiming run(const NameEffectReport& report, const NameComparison& entry,
                 const NameRunOptions& options) {
    const measure::GpuKernel plain(gpu_, report.plain_cubin, entry.plain.name, launch_.shape);
    const measure::GpuKernel with_word(gpu_, report.with_word_cubin, entry.with_word.name,
                                       launch_.shape);
    NameTiming timing;
    const std::vector<std::byte> bits = outputs_of(plain);
    timing.same_bits = bits == outputs_of(with_word);
    timing.is_repeatable = bits == outputs_of(plain);
    const measure::Graph plain_graph(gpu_, [&] { launch_many(plain); });
    const measure::Graph word_graph(gpu_, [&] { launch_many(with_word); });
    for (int round = 0; round < options.rounds; ++round) {
      const auto measure_plain = [&] {
        timing.plain_us.push_back(microseconds(plain_graph, options.window_ms));
      };
      if (round % 2 == 0) measure_plain();
      timing.with_word_us.push_back(microseconds(word_graph, options.window_ms));
      if (round % 2 != 0) measure_plain();
    }
    return timing;
  }

 private:
  static constexpr int kLaunches = 8;  // of a graph

  // The same every time.
  void fill(const LaunchBuffer& buffer, std::uint64_t seed, const DeviceMemory& memory) const {
    if (buffer.fill == BufferFill::kPoison || buffer.fill == BufferFill::kZeros) {
      gpu_.fill(memory.data(), buffer.fill == BufferFill::kZeros ? 0 : 0xFF, memory.num_bytes());
      return;
    }
    const std::vector<std::byte> pool = pool_of(buffer, seed);
    DeviceMemory source(kGpu, pool.size());
    source.copy_from_host(pool.data(), pool.size());
    for (std::size_t done = 0; done < memory.num_bytes(); done += pool.size()) {
      gpu_.copy(static_cast<std::byte*>(memory.data()) + done, source.data(),
                std::min(pool.size(), memory.num_bytes() - done));
    }
    // What is copied from goes with this function.
    gpu_.wait();
  }

  // What one launch on fresh buffers leaves in all outputs.
  std::vector<std::byte> outputs_of(const measure::GpuKernel& kernel) {
    for (std::size_t i = 0; i < buffers_.size(); ++i) fill(buffers_[i], i + 1, memories_[i]);
    kernel.launch(addresses_.data());
    gpu_.wait();
    std::vector<std::byte> bytes;
    for (std::size_t i = 0; i < buffers_.size(); ++i) {
      if (!buffers_[i].is_output) continue;
      const std::size_t begin = bytes.size();
      bytes.resize(begin + memories_[i].num_bytes());
      memories_[i].copy_to_host(bytes.data() + begin, memories_[i].num_bytes());
    }
    return bytes;
  }

  void launch_many(const measure::GpuKernel& kernel) {
    for (int i = 0; i < kLaunches; ++i) kernel.launch(addresses_.data());
  }

  // After as much of the same work that does not count.
  static double microseconds(const measure::Graph& graph, double window_ms) {
    constexpr double kShortestMs = 1e-3;
    const double once = std::max(kShortestMs, graph.replay_ms(1));
    const auto count =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(std::ceil(window_ms / once)));
    (void)graph.replay_ms(count);
    return graph.replay_ms(count) * 1e3 / static_cast<double>(count * kLaunches);
  }

  const KernelLaunch& launch_;
  measure::GpuStream gpu_;
  std::vector<LaunchBuffer> buffers_;
  std::vector<DeviceMemory> memories_;  // of each buffer
  std::vector<std::uint64_t> values_;
  std::vector<void*> addresses_;
};

// What a name of Octavo's says; nothing if it is none.
std::vector<NameField> octavo_fields(const std::string& name) {
  try {
    return kernel_name_fields(name);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

std::optional<NameRun> run_names(const NameEffectReport& report, const NameComparison& entry,
                                 const std::filesystem::path& ptx, const NameRunOptions& options) {
  // Code runs on GPUs of its own generation only; Octavo's are of compute capability 9.0.
  if (!report.architecture.starts_with("sm_90")) return std::nullopt;
  if (const std::vector<NameField> fields = octavo_fields(entry.entry); !fields.empty()) {
    // One product is what is launched here.
    const NameField of_one{"grouping", "none"};
    if (std::find(fields.begin(), fields.end(), of_one) == fields.end()) return std::nullopt;
    const ProductExtents e = read_product_extents(ptx);
    return NameRun{
        time_octavo_names(report, entry, e.m, e.n, e.k, options.rounds, options.window_ms),
        2.0 * static_cast<double>(e.m) * static_cast<double>(e.n) * static_cast<double>(e.k)};
  }
  const std::optional<KernelLaunch> launch = read_launch(ptx, entry.parameter_bytes);
  if (!launch) return std::nullopt;
  return NameRun{GenericRun(*launch).run(report, entry, options), launch->flop};
}

}  // namespace octavo::cli
