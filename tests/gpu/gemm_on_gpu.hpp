// SPDX-License-Identifier: Apache-2.0
// What the GPU tests of products share: a problem's tensors in device memory, and the comparison
// with the CPU's emulated numerics, bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "octavo/gemm.hpp"
#include "support/bit_comparison.hpp"
#include "support/device_tensor.hpp"
#include "support/gemm_data.hpp"

namespace octavo::test {

inline constexpr Execution kEmulated{.backend = "cpu", .numerics = Numerics::kEmulated};

inline constexpr ScaleRecipe kRecipes[] = {ScaleRecipe::kNone, ScaleRecipe::kTensor,
                                           ScaleRecipe::kRow, ScaleRecipe::kBlock,
                                           ScaleRecipe::kBlock1d};

// Bytes by which operands begin past a multiple of 256.
struct Shifts {
  std::size_t a = 0;
  std::size_t b = 0;
};

// A problem's tensors in device memory, and the problem on them.
struct DeviceGemm {
  explicit DeviceGemm(const GemmProblem& host, Shifts shifts = {})
      : a(host.a, shifts.a),
        b(host.b, shifts.b),
        d(host.d),
        a_scale(host.a_scale),
        b_scale(host.b_scale),
        bias(host.bias),
        d_scale(host.d_scale),
        problem(host) {
    problem.a = a.view();
    problem.b = b.view();
    problem.d = d.mutable_view();
    problem.a_scale = a_scale.view();
    problem.b_scale = b_scale.view();
    problem.bias = bias.view();
    problem.d_scale = d_scale.view();
  }

  DeviceTensor a, b, d, a_scale, b_scale, bias, d_scale;
  GemmProblem problem;
};

// Whether D in device memory has the bits of `host`'s, computed by now, and what lies between its
// elements was left alone.
[[nodiscard]] inline ::testing::AssertionResult same_output(const DeviceGemm& device,
                                                            const GemmProblem& host,
                                                            const std::string& repeat) {
  const std::vector<std::uint8_t> bytes = device.d.bytes();
  if (bytes.empty()) return ::testing::AssertionSuccess();
  TensorView got = host.d;
  got.data = bytes.data() + device.d.first_element();
  if (::testing::AssertionResult same = same_bits(got, host.d, repeat); !same) return same;
  const auto* want = static_cast<const std::uint8_t*>(host.d.data) - device.d.first_element();
  if (std::memcmp(bytes.data(), want, bytes.size()) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "bytes between D's elements changed\nrepeat: " << repeat;
}

// Both back ends on the same data.
inline void expect_equal_bits(const GemmSpec& spec, GemmProblem host, Shifts shifts = {},
                              const std::string& layout = "") {
  const DeviceGemm device(host, shifts);
  Gpu::instance().synchronize();
  const GemmReport report = gemm(device.problem, {.backend = "cuda"});
  Gpu::instance().synchronize();
  (void)gemm(host, kEmulated);
  EXPECT_TRUE(same_output(device, host,
                          report.kernel + "\n" + repeat_line(spec, Numerics::kEmulated) + layout));
}
inline void expect_equal_bits(const GemmSpec& spec) {
  GemmData data(spec);
  expect_equal_bits(spec, data.problem());
}

class GemmOnGpu : public testing::Test {
 protected:
  void SetUp() override {
    if (!cuda::driver().ok()) GTEST_SKIP() << cuda::driver().error().what();
    ASSERT_TRUE(cuda::device_info(0).ok()) << cuda::device_info(0).error().what();
  }
};

// How a matrix of rows and columns lies in memory.
enum class Layout : unsigned char {
  kDense,
  kPadded,       // rows of an odd stride
  kTransposed,   // rows are adjacent, columns a stride apart
  kUpwards,      // the last row first
  kBackwards,    // every row from its end
  kEverySecond,  // elements of a row two apart
  kSameRow,      // one row for all: row stride 0
  kSameColumn,   // one column for all
  kOverlapping,  // row i begins at element i
};
inline constexpr Layout kOutputLayouts[] = {Layout::kDense,      Layout::kPadded,
                                            Layout::kTransposed, Layout::kUpwards,
                                            Layout::kBackwards,  Layout::kEverySecond};
inline constexpr Layout kLayouts[] = {
    Layout::kDense,      Layout::kPadded,      Layout::kTransposed, Layout::kUpwards,     //
    Layout::kBackwards,  Layout::kEverySecond, Layout::kSameRow,    Layout::kSameColumn,  //
    Layout::kOverlapping};

[[nodiscard]] inline const char* to_string(Layout layout) {
  switch (layout) {
    case Layout::kDense: return "dense";
    case Layout::kPadded: return "padded";
    case Layout::kTransposed: return "transposed";
    case Layout::kUpwards: return "upwards";
    case Layout::kBackwards: return "backwards";
    case Layout::kEverySecond: return "every second";
    case Layout::kSameRow: return "same row";
    case Layout::kSameColumn: return "same column";
    case Layout::kOverlapping: return "overlapping";
  }
  return "?";
}

// A matrix, or a batch of them, in memory of its own in a layout.
class LaidOut {
 public:
  LaidOut(DType dtype, std::int64_t batch, std::int64_t rows, std::int64_t cols, Layout layout,
          std::int64_t batch_padding = 0) {
    constexpr std::int64_t kPadding = 5;
    std::int64_t row = cols;
    std::int64_t col = 1;
    switch (layout) {
      case Layout::kDense: break;
      case Layout::kPadded: row = cols + kPadding; break;
      case Layout::kTransposed:
        row = 1;
        col = rows + kPadding;
        break;
      case Layout::kUpwards: row = -cols; break;
      case Layout::kBackwards: col = -1; break;
      case Layout::kEverySecond:
        row = 2 * cols + 1;
        col = 2;
        break;
      case Layout::kSameRow: row = 0; break;
      case Layout::kSameColumn:
        row = 1;
        col = 0;
        break;
      case Layout::kOverlapping: row = 1; break;
    }
    const auto magnitude = [](std::int64_t x) { return x < 0 ? -x : x; };
    const std::int64_t matrix =
        rows == 0 || cols == 0 ? 0 : (rows - 1) * magnitude(row) + (cols - 1) * magnitude(col) + 1;
    const std::int64_t step = matrix + batch_padding;
    memory_ = HostTensor(dtype, {step * (batch > 0 ? batch : 1) + 1});
    view_.dtype = dtype;
    view_.rank = batch > 0 ? 3 : 2;
    if (batch > 0) {
      view_.shape = {batch, rows, cols};
      view_.strides = {step, row, col};
    } else {
      view_.shape = {rows, cols};
      view_.strides = {row, col};
    }
    first_ = (row < 0 && rows > 0 ? (rows - 1) * -row : 0) +
             (col < 0 && cols > 0 ? (cols - 1) * -col : 0);
  }

  [[nodiscard]] HostTensor& memory() { return memory_; }
  [[nodiscard]] MutableTensorView view() {
    MutableTensorView view = view_;
    view.data = memory_.bytes().data() + first_ * size_bytes(view_.dtype);
    return view;
  }

 private:
  HostTensor memory_;
  MutableTensorView view_;
  std::int64_t first_ = 0;
};

}  // namespace octavo::test
