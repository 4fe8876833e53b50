// SPDX-License-Identifier: Apache-2.0
// Public requantization, made of the back end's dequantize and quantize: a stripe of rows at a
// time, so that the FP32 copy in between stays small.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "api/select_backend.hpp"
#include "api/validate.hpp"
#include "octavo/device_memory.hpp"
#include "octavo/quantize.hpp"

namespace octavo {
namespace {

// Rows [row, row + num_rows) of a matrix, or of a scale tensor.
template <typename Pointer>
BasicTensorView<Pointer> rows_of(BasicTensorView<Pointer> view, std::int64_t row,
                                 std::int64_t num_rows) {
  using Byte =
      std::conditional_t<std::is_const_v<std::remove_pointer_t<Pointer>>, const char, char>;
  view.data = static_cast<Byte*>(view.data) + row * view.strides[0] * size_bytes(view.dtype);
  view.shape[0] = num_rows;
  return view;
}

// The part of a scale tensor that belongs to a stripe of rows; a tensor's one scale to all.
template <typename Pointer>
BasicTensorView<Pointer> scales_of(const BasicTensorView<Pointer>& scale,
                                   ScaleGranularity granularity, std::int64_t row,
                                   std::int64_t num_rows) {
  switch (granularity) {
    case ScaleGranularity::kRow:
    case ScaleGranularity::kBlock1x128: return rows_of(scale, row, num_rows);
    case ScaleGranularity::kBlock128x128:
      return rows_of(scale, row / kScaleBlock, num_scale_blocks(num_rows));
    default: return scale;
  }
}

// Rows of a stripe, whole blocks of them. On the CPU a stripe stays in cache; on a GPU it fills the
// device. A tensor's one scale on a GPU takes all rows at once, for it is not read back.
std::int64_t rows_of_stripe(const RequantizeProblem& problem) {
  const std::int64_t rows = problem.q.shape[0];
  if (problem.q.device.kind == DeviceKind::kCpu) {
    return std::min<std::int64_t>(kScaleBlock, rows);
  }
  if (problem.granularity == ScaleGranularity::kTensor) return rows;
  constexpr std::int64_t kStripeElements = std::int64_t{1} << 26;  // 256 MiB of FP32
  const std::int64_t blocks =
      kStripeElements / kScaleBlock / std::max<std::int64_t>(1, problem.q.shape[1]);
  return std::min(rows, kScaleBlock * std::max<std::int64_t>(1, blocks));
}

void store_scale(const MutableTensorView& scale, float value) {
  if (scale.dtype == DType::kF32) {
    *static_cast<float*>(scale.data) = value;
  } else {
    *static_cast<std::uint8_t*>(scale.data) =
        static_cast<std::uint8_t>(encode(DType::kUE8M0, value));
  }
}

class Requantizer {
 public:
  Requantizer(const RequantizeProblem& problem, const Execution& execution)
      : problem_(problem),
        execution_(execution),
        device_(problem.q.device),
        cols_(problem.q.shape[1]),
        stripe_(rows_of_stripe(problem)) {}

  Result<QuantizeReport> run() {
    const Result<const Backend*> backend =
        select_backend("requantize", dequantize_problem(0, 0), execution_);
    if (!backend.ok()) return backend.error();
    backend_ = backend.value();
    allocate();
    if (problem_.q.num_elements() == 0) return run_empty();
    const bool many_stripes = stripe_ < problem_.q.shape[0];
    const bool one_scale = problem_.granularity == ScaleGranularity::kTensor;
    return one_scale && many_stripes ? run_tensor()
                                     : run_stripes(problem_.new_scale, ScaleSource::kDynamic);
  }

 private:
  void allocate() {
    const auto num_values = static_cast<std::size_t>(stripe_ * cols_);
    if (device_.kind == DeviceKind::kCpu) {
      values_.resize(num_values);
      values_memory_ = values_.data();
    } else if (num_values != 0) {
      device_values_ = DeviceMemory(device_, num_values * sizeof(float));
      values_memory_ = device_values_.data();
    }
  }

  // No codes, but perhaps scales; and perhaps more rows than could ever be walked.
  Result<QuantizeReport> run_empty() {
    QuantizeProblem empty;
    empty.x = values(problem_.q.shape[0]);
    empty.q = problem_.new_q;
    empty.granularity = problem_.granularity;
    empty.scale = problem_.new_scale;
    return backend_->quantize(empty, execution_);
  }

  // The tensor's new scale is the largest of its stripes' scales: division keeps order.
  Result<QuantizeReport> run_tensor() {
    float largest = 0;
    float stripe_scale = 0;
    std::vector<std::uint8_t> discarded(values_.size());
    QuantizeProblem measure;
    measure.granularity = problem_.granularity;
    measure.scale = make_view(&stripe_scale, DType::kF32, {1});
    for (std::int64_t row = 0; row < problem_.q.shape[0]; row += stripe_) {
      const std::int64_t num_rows = stripe_rows(row);
      Result<QuantizeReport> decoded =
          backend_->dequantize(dequantize_problem(row, num_rows), execution_);
      if (!decoded.ok()) return decoded;
      measure.x = values(num_rows);
      measure.q = make_view(discarded.data(), problem_.new_q.dtype, {num_rows, cols_});
      Result<QuantizeReport> measured = backend_->quantize(measure, execution_);
      if (!measured.ok()) return measured;
      largest = std::max(largest, stripe_scale);
    }
    // Read back from its final type: the codes must match the scale as stored.
    std::uint32_t stored = 0;
    MutableTensorView scale = make_view(&stored, problem_.new_scale.dtype, {1});
    store_scale(scale, largest);
    Result<QuantizeReport> report = run_stripes(scale, ScaleSource::kGiven);
    if (report.ok()) store_scale(problem_.new_scale, largest);
    return report;
  }

  Result<QuantizeReport> run_stripes(const MutableTensorView& new_scale, ScaleSource source) {
    Result<QuantizeReport> report = QuantizeReport{};
    for (std::int64_t row = 0; row < problem_.q.shape[0]; row += stripe_) {
      const std::int64_t num_rows = stripe_rows(row);
      report = backend_->dequantize(dequantize_problem(row, num_rows), execution_);
      if (!report.ok()) return report;
      QuantizeProblem quantized;
      quantized.x = values(num_rows);
      quantized.q = rows_of(problem_.new_q, row, num_rows);
      quantized.granularity = problem_.granularity;
      quantized.scale = scales_of(new_scale, problem_.granularity, row, num_rows);
      quantized.scale_source = source;
      report = backend_->quantize(quantized, execution_);
      if (!report.ok()) return report;
    }
    return report;
  }

  [[nodiscard]] std::int64_t stripe_rows(std::int64_t row) const {
    return std::min(stripe_, problem_.q.shape[0] - row);
  }
  [[nodiscard]] MutableTensorView values(std::int64_t num_rows) {
    return make_view(values_memory_, DType::kF32, {num_rows, cols_}, device_);
  }
  [[nodiscard]] DequantizeProblem dequantize_problem(std::int64_t row, std::int64_t num_rows) {
    return {rows_of(problem_.q, row, num_rows),
            scales_of(problem_.scale, problem_.granularity, row, num_rows), problem_.granularity,
            values(num_rows)};
  }

  const RequantizeProblem& problem_;
  const Execution& execution_;
  const Backend* backend_ = nullptr;
  Device device_;
  std::int64_t cols_;
  std::int64_t stripe_;
  // One of the two holds a stripe of FP32 values.
  std::vector<float> values_;
  DeviceMemory device_values_;
  void* values_memory_ = nullptr;
};

}  // namespace

QuantizeReport requantize(const RequantizeProblem& problem, const Execution& execution) {
  (void)validate(problem).value();
  (void)validate(execution).value();
  return Requantizer(problem, execution).run().value();
}

}  // namespace octavo
