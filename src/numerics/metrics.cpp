// SPDX-License-Identifier: Apache-2.0
// The public compare(): how far one tensor is from another, every sum in FP64.
#include "octavo/metrics.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "numerics/codec.hpp"
#include "octavo/error.hpp"

namespace octavo {
namespace {

Error refuse(const std::string& message) {
  return {ErrorCode::kInvalidArgument, "compare: " + message};
}

void check(const char* name, const TensorView& view) {
  if (view.rank < 0 || view.rank > kMaxRank) {
    throw refuse(
        fmt::format("{} has rank {}; a view has 0 to {} dimensions. Set rank to the "
                    "number of extents in shape.",
                    name, view.rank, kMaxRank));
  }
  if (!is_value_type(view.dtype)) {
    throw refuse(
        fmt::format("{} has dtype {}; values are e4m3, e5m2, bf16, f16 or f32. Dequantize "
                    "or convert it first.",
                    name, to_string(view.dtype)));
  }
  if (view.device.kind != DeviceKind::kCpu) {
    throw refuse(fmt::format("{} is on {}; both tensors must be in host memory. Copy it.", name,
                             to_string(view.device)));
  }
  bool empty = false;
  for (int i = 0; i < view.rank; ++i) {
    const std::int64_t extent = view.shape[static_cast<std::size_t>(i)];
    if (extent < 0) {
      throw refuse(
          fmt::format("{} has an extent of {}; no extent may be negative. Pass 0 for an "
                      "empty dimension.",
                      name, extent));
    }
    empty = empty || extent == 0;
  }
  if (view.data == nullptr && !empty) {
    throw refuse(
        fmt::format("{} has elements and no memory (data is null). Pass its address.", name));
  }
}

std::string shape_text(const TensorView& view) {
  std::string text = "[";
  for (int i = 0; i < view.rank; ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : ", ", view.shape[static_cast<std::size_t>(i)]);
  }
  return text + "]";
}

// FP32 bits in which every NaN is the same.
std::uint32_t canonical_bits(float value) {
  return std::isnan(value) ? kCanonicalNan : std::bit_cast<std::uint32_t>(value);
}

class Comparison {
 public:
  void add(float result, float reference) {
    const std::int64_t position = metrics_.num_elements++;
    const bool different = canonical_bits(result) != canonical_bits(reference);
    if (different) {
      ++metrics_.num_different_bits;
      if (metrics_.first_different < 0) metrics_.first_different = position;
    }
    if (!std::isfinite(result) || !std::isfinite(reference)) {
      if (different) ++metrics_.num_not_finite;
      return;
    }
    const double d = result;
    const double r = reference;
    const double error = std::abs(d - r);
    if (error > metrics_.max_abs) {
      metrics_.max_abs = error;
      metrics_.worst = position;
    }
    error_squared_ += error * error;
    result_squared_ += d * d;
    reference_squared_ += r * r;
    product_ += d * r;
    signed_error_ += d - r;
    reference_abs_ += std::abs(r);
    reference_max_ = std::max(reference_max_, std::abs(r));
  }

  [[nodiscard]] ErrorMetrics finish() {
    // Against all zeros every relative number is the absolute one.
    const auto relative_to = [](double value, double size) {
      return size > 0 ? value / size : value;
    };
    metrics_.relative_frobenius =
        relative_to(std::sqrt(error_squared_), std::sqrt(reference_squared_));
    metrics_.sqnr_db = metrics_.relative_frobenius > 0
                           ? -20 * std::log10(metrics_.relative_frobenius)
                           : std::numeric_limits<double>::infinity();
    metrics_.max_relative = relative_to(metrics_.max_abs, reference_max_);
    metrics_.mean_signed = relative_to(signed_error_, reference_abs_);
    const double lengths = std::sqrt(result_squared_) * std::sqrt(reference_squared_);
    if (lengths > 0) {
      metrics_.cosine_distance = 1 - product_ / lengths;
    } else {
      metrics_.cosine_distance = error_squared_ > 0 ? 1 : 0;
    }
    return metrics_;
  }

 private:
  ErrorMetrics metrics_;
  double error_squared_ = 0;
  double result_squared_ = 0;
  double reference_squared_ = 0;
  double product_ = 0;
  double signed_error_ = 0;
  double reference_abs_ = 0;
  double reference_max_ = 0;
};

// A view of four dimensions, the missing ones in front with extent 1.
struct Walk {
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> strides{};

  explicit Walk(const TensorView& view) {
    const auto rank = static_cast<std::size_t>(view.rank);
    for (std::size_t i = 0; i < rank; ++i) {
      shape[shape.size() - rank + i] = view.shape[i];
      strides[shape.size() - rank + i] = view.strides[i];
    }
  }
  [[nodiscard]] std::int64_t offset(std::int64_t i, std::int64_t j, std::int64_t k,
                                    std::int64_t l) const {
    return i * strides[0] + j * strides[1] + k * strides[2] + l * strides[3];
  }
};

}  // namespace

ErrorMetrics compare(const TensorView& result, const TensorView& reference) {
  check("result", result);
  check("reference", reference);
  if (result.rank != reference.rank ||
      !std::equal(result.shape.begin(), result.shape.begin() + result.rank,
                  reference.shape.begin())) {
    throw refuse(
        fmt::format("result has shape {} and reference {}; they must be equal. Slice or "
                    "transpose one of them.",
                    shape_text(result), shape_text(reference)));
  }
  const Walk d(result);
  const Walk r(reference);
  Comparison comparison;
  for (std::int64_t i = 0; i < d.shape[0]; ++i) {
    for (std::int64_t j = 0; j < d.shape[1]; ++j) {
      for (std::int64_t k = 0; k < d.shape[2]; ++k) {
        for (std::int64_t l = 0; l < d.shape[3]; ++l) {
          comparison.add(load_element(result.data, result.dtype, d.offset(i, j, k, l)),
                         load_element(reference.data, reference.dtype, r.offset(i, j, k, l)));
        }
      }
    }
  }
  return comparison.finish();
}

}  // namespace octavo
