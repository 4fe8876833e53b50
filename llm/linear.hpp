// SPDX-License-Identifier: Apache-2.0
// One weight W[N,K] in FP8, BF16 or F32 and its product with activations, x[M,K] W^T, through
// octavo::gemm. FP8 activations are quantized here, per call, from the F32 ones.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "llm/precision.hpp"
#include "llm/weight_buffer.hpp"
#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"

namespace octavo::llm {

// Memory for the activations' codes and scales, reserved once and used by every product in turn.
class ActivationScratch {
 public:
  // For products of up to max_rows rows of up to max_cols values.
  void reserve(std::int64_t max_rows, std::int64_t max_cols);

 private:
  friend class Linear;
  std::int64_t max_rows_ = 0;
  std::int64_t max_cols_ = 0;
  std::vector<std::uint16_t> values_;  // BF16, or FP8 codes in its first half
  std::vector<float> scales_;
};

class Linear {
 public:
  struct Shape {
    std::int64_t rows;  // N: outputs
    std::int64_t cols;  // K: inputs
  };

  // What an FP8 weight's input is multiplied in; see Precision::activations.
  struct Formats {
    NumberFormat weights;
    NumberFormat activations;
    ScaleRecipe fp8_recipe;  // kRow or kBlock
  };

  Linear() = default;

  // `weight` is [rows, cols]; converted to the format asked for.
  [[nodiscard]] static Linear from_f32(std::span<const float> weight, Shape shape,
                                       const Formats& formats, WeightArena& arena,
                                       const Execution& execution);

  // Takes codes and scales as they are: [rows] scales (kRow) or 128x128 blocks' (kBlock).
  [[nodiscard]] static Linear from_fp8(std::span<const std::uint8_t> codes,
                                       std::span<const float> scales, Shape shape,
                                       const Formats& formats, WeightArena& arena);

  // One value per output, added to every product; empty for none.
  void set_bias(std::vector<float> bias) { bias_ = std::move(bias); }

  // d[rows_of_x, N] = x[rows_of_x, K] W^T + bias. x and d are dense F32.
  void apply(const float* x, std::int64_t rows_of_x, float* d, ActivationScratch& scratch,
             const Execution& execution) const;

  [[nodiscard]] Shape shape() const noexcept { return shape_; }
  [[nodiscard]] const Formats& formats() const noexcept { return formats_; }

  // Bytes that one product reads: values and scales.
  [[nodiscard]] std::int64_t size_bytes() const noexcept;

  // Row `row` as F32: an embedding. Not for FP8 weights.
  void read_row(std::int64_t row, std::span<float> out) const;

 private:
  [[nodiscard]] TensorView weight_view() const;
  [[nodiscard]] TensorView scale_view() const;

  Shape shape_{};
  Formats formats_{};
  WeightBuffer values_;
  std::vector<float> scales_;
  std::vector<float> bias_;
};

}  // namespace octavo::llm
