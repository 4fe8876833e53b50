// SPDX-License-Identifier: Apache-2.0
// The blocked product: D is cut into tiles, one task each; a task decodes its operands panel by
// panel into scratch memory, lets the kernels multiply panels, and finishes its tile of D. The
// order in which an element's products are summed depends on K, the splits and the instruction set
// alone. Kernels: blocked_kernels.hpp.
#include <algorithm>
#include <cstring>

#include "base/thread_pool.hpp"
#include "cpu/blocked_kernels.hpp"
#include "cpu/blocked_scratch.hpp"
#include "cpu/cpu_gemm.hpp"
#include "cpu/epilogue.hpp"
#include "cpu/gemm_operand.hpp"
#include "numerics/codec_array.hpp"

namespace octavo::cpu {
namespace {

// PERF: rows of A in a tile: each decoded element of B is used this often.
constexpr std::int64_t kMaxTileM = 256;
// PERF: columns of D in a tile of many rows: each packed element of A is used this often.
constexpr std::int64_t kMaxTileN = 1024;
// A panel of A is at most this large, half of a second-level cache.
constexpr std::int64_t kPanelBudgetBytes = 1 << 20;
// Tiles for each thread where D has few rows: threads that finish early take more of them.
constexpr std::int64_t kTilesPerThread = 4;
// Up to this many rows of A a product waits for B more than it computes.
constexpr std::int64_t kMaxStreamedRows = 16;
// PERF: a tile with less of B than this does not pay for its start.
constexpr std::int64_t kMinTileBytes = 128 << 10;
// Rows of D that leave a transposed tile together: those of BlockedKernels::transpose.
constexpr std::int64_t kRowsOutOfTransposed = 16;

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// How one problem is cut, and where a task's scratch memory holds what.
struct Plan {
  GemmExtents extents;
  std::int64_t tile_m;
  std::int64_t tile_n;
  std::int64_t num_tiles_m;
  std::int64_t num_tiles_n;
  std::int64_t pass_k;  // K of which a panel of A is held at a time: whole chunks
  std::int64_t panel_rows_a;
  std::int64_t panel_rows_b;  // of the tile, in whole groups
  // Offsets in bytes.
  std::size_t a_panel;
  std::size_t b_panel;
  std::size_t a_scale;
  std::size_t b_scale;
  std::size_t totals;
  std::size_t split_sums;
  std::size_t outer_scales;
  std::size_t rows;
  std::size_t raw;
  std::size_t scratch_bytes;
};

std::int64_t element_bytes(const BlockedKernels& kernels) { return kernels.bf16 ? 2 : 4; }

std::int64_t choose_tile_n(const BlockedKernels& kernels, const GemmExtents& extents,
                           std::int64_t other_tiles, int num_threads) {
  const std::int64_t tiles_worth_starting = extents.n * extents.k / kMinTileBytes;
  const std::int64_t wanted_tiles = std::clamp<std::int64_t>(
      tiles_worth_starting / other_tiles, (num_threads + other_tiles - 1) / other_tiles,
      std::max<std::int64_t>(1, num_threads * kTilesPerThread / other_tiles));
  const std::int64_t even = (extents.n + wanted_tiles - 1) / wanted_tiles;
  // Threads that share few rows evenly matter more than whole steps where memory is the limit.
  const std::int64_t step = kernels.single_row ? kernels.group_b : kernels.rows_b_at_a_time;
  return std::min(round_up(std::min(even, kMaxTileN), step), round_up(extents.n, kernels.group_b));
}

Plan make_plan(const BlockedKernels& kernels, const GemmProblem& problem, int num_threads) {
  Plan plan{};
  plan.extents = extents(problem);
  plan.tile_m = std::min(plan.extents.m, kMaxTileM);
  plan.num_tiles_m = (plan.extents.m + plan.tile_m - 1) / plan.tile_m;
  plan.tile_n =
      choose_tile_n(kernels, plan.extents, plan.num_tiles_m * plan.extents.batch, num_threads);
  plan.num_tiles_n = (plan.extents.n + plan.tile_n - 1) / plan.tile_n;
  plan.panel_rows_a = round_up(plan.tile_m, kernels.group_a);
  plan.panel_rows_b = round_up(plan.tile_n, kernels.group_b);
  const std::int64_t k = round_up(std::max<std::int64_t>(1, plan.extents.k), kScaleBlock);
  const std::int64_t chunks_in_budget =
      kPanelBudgetBytes / (plan.panel_rows_a * element_bytes(kernels) * kernels.chunk_k);
  plan.pass_k = std::max<std::int64_t>(1, chunks_in_budget) * kernels.chunk_k;
  const std::int64_t held_k = std::min(plan.pass_k, k);
  const std::int64_t chunk_k = std::min(kernels.chunk_k, k);
  const std::int64_t tile_elements = plan.panel_rows_a * plan.panel_rows_b;
  std::size_t end = 0;
  const auto reserve = [&end](std::int64_t bytes) {
    const std::size_t begin = end;
    end += static_cast<std::size_t>(round_up(bytes, kPanelVectorBytes));
    return begin;
  };
  constexpr std::int64_t kFloatBytes = sizeof(float);
  const std::int64_t rows_b = round_up(kernels.rows_b_at_a_time, kernels.group_b);
  plan.a_panel = reserve(plan.panel_rows_a * held_k * element_bytes(kernels));
  plan.b_panel = reserve(rows_b * chunk_k * element_bytes(kernels));
  plan.a_scale = reserve(plan.panel_rows_a * num_scale_blocks(held_k) * kFloatBytes);
  plan.b_scale = reserve(rows_b * num_scale_blocks(held_k) * kFloatBytes);
  plan.totals = reserve(tile_elements * kFloatBytes);
  plan.split_sums = reserve(problem.num_splits > 1 ? tile_elements * kFloatBytes : 0);
  plan.outer_scales = reserve((plan.panel_rows_a + plan.panel_rows_b) * kFloatBytes);
  plan.rows =
      reserve(std::max(kRowsOutOfTransposed * plan.panel_rows_b, plan.tile_m) * kFloatBytes);
  plan.raw = reserve(std::max(kernels.group_a, rows_b) * chunk_k * kFloatBytes);
  plan.scratch_bytes = end;
  return plan;
}

// Copies rows of elements that are not contiguous along K. Walks the source along its shorter
// stride: a transposed operand is read row by row of its memory.
template <typename Element>
void gather(const StridedMatrix& source, std::int64_t row, std::int64_t k_begin,
            std::int64_t num_rows, std::int64_t k, Element* out) {
  const auto* in = static_cast<const Element*>(source.address(row, k_begin));
  if (std::abs(source.row_stride) < std::abs(source.col_stride)) {
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t r = 0; r < num_rows; ++r) {
        out[r * k + i] = in[r * source.row_stride + i * source.col_stride];
      }
    }
    return;
  }
  for (std::int64_t r = 0; r < num_rows; ++r) {
    for (std::int64_t i = 0; i < k; ++i) {
      out[r * k + i] = in[r * source.row_stride + i * source.col_stride];
    }
  }
}

// The rows [row, row + num_rows) and K [k_begin, k_begin + k) of a matrix as pack functions take
// them, through `raw` if they are not contiguous along K.
PackArgs contiguous_rows(const StridedMatrix& source, std::int64_t row, std::int64_t num_rows,
                         std::int64_t k_begin, std::int64_t k, std::byte* raw) {
  const std::int64_t bytes = size_bytes(source.dtype);
  PackArgs args{.dtype = source.dtype, .num_rows = num_rows, .k = k};
  if (source.col_stride == 1 || k == 1) {
    args.rows = static_cast<const std::byte*>(source.address(row, k_begin));
    args.row_stride_bytes = source.row_stride * bytes;
    return args;
  }
  switch (bytes) {
    case 1: gather(source, row, k_begin, num_rows, k, reinterpret_cast<std::uint8_t*>(raw)); break;
    case 2: gather(source, row, k_begin, num_rows, k, reinterpret_cast<std::uint16_t*>(raw)); break;
    default: gather(source, row, k_begin, num_rows, k, reinterpret_cast<float*>(raw)); break;
  }
  args.rows = raw;
  args.row_stride_bytes = k * bytes;
  return args;
}

// out[block * stride + r] = scale of row `row` + r in K block first_block + block.
void stage_scales(const OperandScale& scale, ScaleGranularity granularity, std::int64_t row,
                  std::int64_t num_rows, std::int64_t first_block, std::int64_t num_blocks,
                  std::int64_t stride, float* out) {
  const bool same_for_all_rows = granularity == ScaleGranularity::kBlock128x128 &&
                                 row / kScaleBlock == (row + num_rows - 1) / kScaleBlock;
  for (std::int64_t block = 0; block < num_blocks; ++block) {
    float* to = out + block * stride;
    if (same_for_all_rows) {
      std::fill_n(to, num_rows, scale.at(row, first_block + block));
    } else {
      for (std::int64_t r = 0; r < num_rows; ++r) to[r] = scale.at(row + r, first_block + block);
    }
    // Rows that only fill up a group are multiplied too.
    std::fill(to + num_rows, to + stride, 0.0F);
  }
}

class TileTask {
 public:
  TileTask(const BlockedKernels& kernels, const GemmProblem& problem, const Plan& plan,
           std::int64_t task_idx, std::byte* scratch)
      : kernels_(kernels),
        problem_(problem),
        plan_(plan),
        batch_idx_(task_idx / (plan.num_tiles_m * plan.num_tiles_n)),
        a_(matrix_of(problem.a, batch_idx_)),
        b_(matrix_of(problem.b, batch_idx_)),
        a_scale_(a_scale_of(problem, batch_idx_)),
        b_scale_(b_scale_of(problem, batch_idx_)),
        scratch_(scratch) {
    const std::int64_t tile_idx = task_idx % (plan.num_tiles_m * plan.num_tiles_n);
    row_ = tile_idx / plan.num_tiles_n * plan.tile_m;
    col_ = tile_idx % plan.num_tiles_n * plan.tile_n;
    num_rows_ = std::min(plan.tile_m, plan.extents.m - row_);
    num_cols_ = std::min(plan.tile_n, plan.extents.n - col_);
    group_a_ = num_rows_ == 1 ? 1 : kernels.group_a;
    panel_rows_a_ = round_up(num_rows_, group_a_);
    panel_rows_b_ = round_up(num_cols_, kernels.group_b);
    outer_extent_ = kernels.totals_transposed ? panel_rows_b_ : panel_rows_a_;
    inner_extent_ = kernels.totals_transposed ? panel_rows_a_ : panel_rows_b_;
  }

  void run() {
    const Epilogue epilogue(problem_, batch_idx_);
    float* sums = floats(plan_.totals);
    if (plan_.extents.k == 0) {
      std::fill_n(sums, outer_extent_ * inner_extent_, epilogue.empty_sum());
    }
    if (kernels_.begin_products != nullptr) kernels_.begin_products(num_rows_);
    for (int split = 0; split < problem_.num_splits && plan_.extents.k > 0; ++split) {
      std::fill_n(floats(plan_.totals), outer_extent_ * inner_extent_, 0.0F);
      const KRange range = split_range(plan_.extents.k, split, problem_.num_splits);
      for (std::int64_t k = range.begin; k < range.end; k += plan_.pass_k) {
        multiply_pass(k, std::min(plan_.pass_k, range.end - k));
      }
      apply_outer_scales();
      if (problem_.num_splits > 1) sums = add_split(split);
    }
    if (kernels_.end_products != nullptr) kernels_.end_products();
    store(epilogue, sums);
  }

 private:
  [[nodiscard]] float* floats(std::size_t offset) const {
    return reinterpret_cast<float*>(scratch_ + offset);
  }

  [[nodiscard]] std::int64_t panel_bytes(std::int64_t num_panel_rows, std::int64_t k) const {
    return num_panel_rows * round_up(k * element_bytes(kernels_), kPanelVectorBytes);
  }

  void multiply_pass(std::int64_t k_begin, std::int64_t k) {
    const bool block_scaled = is_block_scaled(problem_.recipe);
    pack_a(k_begin, k);
    if (block_scaled) {
      stage_scales(a_scale_, a_granularity(problem_.recipe), row_, num_rows_, k_begin / kScaleBlock,
                   num_scale_blocks(k), panel_rows_a_, floats(plan_.a_scale));
    }
    std::byte* b_panel = scratch_ + plan_.b_panel;
    const std::int64_t rows_b = kernels_.rows_b_at_a_time;
    // With one group of A the panel of a pass is one long chunk.
    const bool streams =
        kernels_.streamed_product != nullptr && num_rows_ <= kernels_.group_a && b_.col_stride == 1;
    const std::int64_t max_chunk_k = streams ? k : kernels_.chunk_k;
    for (std::int64_t n = 0; n < num_cols_; n += rows_b) {
      const std::int64_t count = std::min(rows_b, num_cols_ - n);
      for (std::int64_t chunk = 0; chunk < k; chunk += max_chunk_k) {
        const std::int64_t chunk_k = std::min(max_chunk_k, k - chunk);
        PackArgs rows =
            contiguous_rows(b_, col_ + n, count, k_begin + chunk, chunk_k, scratch_ + plan_.raw);
        rows.group = kernels_.group_b;
        rows.panel = b_panel;
        if (num_rows_ <= kMaxStreamedRows && n + rows_b < num_cols_) {
          rows.prefetch_stride_bytes = rows_b * b_.row_stride * size_bytes(b_.dtype);
        }
        ProductArgs args{.a = scratch_ + plan_.a_panel + panel_bytes(panel_rows_a_, chunk),
                         .b = b_panel,
                         .num_rows_a = num_rows_,
                         .num_rows_b = count,
                         .k = chunk_k};
        if (block_scaled) {
          const std::int64_t stride = round_up(count, kernels_.group_b);
          stage_scales(b_scale_, b_granularity(problem_.recipe), col_ + n, count,
                       (k_begin + chunk) / kScaleBlock, num_scale_blocks(chunk_k), stride,
                       floats(plan_.b_scale));
          args.a_scale = floats(plan_.a_scale) + chunk / kScaleBlock * panel_rows_a_;
          args.a_scale_stride = panel_rows_a_;
          args.b_scale = floats(plan_.b_scale);
          args.b_scale_stride = stride;
        }
        args.totals = floats(plan_.totals) + n * (kernels_.totals_transposed ? inner_extent_ : 1);
        args.totals_stride = inner_extent_;
        if (streams) {
          kernels_.streamed_product(rows, args);
        } else {
          kernels_.pack_b(rows);
          kernels_.product(args);
        }
      }
    }
  }

  void pack_a(std::int64_t k_begin, std::int64_t k) {
    std::byte* panel = scratch_ + plan_.a_panel;
    for (std::int64_t chunk = 0; chunk < k; chunk += kernels_.chunk_k) {
      const std::int64_t chunk_k = std::min(kernels_.chunk_k, k - chunk);
      for (std::int64_t row = 0; row < num_rows_; row += group_a_) {
        const std::int64_t count = std::min(group_a_, num_rows_ - row);
        PackArgs rows =
            contiguous_rows(a_, row_ + row, count, k_begin + chunk, chunk_k, scratch_ + plan_.raw);
        rows.group = group_a_;
        rows.panel = panel;
        kernels_.pack_a(rows);
        panel += panel_bytes(group_a_, chunk_k);
      }
    }
  }

  // Tensor and row scales: one product of the two, then one with the sum.
  void apply_outer_scales() {
    if (problem_.recipe != ScaleRecipe::kTensor && problem_.recipe != ScaleRecipe::kRow) return;
    float* a_scales = floats(plan_.outer_scales);
    float* b_scales = a_scales + panel_rows_a_;
    load_outer_scales(problem_.a_scale, problem_.a.rank > 2, row_, num_rows_, a_scales);
    load_outer_scales(problem_.b_scale, problem_.b.rank > 2, col_, num_cols_, b_scales);
    // A single row of totals is the same either way, and longer.
    const bool transposed = kernels_.totals_transposed && num_rows_ > 1;
    const std::int64_t outer = transposed ? num_cols_ : num_rows_;
    const std::int64_t inner = transposed ? num_rows_ : num_cols_;
    const float* outer_scales = transposed ? b_scales : a_scales;
    const float* inner_scales = transposed ? a_scales : b_scales;
    for (std::int64_t o = 0; o < outer; ++o) {
      float* line = floats(plan_.totals) + o * inner_extent_;
      for (std::int64_t i = 0; i < inner; ++i) line[i] *= outer_scales[o] * inner_scales[i];
    }
  }

  // Scales of rows [row, row + count) of an operand; 1 where it has none.
  void load_outer_scales(const TensorView& scale, bool batched, std::int64_t row,
                         std::int64_t count, float* out) const {
    if (scale.absent()) {
      std::fill_n(out, count, 1.0F);
      return;
    }
    const std::size_t dim = batched ? 1 : 0;
    const std::int64_t stride = problem_.recipe == ScaleRecipe::kTensor ? 0 : scale.strides[dim];
    const std::int64_t first = (batched ? batch_idx_ * scale.strides[0] : 0) + row * stride;
    decode_strided(scale.dtype,
                   static_cast<const std::byte*>(scale.data) + first * size_bytes(scale.dtype),
                   stride, count, out, 1);
  }

  float* add_split(int split) {
    const float* totals = floats(plan_.totals);
    float* sums = floats(plan_.split_sums);
    const std::int64_t count = outer_extent_ * inner_extent_;
    if (split == 0) {
      std::copy_n(totals, count, sums);
    } else {
      for (std::int64_t i = 0; i < count; ++i) sums[i] += totals[i];
    }
    return sums;
  }

  void store(const Epilogue& epilogue, float* sums) {
    if (!kernels_.totals_transposed || num_rows_ == 1) {
      for (std::int64_t row = 0; row < num_rows_; ++row) {
        store_row(epilogue, row, sums + row * inner_extent_);
      }
      return;
    }
    float* rows = floats(plan_.rows);
    for (std::int64_t row = 0; row < num_rows_; row += kRowsOutOfTransposed) {
      const std::int64_t count = std::min(kRowsOutOfTransposed, num_rows_ - row);
      for (std::int64_t col = 0; col < num_cols_; col += kRowsOutOfTransposed) {
        kernels_.transpose(sums + col * inner_extent_ + row, inner_extent_, rows + col,
                           panel_rows_b_);
      }
      for (std::int64_t r = 0; r < count; ++r) {
        store_row(epilogue, row + r, rows + r * panel_rows_b_);
      }
    }
  }

  void store_row(const Epilogue& epilogue, std::int64_t row, float* sums) {
    const auto last = static_cast<std::size_t>(problem_.d.rank - 1);
    const bool plain = problem_.output_mode == OutputMode::kOverwrite && problem_.bias.absent() &&
                       problem_.d_scale.absent() &&
                       (problem_.d.strides[last] == 1 || num_cols_ == 1);
    if (!plain) {
      epilogue.store_row(row_ + row, col_, sums, num_cols_);
      return;
    }
    const StridedMatrix d = matrix_of(problem_.d, batch_idx_);
    // The view was const only on the way through matrix_of: D is a mutable tensor.
    void* out = const_cast<void*>(d.address(row_ + row, col_));  // NOLINT
    if (d.dtype == DType::kF32) {
      copy_with_canonical_nan(sums, num_cols_, static_cast<float*>(out));
    } else {
      encode_array(d.dtype, sums, num_cols_, out);
    }
  }

  const BlockedKernels& kernels_;
  const GemmProblem& problem_;
  const Plan& plan_;
  std::int64_t batch_idx_;
  StridedMatrix a_;
  StridedMatrix b_;
  OperandScale a_scale_;
  OperandScale b_scale_;
  std::byte* scratch_;
  std::int64_t row_ = 0;
  std::int64_t col_ = 0;
  std::int64_t num_rows_ = 0;
  std::int64_t num_cols_ = 0;
  std::int64_t group_a_ = 1;
  std::int64_t panel_rows_a_ = 0;
  std::int64_t panel_rows_b_ = 0;
  // Totals are [outer, inner]: [M, N], or [N, M] if the kernels say totals_transposed.
  std::int64_t outer_extent_ = 0;
  std::int64_t inner_extent_ = 0;
};

}  // namespace

Status blocked_gemm_on(const BlockedKernels& kernels, const GemmProblem& problem, int num_threads) {
  const int usable = num_usable_cores();
  const int threads = num_threads > 0 ? std::min(num_threads, usable) : usable;
  const Plan plan = make_plan(kernels, problem, threads);
  thread_local ScratchSlots slots;
  slots.reserve(threads, plan.scratch_bytes);
  ScratchSlots& shared_slots = slots;
  parallel_for(plan.extents.batch * plan.num_tiles_m * plan.num_tiles_n, threads,
               [&](std::int64_t task_idx) {
                 const ScratchSlots::Slot slot(shared_slots);
                 TileTask(kernels, problem, plan, task_idx, slot.data()).run();
               });
  return Ok{};
}

Status blocked_gemm(const GemmProblem& problem, int num_threads) {
  return blocked_gemm_on(best_kernels(problem.a.dtype, problem.b.dtype, extents(problem).m),
                         problem, num_threads);
}

}  // namespace octavo::cpu
