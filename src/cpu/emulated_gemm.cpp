// SPDX-License-Identifier: Apache-2.0
// The product as Hopper's FP8 tensor cores and an FP32 promotion loop compute it, to the bit
// (docs/numerics.md, section "What each mode computes"). The tensor core itself:
// numerics/tensor_core.hpp.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>

#include "base/thread_pool.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cpu/epilogue.hpp"
#include "cpu/gemm_operand.hpp"
#include "numerics/tensor_core.hpp"

namespace octavo::cpu {
namespace {

// A task's outputs. PERF: columns as tensor_core_products() decodes them; rows so that decoding b
// is a small part of the work while the sums stay in the first-level cache.
constexpr int kTileRows = 64;
constexpr int kTileCols = 64;
using Sums = std::array<float, kTileRows * kTileCols>;

struct Tile {
  std::int64_t row_begin;
  std::int64_t col_begin;
  int num_rows;
  int num_cols;
};

CodeMatrix codes_of(const StridedMatrix& matrix, std::int64_t row_begin) {
  return {static_cast<const std::uint8_t*>(matrix.data) + row_begin * matrix.row_stride,
          matrix.dtype, matrix.row_stride, matrix.col_stride};
}

class EmulatedProduct {
 public:
  EmulatedProduct(const GemmProblem& problem, std::int64_t batch_idx)
      : problem_(problem),
        k_(extents(problem).k),
        a_(matrix_of(problem.a, batch_idx)),
        b_(matrix_of(problem.b, batch_idx)),
        a_scale_(a_scale_of(problem, batch_idx)),
        b_scale_(b_scale_of(problem, batch_idx)),
        epilogue_(problem, batch_idx) {}

  void compute(const Tile& tile) const {
    Sums total;
    total.fill(epilogue_.empty_sum());
    for (int split_idx = 0; k_ > 0 && split_idx < problem_.num_splits; ++split_idx) {
      const KRange range = split_range(k_, split_idx, problem_.num_splits);
      Sums part;
      if (is_block_scaled(problem_.recipe)) {
        sum_block_scaled(tile, range, part);
      } else {
        sum_whole_scaled(tile, range, part);
      }
      for_each(tile, [&](int, int, std::size_t i) {
        total[i] = split_idx == 0 ? part[i] : total[i] + part[i];
      });
    }
    for (int row = 0; row < tile.num_rows; ++row) {
      epilogue_.store_row(tile.row_begin + row, tile.col_begin,
                          total.data() + static_cast<std::ptrdiff_t>(row) * kTileCols,
                          tile.num_cols);
    }
  }

 private:
  template <typename F>
  static void for_each(const Tile& tile, const F& f) {
    for (int row = 0; row < tile.num_rows; ++row) {
      for (int col = 0; col < tile.num_cols; ++col) {
        f(row, col, static_cast<std::size_t>(row) * kTileCols + static_cast<std::size_t>(col));
      }
    }
  }

  // out = tc(range.begin, range.end) of docs/numerics.md, from an absent accumulator.
  void multiply(const Tile& tile, KRange range, Sums& out) const {
    CodeMatrix a = codes_of(a_, tile.row_begin);
    CodeMatrix b = codes_of(b_, tile.col_begin);
    a.codes += range.begin * a.k_stride;
    b.codes += range.begin * b.k_stride;
    tensor_core_products(kHopper, a, tile.num_rows, b, tile.num_cols, range.end - range.begin,
                         ChainStart::kAbsent, {out.data(), kTileCols});
  }

  // Recipes none, tensor and row: the scale multiplies the finished sum.
  void sum_whole_scaled(const Tile& tile, KRange range, Sums& out) const {
    if (problem_.accumulation == Accumulation::kFast) {
      multiply(tile, range, out);
    } else {
      multiply(tile, {range.begin, std::min(range.begin + kScaleBlock, range.end)}, out);
      Sums block;
      for (std::int64_t k = range.begin + kScaleBlock; k < range.end; k += kScaleBlock) {
        multiply(tile, {k, std::min(k + kScaleBlock, range.end)}, block);
        for_each(tile, [&](int, int, std::size_t i) { out[i] = out[i] + block[i]; });
      }
    }
    std::array<float, kTileCols> b_scales{};
    for (int col = 0; col < tile.num_cols; ++col) {
      b_scales[static_cast<std::size_t>(col)] = b_scale_.at(tile.col_begin + col, 0);
    }
    for (int row = 0; row < tile.num_rows; ++row) {
      const float a_scale = a_scale_.at(tile.row_begin + row, 0);
      for (int col = 0; col < tile.num_cols; ++col) {
        const float scale = a_scale * b_scales[static_cast<std::size_t>(col)];
        float& value =
            out[static_cast<std::size_t>(row) * kTileCols + static_cast<std::size_t>(col)];
        value = value * scale;
      }
    }
  }

  // Block recipes: fin = fma(sa * sb, tc(k, k + 128), fin).
  void sum_block_scaled(const Tile& tile, KRange range, Sums& out) const {
    out.fill(0.0F);
    Sums block;
    std::array<float, kTileCols> b_scales{};
    for (std::int64_t k = range.begin; k < range.end; k += kScaleBlock) {
      multiply(tile, {k, std::min(k + kScaleBlock, range.end)}, block);
      const std::int64_t k_block_idx = k / kScaleBlock;
      for (int col = 0; col < tile.num_cols; ++col) {
        b_scales[static_cast<std::size_t>(col)] = b_scale_.at(tile.col_begin + col, k_block_idx);
      }
      for (int row = 0; row < tile.num_rows; ++row) {
        const float a_scale = a_scale_.at(tile.row_begin + row, k_block_idx);
        for (int col = 0; col < tile.num_cols; ++col) {
          const auto i = static_cast<std::size_t>(row) * kTileCols + static_cast<std::size_t>(col);
          out[i] = std::fma(a_scale * b_scales[static_cast<std::size_t>(col)], block[i], out[i]);
        }
      }
    }
  }

  const GemmProblem& problem_;
  std::int64_t k_;
  StridedMatrix a_;
  StridedMatrix b_;
  OperandScale a_scale_;
  OperandScale b_scale_;
  Epilogue epilogue_;
};

}  // namespace

Status emulated_gemm(const GemmProblem& problem, int num_threads) {
  const GemmExtents extent = extents(problem);
  const std::int64_t row_tiles = (extent.m + kTileRows - 1) / kTileRows;
  const std::int64_t col_tiles = (extent.n + kTileCols - 1) / kTileCols;
  parallel_for(extent.batch * row_tiles * col_tiles, num_threads, [&](std::int64_t task_idx) {
    const EmulatedProduct product(problem, task_idx / (row_tiles * col_tiles));
    const std::int64_t row_begin = task_idx / col_tiles % row_tiles * kTileRows;
    const std::int64_t col_begin = task_idx % col_tiles * kTileCols;
    product.compute({row_begin, col_begin,
                     static_cast<int>(std::min<std::int64_t>(kTileRows, extent.m - row_begin)),
                     static_cast<int>(std::min<std::int64_t>(kTileCols, extent.n - col_begin))});
  });
  return Ok{};
}

}  // namespace octavo::cpu
