// SPDX-License-Identifier: Apache-2.0
// The oracle: every product and sum in FP64, one rounding at the end. num_splits and accumulation
// do not matter here, for there is no rounding that they could move. Meant to be read, not timed.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "base/thread_pool.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cpu/epilogue.hpp"
#include "cpu/gemm_operand.hpp"

namespace octavo::cpu {
namespace {

// Outputs of a task are kTile x kTile; both operands' tiles of one scale block fit in a stack.
constexpr int kTile = 16;
using OperandTile = std::array<std::array<double, kScaleBlock>, kTile>;

// The FP32 value from which a narrower type rounds as if from `value` itself: an inexact
// conversion is cut towards zero and its last bit set, so that no later tie is a false one
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using
// rounding to odd", 2008).
float rounded_to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value)) return nearest;
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;
  return std::bit_cast<float>(bits | 1U);
}

struct Tile {
  std::int64_t row_begin;
  std::int64_t col_begin;
  int num_rows;
  int num_cols;
};

void load(const StridedMatrix& matrix, std::int64_t row_begin, int num_rows, std::int64_t k_begin,
          int count, OperandTile& out) {
  for (int row = 0; row < num_rows; ++row) {
    for (int i = 0; i < count; ++i) {
      out[static_cast<std::size_t>(row)][static_cast<std::size_t>(i)] =
          matrix.at(row_begin + row, k_begin + i);
    }
  }
}

class ReferenceProduct {
 public:
  ReferenceProduct(const GemmProblem& problem, std::int64_t batch_idx)
      : problem_(problem),
        k_(extents(problem).k),
        a_(matrix_of(problem.a, batch_idx)),
        b_(matrix_of(problem.b, batch_idx)),
        a_scale_(a_scale_of(problem, batch_idx)),
        b_scale_(b_scale_of(problem, batch_idx)),
        d_(matrix_of(problem.d, batch_idx)) {}

  void compute(const Tile& tile) const {
    std::array<std::array<double, kTile>, kTile> sums{};
    OperandTile a_tile;
    OperandTile b_tile;
    for (std::int64_t k_begin = 0; k_begin < k_; k_begin += kScaleBlock) {
      const auto count = static_cast<int>(std::min<std::int64_t>(kScaleBlock, k_ - k_begin));
      load(a_, tile.row_begin, tile.num_rows, k_begin, count, a_tile);
      load(b_, tile.col_begin, tile.num_cols, k_begin, count, b_tile);
      for (int row = 0; row < tile.num_rows; ++row) {
        const double a_scale = a_scale_.at(tile.row_begin + row, k_begin / kScaleBlock);
        for (int col = 0; col < tile.num_cols; ++col) {
          const auto r = static_cast<std::size_t>(row);
          const auto c = static_cast<std::size_t>(col);
          double sum = 0;
          for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
            sum += a_tile[r][i] * b_tile[c][i];
          }
          const double b_scale = b_scale_.at(tile.col_begin + col, k_begin / kScaleBlock);
          sums[r][c] += sum * (a_scale * b_scale);
        }
      }
    }
    for (int row = 0; row < tile.num_rows; ++row) {
      for (int col = 0; col < tile.num_cols; ++col) {
        store(tile.row_begin + row, tile.col_begin + col,
              sums[static_cast<std::size_t>(row)][static_cast<std::size_t>(col)]);
      }
    }
  }

 private:
  void store(std::int64_t row, std::int64_t col, double value) const {
    if (problem_.output_mode == OutputMode::kAccumulate) {
      // K = 0 leaves an element as it is, -0 too.
      value = k_ == 0 ? d_.at(row, col) : value + d_.at(row, col);
    }
    if (problem_.bias.present()) {
      value +=
          load_element(problem_.bias.data, problem_.bias.dtype, col * problem_.bias.strides[0]);
    }
    if (problem_.d_scale.present()) value /= load_element(problem_.d_scale.data, DType::kF32, 0);
    const float narrowed =
        d_.dtype == DType::kF32 ? static_cast<float>(value) : rounded_to_odd(value);
    // The view is const only because matrix_of() serves the inputs too.
    void* out = const_cast<void*>(d_.data);  // NOLINT(cppcoreguidelines-pro-type-const-cast)
    store_element(out, d_.dtype, row * d_.row_stride + col * d_.col_stride,
                  canonical_nan(narrowed));
  }

  const GemmProblem& problem_;
  std::int64_t k_;
  StridedMatrix a_;
  StridedMatrix b_;
  OperandScale a_scale_;
  OperandScale b_scale_;
  StridedMatrix d_;
};

}  // namespace

Status reference_gemm(const GemmProblem& problem, int num_threads) {
  const GemmExtents extent = extents(problem);
  const std::int64_t row_tiles = (extent.m + kTile - 1) / kTile;
  const std::int64_t col_tiles = (extent.n + kTile - 1) / kTile;
  parallel_for(extent.batch * row_tiles * col_tiles, num_threads, [&](std::int64_t task_idx) {
    const ReferenceProduct product(problem, task_idx / (row_tiles * col_tiles));
    const std::int64_t row_begin = task_idx / col_tiles % row_tiles * kTile;
    const std::int64_t col_begin = task_idx % col_tiles * kTile;
    product.compute({row_begin, col_begin,
                     static_cast<int>(std::min<std::int64_t>(kTile, extent.m - row_begin)),
                     static_cast<int>(std::min<std::int64_t>(kTile, extent.n - col_begin))});
  });
  return Ok{};
}

}  // namespace octavo::cpu
