// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/gemm_measurement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>
#include <utility>

#include "backend/backend.hpp"
#include "cuda/gemm_launch.hpp"
#include "octavo/scale.hpp"

namespace octavo::cuda {
namespace {

// Values that operands repeat; not a multiple of any row, so that rows differ.
constexpr std::size_t kPoolCodes = 4'000'037;
constexpr std::size_t kPoolScales = 40'009;
// Four times the second-level cache of an H200.
constexpr double kBytesOfSets = 240e6;
constexpr int kMaxSets = 64;

void require(const Status& status) {
  if (!status.ok()) throw status.error();
}

std::int64_t padded(std::int64_t extent) {
  constexpr std::int64_t kRow = 16;  // what kernels read in place
  return (extent + kRow - 1) / kRow * kRow;
}

template <typename Pointer>
auto matrix(Pointer* data, DType dtype, std::int64_t rows, std::int64_t cols, std::int64_t stride,
            Device device) {
  auto view = make_view(data, dtype, {rows, cols}, device);
  view.strides[0] = stride;
  return view;
}

}  // namespace

GemmMeasurement::GemmMeasurement(const DeviceInfo& device, const GemmProblem& problem,
                                 double window_ms)
    : device_(device), api_(driver().value()), window_ms_(window_ms) {
  std::mt19937_64 random(1);
  std::normal_distribution<float> gaussian(0, 100);
  std::uniform_real_distribution<float> exponent(-0.5F, 0.5F);
  // Both types read any byte but these as finite.
  codes_.resize(kPoolCodes);
  for (std::uint8_t& code : codes_) {
    code = static_cast<std::uint8_t>(encode(DType::kE4M3, gaussian(random)));
    if ((code & 0x7FU) >= 0x7CU) code = 0x30;
  }
  scales_.resize(kPoolScales);
  for (float& scale : scales_) scale = std::exp2(exponent(random));
  const ContextScope scope(api_, device_.context);
  constexpr unsigned kNonBlocking = 1;  // CU_STREAM_NON_BLOCKING
  require(api_.check(api_.StreamCreate(&stream_, kNonBlocking), "cuStreamCreate"));
  require(api_.check(api_.EventCreate(&begin_, 0), "cuEventCreate"));
  require(api_.check(api_.EventCreate(&end_, 0), "cuEventCreate"));
  try {
    make_sets(problem);
  } catch (...) {
    release();
    throw;
  }
}

GemmMeasurement::~GemmMeasurement() { release(); }

void GemmMeasurement::release() const {
  const ContextScope scope(api_, device_.context);
  (void)api_.StreamSynchronize(stream_);
  (void)api_.EventDestroy(begin_);
  (void)api_.EventDestroy(end_);
  (void)api_.StreamDestroy(stream_);
}

void GemmMeasurement::fill(DeviceMemory& memory, const DeviceMemory& pool) const {
  const auto address = [](const void* data) { return reinterpret_cast<DevicePointer>(data); };
  const ContextScope scope(api_, device_.context);
  for (std::size_t done = 0; done < memory.num_bytes();) {
    const std::size_t some = std::min(pool.num_bytes(), memory.num_bytes() - done);
    require(api_.check(
        api_.MemcpyDtoDAsync(address(memory.data()) + done, address(pool.data()), some, stream_),
        "cuMemcpyDtoDAsync"));
    done += some;
  }
}

void GemmMeasurement::make_sets(const GemmProblem& problem) {
  const Device where{DeviceKind::kCuda, device_.ordinal};
  const auto row = static_cast<std::size_t>(problem.a.rank - 2);
  const std::int64_t m = problem.a.shape[row];
  const std::int64_t n = problem.b.shape[row];
  const std::int64_t k = problem.a.shape[row + 1];
  const std::int64_t k_stride = padded(k);
  DeviceMemory codes(where, codes_.size());
  codes.copy_from_host(codes_.data(), codes.num_bytes());
  DeviceMemory scales(where, scales_.size() * sizeof(float));
  scales.copy_from_host(scales_.data(), scales.num_bytes());
  if (problem.bias.present()) {
    bias_ = DeviceMemory(where, static_cast<std::size_t>(n) * sizeof(float));
    fill(bias_, scales);
  }
  const auto bytes = static_cast<double>((m + n) * k_stride);
  const int num_sets = std::clamp(static_cast<int>(std::ceil(kBytesOfSets / bytes)), 2, kMaxSets);
  const auto constant = [](const DeviceMemory& memory) {
    return static_cast<const void*>(memory.data());
  };
  for (int i = 0; i < num_sets; ++i) {
    Set set;
    set.a = DeviceMemory(where, static_cast<std::size_t>(m * k_stride));
    set.b = DeviceMemory(where, static_cast<std::size_t>(n * k_stride));
    set.d =
        DeviceMemory(where, static_cast<std::size_t>(m * padded(n) * size_bytes(problem.d.dtype)));
    fill(set.a, codes);
    fill(set.b, codes);
    GemmProblem& p = set.problem;
    p.a = matrix(constant(set.a), problem.a.dtype, m, k, k_stride, where);
    p.b = matrix(constant(set.b), problem.b.dtype, n, k, k_stride, where);
    p.d = matrix(set.d.data(), problem.d.dtype, m, n, padded(n), where);
    p.recipe = problem.recipe;
    p.accumulation = problem.accumulation;
    p.output_mode = problem.output_mode;
    p.num_splits = problem.num_splits;
    if (problem.bias.present()) p.bias = make_view(constant(bias_), DType::kF32, {n}, where);
    const auto scale = [&](ScaleGranularity granularity, std::int64_t rows, DeviceMemory& memory) {
      if (granularity == ScaleGranularity::kNone) return TensorView{};
      const ScaleShape shape = scale_shape(granularity, rows, k);
      memory = DeviceMemory(
          where, static_cast<std::size_t>(padded(shape.rows) * shape.cols) * sizeof(float));
      fill(memory, scales);
      if (!is_block_scaled(p.recipe)) {
        return make_view(constant(memory), DType::kF32, {shape.rows}, where);
      }
      // Neighbouring rows adjacent: read in place.
      TensorView view = make_view(constant(memory), DType::kF32, {shape.rows, shape.cols}, where);
      view.strides = {1, padded(shape.rows)};
      return view;
    };
    p.a_scale = scale(a_granularity(p.recipe), m, set.a_scale);
    p.b_scale = scale(b_granularity(p.recipe), n, set.b_scale);
    sets_.push_back(std::move(set));
  }
  wait();
}

void GemmMeasurement::wait() const {
  const ContextScope scope(api_, device_.context);
  require(api_.check(api_.StreamSynchronize(stream_), "the stream's work"));
}

void GemmMeasurement::launch(const PreparedGemm& kernel, const Set& set) const {
  require(launch_gemm(device_, set.problem, {.stream = stream_}, kernel));
}

void GemmMeasurement::launch_on_poison(const PreparedGemm& kernel, const Set& set) const {
  {
    // What is added to is 0; what is overwritten must not look like a result.
    const ContextScope scope(api_, device_.context);
    const unsigned char old = set.problem.output_mode == OutputMode::kAccumulate ? 0 : 0xFF;
    require(api_.check(api_.MemsetD8Async(reinterpret_cast<DevicePointer>(set.d.data()), old,
                                          set.d.num_bytes(), stream_),
                       "cuMemsetD8Async"));
  }
  launch(kernel, set);
  wait();
}

std::vector<std::uint8_t> GemmMeasurement::result(const PreparedGemm& kernel) {
  const Set& set = sets_.front();
  launch_on_poison(kernel, set);
  std::vector<std::uint8_t> bytes(set.d.num_bytes());
  set.d.copy_to_host(bytes.data(), bytes.size());
  return bytes;
}

void GemmMeasurement::check(const PreparedGemm& kernel) {
  const Set& set = sets_.front();
  const GemmProblem& p = set.problem;
  const std::int64_t n = p.b.shape[0];
  const std::int64_t k = p.a.shape[1];
  const auto k_stride = static_cast<std::size_t>(p.a.strides[0]);
  const auto element = static_cast<std::size_t>(size_bytes(p.d.dtype));
  launch_on_poison(kernel, set);
  // The first and the last row, and the last columns: the kernel's edges.
  const std::int64_t columns = std::min<std::int64_t>(n, kScaleBlock);
  const std::int64_t first_column = (n - columns) / kScaleBlock * kScaleBlock;
  const std::int64_t num_columns = n - first_column;
  const std::int64_t k_blocks = num_scale_blocks(k);
  std::vector<std::uint8_t> b(static_cast<std::size_t>(num_columns) * k_stride);
  for (std::size_t i = 0; i < b.size(); ++i) {
    b[i] = codes_[(static_cast<std::size_t>(first_column) * k_stride + i) % kPoolCodes];
  }
  const auto scale_at = [this](std::int64_t position) {
    return scales_[static_cast<std::size_t>(position) % kPoolScales];
  };
  for (const std::int64_t row : {std::int64_t{0}, p.a.shape[0] - 1}) {
    std::vector<std::uint8_t> a(k_stride);
    for (std::size_t i = 0; i < a.size(); ++i) {
      a[i] = codes_[(static_cast<std::size_t>(row) * k_stride + i) % kPoolCodes];
    }
    // Scales of one row, and of the columns, as the emulation reads them.
    std::vector<float> a_scale(static_cast<std::size_t>(k_blocks), scale_at(0));
    std::vector<float> b_scale(static_cast<std::size_t>(num_columns * k_blocks), scale_at(0));
    std::vector<float> bias(static_cast<std::size_t>(num_columns));
    for (std::int64_t c = 0; c < num_columns; ++c) {
      bias[static_cast<std::size_t>(c)] = scale_at(first_column + c);
    }
    std::vector<std::uint8_t> want(static_cast<std::size_t>(num_columns) * element);
    GemmProblem one;
    one.a = make_view(static_cast<const void*>(a.data()), p.a.dtype, {1, k});
    one.b = matrix(static_cast<const void*>(b.data()), p.b.dtype, num_columns, k, p.a.strides[0],
                   Device{});
    one.d = make_view(static_cast<void*>(want.data()), p.d.dtype, {1, num_columns});
    one.recipe = p.recipe;
    one.accumulation = p.accumulation;
    one.num_splits = kernel.plan.config.num_splits;
    if (p.bias.present()) {
      one.bias = make_view(static_cast<const void*>(bias.data()), DType::kF32, {num_columns});
    }
    const auto view = [](const std::vector<float>& values, std::int64_t rows, std::int64_t cols) {
      return make_view(static_cast<const void*>(values.data()), DType::kF32, {rows, cols});
    };
    if (is_block_scaled(p.recipe)) {
      for (std::int64_t block = 0; block < k_blocks; ++block) {
        a_scale[static_cast<std::size_t>(block)] = scale_at(block * p.a_scale.strides[1] + row);
      }
      const bool by_column = p.recipe == ScaleRecipe::kBlock1d;
      const std::int64_t first = by_column ? first_column : first_column / kScaleBlock;
      const std::int64_t rows = by_column ? num_columns : num_scale_blocks(num_columns);
      for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t block = 0; block < k_blocks; ++block) {
          b_scale[static_cast<std::size_t>(r * k_blocks + block)] =
              scale_at(block * p.b_scale.strides[1] + first + r);
        }
      }
      one.a_scale = view(a_scale, 1, k_blocks);
      one.b_scale = view(b_scale, rows, k_blocks);
    } else if (p.recipe != ScaleRecipe::kNone) {
      const bool by_row = p.recipe == ScaleRecipe::kRow;
      a_scale[0] = scale_at(by_row ? row : 0);
      for (std::int64_t c = 0; c < num_columns; ++c) {
        b_scale[static_cast<std::size_t>(c)] = scale_at(by_row ? first_column + c : 0);
      }
      one.a_scale = view(a_scale, 1, 1);
      one.a_scale.rank = 1;
      one.b_scale = view(b_scale, by_row ? num_columns : 1, 1);
      one.b_scale.rank = 1;
    }
    Result<GemmReport> emulated =
        registry().back()->gemm(one, {.backend = "cpu", .numerics = Numerics::kEmulated});
    if (!emulated.ok()) throw emulated.error();
    std::vector<std::uint8_t> got(want.size());
    set.d.copy_to_host(got.data(), got.size(),
                       static_cast<std::size_t>(row * p.d.strides[0] + first_column) * element);
    if (got != want) {
      throw Error(ErrorCode::kInternal,
                  fmt::format("tune: row {} of the result of {} differs from the emulated tensor "
                              "core. Report this.",
                              row, kernel.kernel));
    }
  }
}

double GemmMeasurement::window_ms(const PreparedGemm& kernel, std::int64_t launches) const {
  const ContextScope scope(api_, device_.context);
  require(api_.check(api_.EventRecord(begin_, stream_), "cuEventRecord"));
  for (std::int64_t i = 0; i < launches; ++i) {
    launch(kernel, sets_[static_cast<std::size_t>(i) % sets_.size()]);
  }
  require(api_.check(api_.EventRecord(end_, stream_), "cuEventRecord"));
  wait();
  float ms = 0;
  require(api_.check(api_.EventElapsedTime(&ms, begin_, end_), "cuEventElapsedTime"));
  return ms;
}

double GemmMeasurement::microseconds(const PreparedGemm& kernel) {
  constexpr std::int64_t kFirst = 8;
  constexpr double kShortestMs = 1e-3;
  constexpr std::int64_t kMost = 20'000;
  const double once =
      std::max(kShortestMs, window_ms(kernel, kFirst)) / static_cast<double>(kFirst);
  const auto launches =
      std::clamp<std::int64_t>(std::llround(std::ceil(window_ms_ / once)), kFirst, kMost);
  (void)window_ms(kernel, launches);
  return window_ms(kernel, launches) * 1e3 / static_cast<double>(launches);
}

}  // namespace octavo::cuda
