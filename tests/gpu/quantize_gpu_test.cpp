// SPDX-License-Identifier: Apache-2.0
// Quantization and dequantization on a GPU against the CPU, byte for byte: codes, scales and the
// memory between them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "octavo/quantize.hpp"
#include "support/device_tensor.hpp"

namespace octavo::test {
namespace {

constexpr DType kWideTypes[] = {DType::kBF16, DType::kF16, DType::kF32};
constexpr DType kFp8Types[] = {DType::kE4M3, DType::kE5M2};
constexpr ScaleGranularity kGranularities[] = {ScaleGranularity::kTensor, ScaleGranularity::kRow,
                                               ScaleGranularity::kBlock1x128,
                                               ScaleGranularity::kBlock128x128};

enum class Layout : unsigned char {
  kDense,
  kPadded,      // rows begin at multiples of 16 elements, whatever their length
  kSlice,       // of rows that are 5 elements longer
  kTransposed,  // columns are contiguous
  kReversed,    // negative strides
};
constexpr Layout kLayouts[] = {Layout::kDense, Layout::kPadded, Layout::kSlice, Layout::kTransposed,
                               Layout::kReversed};

struct Case {
  ScaleGranularity granularity = ScaleGranularity::kRow;
  DType x = DType::kBF16;
  DType q = DType::kE4M3;
  DType scale = DType::kF32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  Layout x_layout = Layout::kDense;
  Layout q_layout = Layout::kDense;
  Layout scale_layout = Layout::kDense;
  ScaleSource source = ScaleSource::kDynamic;
  Data data = Data::kGaussian;
  float amax_floor = kDefaultAmaxFloor;
  std::size_t shift = 0;  // bytes by which x and q begin past an aligned address
  std::uint64_t seed = 1;
};

std::string describe(const Case& c) {
  std::ostringstream text;
  text << to_string(c.granularity) << ' ' << to_string(c.x) << ' ' << to_string(c.q) << ' '
       << to_string(c.scale) << " [" << c.rows << ", " << c.cols << "] layouts "
       << static_cast<int>(c.x_layout) << static_cast<int>(c.q_layout)
       << static_cast<int>(c.scale_layout)
       << (c.source == ScaleSource::kGiven ? " given " : " dynamic ") << to_string(c.data)
       << " floor " << c.amax_floor << " shift " << c.shift << " seed " << c.seed;
  return text.str();
}

// A matrix in memory of its own, in some layout.
class Placed {
 public:
  Placed(DType dtype, std::int64_t rows, std::int64_t cols, Layout layout)
      : memory_(dtype, {std::max<std::int64_t>(1, rows + kPad) *
                        std::max<std::int64_t>(1, cols + kPad + kRowMultiple)}) {
    view_ = memory_.view();
    view_.rank = 2;
    view_.shape = {rows, cols};
    constexpr std::int64_t kMore = 5;
    switch (layout) {
      case Layout::kDense: view_.strides = {cols, 1}; break;
      case Layout::kPadded:
        view_.strides = {(cols + kRowMultiple) / kRowMultiple * kRowMultiple, 1};
        break;
      case Layout::kSlice: view_.strides = {cols + kMore, 1}; break;
      case Layout::kTransposed: view_.strides = {1, rows}; break;
      case Layout::kReversed:
        view_.strides = {-cols, -1};
        if (rows > 0 && cols > 0) {
          view_.data = static_cast<char*>(view_.data) + (rows * cols - 1) * size_bytes(dtype);
        }
        break;
    }
  }

  [[nodiscard]] const MutableTensorView& view() const { return view_; }
  [[nodiscard]] HostTensor& memory() { return memory_; }

 private:
  static constexpr std::int64_t kPad = 6;
  static constexpr std::int64_t kRowMultiple = 16;

  HostTensor memory_;
  MutableTensorView view_;
};

// Device memory of a view equals the host's now, padding included.
void expect_same_bytes(const DeviceTensor& device, const TensorView& host, const char* what,
                       const std::string& text) {
  const std::vector<std::uint8_t> got = device.bytes();
  if (got.empty()) return;
  const auto* want = static_cast<const std::uint8_t*>(host.data) - device.first_element();
  const auto differs = std::mismatch(got.begin(), got.end(), want);
  EXPECT_TRUE(differs.first == got.end())
      << what << " byte " << differs.first - got.begin() << " of " << got.size() << ": "
      << static_cast<int>(*differs.first) << " instead of " << static_cast<int>(*differs.second)
      << "\n"
      << text;
}

// Wide data of any kind, with some NaN and infinities where it is not arbitrary anyway.
void fill(HostTensor& x, const Case& c, std::mt19937_64& random) {
  randomize(x, c.data, random);
  if (c.data != Data::kGaussian) return;
  const float special[] = {std::numeric_limits<float>::quiet_NaN(),
                           -std::numeric_limits<float>::quiet_NaN(),
                           std::numeric_limits<float>::infinity(),
                           -std::numeric_limits<float>::infinity(),
                           0.0F,
                           -0.0F,
                           1e-30F,
                           6e4F};
  constexpr std::uint64_t kOneIn = 300;
  for (std::int64_t i = 0; i < x.size(); ++i) {
    if (random() % kOneIn == 0) x.set(i, special[random() % std::size(special)]);
  }
}

void expect_equal(const Case& c) {
  std::mt19937_64 random(c.seed);
  Placed x(c.x, c.rows, c.cols, c.x_layout);
  Placed q(c.q, c.rows, c.cols, c.q_layout);
  const ScaleShape shape = scale_shape(c.granularity, c.rows, c.cols);
  Placed scale(c.scale, shape.rows, shape.cols, c.scale_layout);
  fill(x.memory(), c, random);
  q.memory().fill_bytes(0x5A);
  if (c.source == ScaleSource::kGiven) {
    std::uniform_real_distribution<float> exponent(-12.0F, 4.0F);
    for (std::int64_t i = 0; i < scale.memory().size(); ++i) {
      scale.memory().set(i, std::exp2(exponent(random)));
    }
  } else {
    scale.memory().fill_bytes(0x5A);
  }
  QuantizeProblem host;
  host.x = x.view();
  host.q = q.view();
  host.granularity = c.granularity;
  host.scale = scale.view();
  if (c.granularity == ScaleGranularity::kTensor) host.scale.rank = 1;
  host.scale_source = c.source;
  host.amax_floor = c.amax_floor;

  const DeviceTensor device_x(host.x, c.shift);
  const DeviceTensor device_q(host.q, c.shift);
  const DeviceTensor device_scale(host.scale);
  QuantizeProblem device = host;
  device.x = device_x.view();
  device.q = device_q.mutable_view();
  device.scale = device_scale.mutable_view();
  const QuantizeReport report = quantize(device, {.backend = "cuda"});
  Gpu::instance().synchronize();
  (void)quantize(host, {.backend = "cpu", .num_threads = 1});
  const std::string text = report.kernel + "\n" + describe(c);
  expect_same_bytes(device_q, host.q, "q", text);
  expect_same_bytes(device_scale, host.scale, "scale", text);
}

void expect_equal_back(const Case& c) {
  std::mt19937_64 random(c.seed);
  Placed x(c.x, c.rows, c.cols, c.x_layout);
  Placed q(c.q, c.rows, c.cols, c.q_layout);
  const ScaleShape shape = scale_shape(c.granularity, c.rows, c.cols);
  Placed scale(c.scale, shape.rows, shape.cols, c.scale_layout);
  randomize(q.memory(), Data::kAnyBits, random);
  x.memory().fill_bytes(0x5A);
  std::uniform_real_distribution<float> exponent(-126.0F, 126.0F);
  for (std::int64_t i = 0; i < scale.memory().size(); ++i) {
    scale.memory().set(i, std::exp2(exponent(random)));
  }
  DequantizeProblem host;
  host.q = q.view();
  host.granularity = c.granularity;
  host.x = x.view();
  if (c.granularity != ScaleGranularity::kNone) host.scale = scale.view();
  if (c.granularity == ScaleGranularity::kTensor) host.scale.rank = 1;

  const DeviceTensor device_x(host.x, c.shift);
  const DeviceTensor device_q(host.q, c.shift);
  const DeviceTensor device_scale(host.scale);
  DequantizeProblem device = host;
  device.x = device_x.mutable_view();
  device.q = device_q.view();
  device.scale = device_scale.view();
  const QuantizeReport report = dequantize(device, {.backend = "cuda"});
  Gpu::instance().synchronize();
  (void)dequantize(host, {.backend = "cpu", .num_threads = 1});
  expect_same_bytes(device_x, host.x, "x", report.kernel + "\n" + describe(c));
}

class QuantizeOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::driver().ok()) GTEST_SKIP() << cuda::driver().error().what();
    ASSERT_TRUE(cuda::device_info(0).ok()) << cuda::device_info(0).error().what();
  }
};

// Sizes around what a chunk, a scale block, a tile, a warp's row and a thread block's row hold.
std::int64_t draw_cols(std::mt19937_64& random) {
  constexpr std::int64_t kEdges[] = {1,    7,    8,    9,    100,  127,  128,  129,
                                     136,  255,  256,  264,  384,  512,  520,  1000,
                                     1024, 1032, 2048, 2056, 3000, 4096, 4104, 7168};
  return kEdges[random() % std::size(kEdges)];
}
std::int64_t draw_rows(std::mt19937_64& random) {
  constexpr std::int64_t kEdges[] = {1, 2, 5, 16, 31, 32, 33, 64, 127, 128, 129, 200};
  return kEdges[random() % std::size(kEdges)];
}

Case draw(ScaleGranularity granularity, DType x, std::mt19937_64& random) {
  Case c;
  c.granularity = granularity;
  c.x = x;
  c.q = kFp8Types[random() % 2];
  c.scale = random() % 3 == 0 ? DType::kUE8M0 : DType::kF32;
  c.rows = draw_rows(random);
  c.cols = draw_cols(random);
  // Half of the cases are served by vector instructions.
  if (random() % 2 == 0) {
    c.x_layout = kLayouts[random() % std::size(kLayouts)];
    c.q_layout = kLayouts[random() % std::size(kLayouts)];
    c.shift = random() % 3 * 4;
  } else if (random() % 2 == 0 || c.cols % 16 != 0) {
    c.x_layout = c.q_layout = Layout::kPadded;
  }
  c.scale_layout = kLayouts[random() % std::size(kLayouts)];
  constexpr Data kData[] = {Data::kGaussian, Data::kPositive, Data::kAnyBits};
  c.data = kData[random() % std::size(kData)];
  c.amax_floor = random() % 4 == 0 ? 2.0F : random() % 4 == 0 ? 0x1p-100F : kDefaultAmaxFloor;
  c.seed = random();
  return c;
}

template <typename Work>
void in_threads(std::uint64_t seed, const Work& work) {
  // Most of the time goes into compiling the kernels.
  std::vector<std::jthread> threads;
  for (const ScaleGranularity granularity : kGranularities) {
    for (const DType x : kWideTypes) threads.emplace_back(work, granularity, x, seed++);
  }
}

TEST_F(QuantizeOnGpu, codes_and_scales_have_the_cpus_bits) {
  in_threads(20261129, [](ScaleGranularity granularity, DType x, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    constexpr int kCases = 60;
    for (int i = 0; i < kCases && !testing::Test::HasFailure(); ++i) {
      expect_equal(draw(granularity, x, random));
    }
  });
}

TEST_F(QuantizeOnGpu, given_scales_are_used) {
  in_threads(7, [](ScaleGranularity granularity, DType x, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    constexpr int kCases = 20;
    for (int i = 0; i < kCases && !testing::Test::HasFailure(); ++i) {
      Case c = draw(granularity, x, random);
      c.source = ScaleSource::kGiven;
      expect_equal(c);
    }
  });
}

TEST_F(QuantizeOnGpu, dequantized_values_have_the_cpus_bits) {
  in_threads(11, [](ScaleGranularity granularity, DType x, std::uint64_t seed) {
    std::mt19937_64 random(seed);
    constexpr int kCases = 30;
    for (int i = 0; i < kCases && !testing::Test::HasFailure(); ++i) {
      Case c = draw(granularity, x, random);
      if (granularity == ScaleGranularity::kTensor && i % 3 == 0) {
        c.granularity = ScaleGranularity::kNone;
      }
      expect_equal_back(c);
    }
  });
}

TEST_F(QuantizeOnGpu, rows_longer_than_a_thread_block_holds) {
  for (const std::int64_t cols : {16384, 16392, 32768, 32776, 70000}) {
    for (const DType x : {DType::kBF16, DType::kF32}) {
      expect_equal({.x = x, .rows = 5, .cols = cols});
      expect_equal({.x = x, .rows = 3, .cols = cols, .x_layout = Layout::kSlice});
    }
  }
}

TEST_F(QuantizeOnGpu, more_tiles_than_fit_at_once) {
  for (const ScaleGranularity granularity : kGranularities) {
    expect_equal({.granularity = granularity, .rows = 4099, .cols = 2304});
    expect_equal({.granularity = granularity, .rows = 4096, .cols = 2048});
  }
}

TEST_F(QuantizeOnGpu, C17_a_row_may_be_repeated_by_a_stride_of_zero) {
  for (const ScaleGranularity granularity : kGranularities) {
    HostTensor row(DType::kBF16, {256});
    std::mt19937_64 random(3);
    randomize(row, Data::kGaussian, random);
    TensorView repeated = row.view();
    repeated.rank = 2;
    repeated.shape = {70, 256};
    repeated.strides = {0, 1};
    Placed q(DType::kE4M3, 70, 256, Layout::kDense);
    const ScaleShape shape = scale_shape(granularity, 70, 256);
    Placed scale(DType::kF32, shape.rows, shape.cols, Layout::kDense);
    QuantizeProblem host;
    host.x = repeated;
    host.q = q.view();
    host.granularity = granularity;
    host.scale = scale.view();
    if (granularity == ScaleGranularity::kTensor) host.scale.rank = 1;
    const DeviceTensor device_x(host.x);
    const DeviceTensor device_q(host.q);
    const DeviceTensor device_scale(host.scale);
    QuantizeProblem device = host;
    device.x = device_x.view();
    device.q = device_q.mutable_view();
    device.scale = device_scale.mutable_view();
    (void)quantize(device, {.backend = "cuda"});
    Gpu::instance().synchronize();
    (void)quantize(host, {.backend = "cpu"});
    expect_same_bytes(device_q, host.q, "q", to_string(granularity));
    expect_same_bytes(device_scale, host.scale, "scale", to_string(granularity));
  }
}

TEST_F(QuantizeOnGpu, without_rows_or_columns_only_scales_are_written) {
  for (const ScaleGranularity granularity : kGranularities) {
    for (const DType scale : {DType::kF32, DType::kUE8M0}) {
      for (const ScaleSource source : {ScaleSource::kDynamic, ScaleSource::kGiven}) {
        Case c{.granularity = granularity, .scale = scale, .rows = 300, .source = source};
        expect_equal(c);
        expect_equal_back(c);
        std::swap(c.rows, c.cols);
        expect_equal(c);
        expect_equal_back(c);
        c.cols = 0;
        expect_equal(c);
      }
    }
  }
}

// Whole blocks with F32 scales, requantized for UE8M0 ones; the second time where they lie.
TEST_F(QuantizeOnGpu, requantized_codes_and_scales_have_the_cpus_bits) {
  constexpr std::int64_t kRows = 300;
  constexpr std::int64_t kCols = 520;
  for (const ScaleGranularity granularity : kGranularities) {
    for (const DType new_scale_type : {DType::kUE8M0, DType::kF32}) {
      const bool in_place = new_scale_type == DType::kF32;
      const ScaleShape shape = scale_shape(granularity, kRows, kCols);
      Placed q(DType::kE4M3, kRows, kCols, Layout::kDense);
      Placed scale(DType::kF32, shape.rows, shape.cols, Layout::kDense);
      Placed new_q(DType::kE4M3, kRows, kCols, Layout::kPadded);
      Placed new_scale(new_scale_type, shape.rows, shape.cols, Layout::kDense);
      std::mt19937_64 random(9);
      randomize(q.memory(), Data::kGaussian, random);
      for (std::int64_t i = 0; i < scale.memory().size(); ++i) {
        scale.memory().set(i, std::ldexp(1.0F + static_cast<float>(random() % 100) / 100, -8));
      }
      RequantizeProblem host{q.view(), scale.view(), granularity, new_q.view(), new_scale.view()};
      if (in_place) {
        host.new_q = q.view();
        host.new_scale = scale.view();
      }
      if (granularity == ScaleGranularity::kTensor) host.scale.rank = host.new_scale.rank = 1;
      const DeviceTensor device_q(host.q);
      const DeviceTensor device_scale(host.scale);
      const DeviceTensor device_new_q(host.new_q);
      const DeviceTensor device_new_scale(host.new_scale);
      RequantizeProblem device = host;
      device.q = device_q.view();
      device.scale = device_scale.view();
      device.new_q = in_place ? device_q.mutable_view() : device_new_q.mutable_view();
      device.new_scale = in_place ? device_scale.mutable_view() : device_new_scale.mutable_view();
      (void)requantize(device, {.backend = "cuda"});
      (void)requantize(host, {.backend = "cpu"});
      const std::string text = std::string(to_string(granularity)) + (in_place ? " in place" : "");
      expect_same_bytes(in_place ? device_q : device_new_q, host.new_q, "q", text);
      expect_same_bytes(in_place ? device_scale : device_new_scale, host.new_scale, "scale", text);
    }
  }
}

// Two rows more than 2^31 elements apart.
TEST_F(QuantizeOnGpu, C19_offsets_have_64_bits) {
  constexpr std::int64_t kCols = 384;
  constexpr std::int64_t kApart = (std::int64_t{1} << 31) + 64;
  const Gpu& gpu = Gpu::instance();
  const auto elements = static_cast<std::size_t>(kApart + kCols);
  const cuda::DevicePointer x_memory = gpu.allocate(2 * elements);
  const cuda::DevicePointer q_memory = gpu.allocate(elements);
  for (const ScaleGranularity granularity : kGranularities) {
    Placed x(DType::kBF16, 2, kCols, Layout::kDense);
    Placed q(DType::kE4M3, 2, kCols, Layout::kDense);
    const ScaleShape shape = scale_shape(granularity, 2, kCols);
    Placed scale(DType::kF32, shape.rows, shape.cols, Layout::kDense);
    std::mt19937_64 random(5);
    randomize(x.memory(), Data::kGaussian, random);
    QuantizeProblem host;
    host.x = x.view();
    host.q = q.view();
    host.granularity = granularity;
    host.scale = scale.view();
    if (granularity == ScaleGranularity::kTensor) host.scale.rank = 1;
    const DeviceTensor device_scale(host.scale);
    QuantizeProblem device = host;
    device.x.data = reinterpret_cast<const void*>(x_memory);
    device.x.strides[0] = kApart;
    device.q.data = reinterpret_cast<void*>(q_memory);
    device.q.strides[0] = kApart;
    device.scale = device_scale.mutable_view();
    device.x.device = device.q.device = device.scale.device;
    const auto* row = static_cast<const std::uint8_t*>(host.x.data);
    gpu.upload(x_memory, row, 2 * kCols);
    gpu.upload(x_memory + 2 * kApart, row + 2 * kCols, 2 * kCols);
    (void)quantize(device, {.backend = "cuda"});
    gpu.synchronize();
    (void)quantize(host, {.backend = "cpu"});
    std::vector<std::uint8_t> got(2 * kCols);
    gpu.download(got.data(), q_memory, kCols);
    gpu.download(got.data() + kCols, q_memory + kApart, kCols);
    EXPECT_EQ(std::memcmp(got.data(), host.q.data, got.size()), 0) << to_string(granularity);
    expect_same_bytes(device_scale, host.scale, "scale", to_string(granularity));

    DequantizeProblem back{device.q, device.scale, granularity, {}};
    back.x = {const_cast<void*>(device.x.data),
              device.x.dtype,
              device.x.rank,
              device.x.shape,
              device.x.strides,
              device.x.device};
    (void)dequantize(back, {.backend = "cuda"});
    gpu.synchronize();
    MutableTensorView values = x.view();
    (void)dequantize({host.q, host.scale, granularity, values}, {.backend = "cpu"});
    std::vector<std::uint8_t> got_x(4 * kCols);
    gpu.download(got_x.data(), x_memory, 2 * kCols);
    gpu.download(got_x.data() + 2 * kCols, x_memory + 2 * kApart, 2 * kCols);
    EXPECT_EQ(std::memcmp(got_x.data(), values.data, got_x.size()), 0) << to_string(granularity);
  }
  gpu.free(x_memory);
  gpu.free(q_memory);
}

TEST_F(QuantizeOnGpu, what_is_not_served_is_refused_with_reasons) {
  HostTensor x(DType::kBF16, {4, 8});
  HostTensor q(DType::kE4M3, {4, 8});
  HostTensor scale(DType::kF32, {4});
  QuantizeProblem problem;
  problem.x = x.view();
  problem.q = q.view();
  problem.scale = scale.view();
  try {
    (void)quantize(problem, {.backend = "cuda"});
    FAIL() << "host memory was taken";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnsupported);
    EXPECT_NE(std::string(error.what()).find("device memory"), std::string::npos) << error.what();
  }
}

}  // namespace
}  // namespace octavo::test
