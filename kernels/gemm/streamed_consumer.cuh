// SPDX-License-Identifier: Apache-2.0
// A warp-group of a streamed product: some rows of B, all rows of A of a tile.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/matrix_descriptor.cuh"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace octavo {

// Where in a tile a consumer's sums lie. Thread t of the warp-group holds, at [4 g + 2 r + c], the
// element of wgmma's row 16 (t / 32) + t % 32 / 4 + 8 r and column 2 (t % 4) + 8 g + c. Swapped,
// rows are B's and columns A's; otherwise rows are A's and columns B's.
template <GemmConfig config>
struct StreamedPart {
  static constexpr int registers = streamed_sums(config);
  static constexpr int num_groups = registers / 4;
  using Sums = float[registers];

  int consumer;

  [[nodiscard]] __device__ __forceinline__ int first_b_row() const {
    return consumer * streamed_b_rows(config);
  }
  // Row of A and row of B of sum 0, and how far from there those of sum `i` are.
  [[nodiscard]] __device__ __forceinline__ int a_row() const {
    return is_swapped(config) ? column() : row();
  }
  [[nodiscard]] __device__ __forceinline__ int b_row() const {
    return first_b_row() + (is_swapped(config) ? row() : column());
  }
  [[nodiscard]] static constexpr int a_offset(int i) {
    return is_swapped(config) ? column_offset(i) : row_offset(i);
  }
  [[nodiscard]] static constexpr int b_offset(int i) {
    return is_swapped(config) ? row_offset(i) : column_offset(i);
  }

 private:
  [[nodiscard]] static __device__ __forceinline__ int row() {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    return thread / 32 * 16 + thread % 32 / 4;
  }
  [[nodiscard]] static __device__ __forceinline__ int column() {
    return static_cast<int>(threadIdx.x) % 4 * 2;
  }
  [[nodiscard]] static constexpr int row_offset(int i) { return 8 * (i / 2 % 2); }
  [[nodiscard]] static constexpr int column_offset(int i) { return i / 4 * 8 + i % 2; }
};

template <GemmConfig config>
class StreamedConsumer {
 public:
  using Part = StreamedPart<config>;
  using Sums = typename Part::Sums;
  // Scales that change along wgmma's columns: one for each that a thread has, or those of B's one
  // or two blocks of 128 rows that the consumer has some of, for each of the thread's rows.
  static constexpr bool has_b_blocks = config.recipe == ScaleRecipe::kBlock && !is_swapped(config);
  static constexpr int num_column_scales = has_b_blocks ? 4 : Part::registers / 2;
  // Swapped, and B's blocks begin at multiples of 16 rows of the tile: all of a warp's are of one.
  static constexpr bool has_one_b_scale =
      config.recipe == ScaleRecipe::kBlock && is_swapped(config) && config.tile_n % 16 == 0;
  // Whether factors are loaded while the tensor core is busy: where registers are left for them, in
  // a longer body for those of two K-blocks. PERF: 16 of those for one find room in what
  // streamed_registers() leaves for the rest, without spills.
  static constexpr int spare_registers = config.unroll_k == 1 ? 16 : 0;
  static constexpr bool loads_early =
      streamed_registers(config) + (config.unroll_k - 1) * streamed_sums(config) +
          num_column_scales - spare_registers <=
      registers_of_thread(blocks_per_multiprocessor(config) * num_threads(config));

  // Its stages begin at `first_stage`.
  __device__ __forceinline__ StreamedConsumer(const GemmAddresses<config>& smem, const Part& part,
                                              int first_stage)
      : smem_(smem), part_(part), first_stage_(first_stage) {
    a_descriptor_ = lower_descriptor(smem.a(0));
    b_descriptor_ = lower_descriptor(smem.b(0) + part.first_b_row() * kSwizzleBytes);
  }

  // The sums of the next `k_blocks` stages, of which there is one at least.
  __device__ __forceinline__ void multiply(Sums& total, int k_blocks, const Tile& tile) {
    find_b_scales(tile);
    if constexpr (config.sum == MainloopSum::kPromoted) {
      // As Consumer::multiply_promoted starts.
      const float start = is_block_scaled(config.recipe) ? 0.0F : -0.0F;
#pragma unroll
      for (int i = 0; i < Part::registers; ++i) total[i] = start;
      int left = k_blocks;
      // PERF: unrolled by the compiler's own choice the sums of two K-blocks would spill.
#pragma unroll 1
      for (; left >= config.unroll_k; left -= config.unroll_k) promote<config.unroll_k>(total);
      if constexpr (config.unroll_k > 1) {
#pragma unroll 1
        for (; left > 0; --left) promote<1>(total);
      }
    } else {
      int previous = 0;
      for (int k_block = 0; k_block < k_blocks; ++k_block) {
        const int stage = first_stage_ + ring_.stage;
        ptx::mbarrier_wait(smem_.full(stage), ring_.parity);
        issue(total, stage, k_block > 0);
        if (k_block > 0) {
          ptx::wgmma_wait<1>();
          release(previous);
        }
        previous = stage;
        ring_.advance();
      }
      ptx::wgmma_wait<0>();
      release(previous);
    }
  }

 private:
  __device__ __forceinline__ void release(int stage) const {
    // The lanes that do not signal have read their scales, too.
    __syncwarp();
    if (threadIdx.x % 32 == 0) ptx::mbarrier_arrive(smem_.empty(stage));
  }

  __device__ __forceinline__ void issue(Sums& sums, int stage, bool adds) const {
    const unsigned a = a_descriptor_ + stage * (smem_.layout.a_stage_bytes / kDescriptorUnit);
    const unsigned b = b_descriptor_ + stage * (smem_.layout.b_stage_bytes / kDescriptorUnit);
    // wgmma multiplies 32 bytes of K at a time.
    constexpr int kStepBytes = 32;
    constexpr int step_units = kStepBytes / kDescriptorUnit;
    constexpr int width = streamed_width(config);
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < config.tile_k / kStepBytes; ++step) {
      const unsigned long long of_a = descriptor(a + step * step_units);
      const unsigned long long of_b = descriptor(b + step * step_units);
      if constexpr (is_swapped(config)) {
        ptx::wgmma<config.b, config.a, width>(sums, of_b, of_a, adds || step > 0);
      } else {
        ptx::wgmma<config.a, config.b, width>(sums, of_a, of_b, adds || step > 0);
      }
    }
    ptx::wgmma_commit();
  }

  // What the sums of a K-block are multiplied by: `column`, and by `row` if that is not in it yet.
  struct Factors {
    float row[2];
    float column[num_column_scales];  // has_b_blocks: [block][r]
  };

  // K-blocks one after the other; while one is promoted the next is multiplied.
  template <int count>
  __device__ __forceinline__ void promote(Sums& total) {
    float sums[count][Part::registers];
    int stages[count];
    Factors factors[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      stages[i] = first_stage_ + ring_.stage;
      ptx::mbarrier_wait(smem_.full(stages[i]), ring_.parity);
      issue(sums[i], stages[i], false);
      if constexpr (loads_early) load_factors(factors[i], stages[i]);
      ring_.advance();
      if (i > 0) {
        ptx::wgmma_wait<1>();
        finish(total, sums[i - 1], factors[i - 1], stages[i - 1]);
      }
    }
    ptx::wgmma_wait<0>();
    finish(total, sums[count - 1], factors[count - 1], stages[count - 1]);
  }

  __device__ __forceinline__ void finish(Sums& total, const Sums& sums, Factors& factors,
                                         int stage) const {
    if constexpr (!loads_early) load_factors(factors, stage);
    release(stage);
    add(total, sums, factors);
  }

  // Recipe kBlock: which of B's scales in a stage are those of this thread's rows of B.
  __device__ __forceinline__ void find_b_scales(const Tile& tile) {
    if constexpr (config.recipe == ScaleRecipe::kBlock && b_scales_of_stage(config) > 1) {
      const int before = tile.row_b % kScaleBlock;  // rows of the first block before the tile
      if constexpr (is_swapped(config)) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          b_scale_at_[r] = 4 * ((before + part_.b_row() + 8 * r) / kScaleBlock);
        }
      } else {
        const int first = before + part_.first_b_row();
        b_scale_at_[0] = 4 * (first / kScaleBlock);
        b_scale_at_[1] = b_scale_at_[0] + 4;
        columns_of_first_ = kScaleBlock - first % kScaleBlock;
      }
    }
  }

  __device__ __forceinline__ void load_factors(Factors& factors, int stage) const {
    if constexpr (!is_block_scaled(config.recipe)) return;
    const unsigned a_scale = smem_.a_scale(stage) + 4 * part_.a_row();
    const unsigned b_scale = smem_.b_scale(stage);
    if constexpr (is_swapped(config)) {
      load_columns(factors, a_scale);
    } else {
      factors.row[0] = ptx::load_shared(a_scale);
      factors.row[1] = ptx::load_shared(a_scale + 4 * 8);
    }
    if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
      const unsigned at = b_scale + 4 * part_.b_row();
      if constexpr (is_swapped(config)) {
        factors.row[0] = ptx::load_shared(at);
        factors.row[1] = ptx::load_shared(at + 4 * 8);
      } else {
        load_columns(factors, at);
      }
    } else {
      float of_b[2];
      of_b[0] = of_b[1] = ptx::load_shared(b_scale + b_scale_at_[0]);
      if constexpr (b_scales_of_stage(config) > 1 && !has_one_b_scale) {
        of_b[1] = ptx::load_shared(b_scale + b_scale_at_[1]);
      }
      if constexpr (has_b_blocks) {
#pragma unroll
        for (int i = 0; i < 4; ++i) factors.column[i] = factors.row[i % 2] * of_b[i / 2];
      } else if constexpr (has_one_b_scale) {
#pragma unroll
        for (int i = 0; i < num_column_scales; ++i) factors.column[i] *= of_b[0];
      } else {
        factors.row[0] = of_b[0];
        factors.row[1] = of_b[1];
      }
    }
  }

  // Of every column of the thread, in the order of the sums.
  __device__ __forceinline__ void load_columns(Factors& factors, unsigned at) const {
#pragma unroll
    for (int group = 0; group < Part::num_groups; ++group) {
      const float2 pair = ptx::load_shared_pair(at + 4 * 8 * group);
      factors.column[2 * group] = pair.x;
      factors.column[2 * group + 1] = pair.y;
    }
  }

  __device__ __forceinline__ void add(Sums& total, const Sums& sums, const Factors& factors) const {
    if constexpr (!is_block_scaled(config.recipe)) {
#pragma unroll
      for (int i = 0; i < Part::registers; ++i) total[i] += sums[i];
    } else {
#pragma unroll
      for (int i = 0; i < Part::registers; ++i) {
        total[i] = fmaf(factor_of(factors, i), sums[i], total[i]);
      }
    }
  }

  // The factor of sum `i`.
  [[nodiscard]] __device__ __forceinline__ float factor_of(const Factors& factors, int i) const {
    const int r = i / 2 % 2;
    if constexpr (has_b_blocks) {
      // PERF: blocks begin at multiples of 16 columns if tiles and consumers do.
      constexpr int kUnit = config.tile_n % 16 == 0 && streamed_b_rows(config) % 16 == 0 ? 16 : 8;
      const bool is_first =
          b_scales_of_stage(config) == 1 || Part::b_offset(i) / kUnit * kUnit < columns_of_first_;
      return is_first ? factors.column[r] : factors.column[2 + r];
    } else {
      const float of_column = factors.column[i / 4 * 2 + i % 2];
      return has_one_b_scale ? of_column : factors.row[r] * of_column;
    }
  }

  const GemmAddresses<config>& smem_;
  const Part& part_;
  unsigned a_descriptor_;
  unsigned b_descriptor_;
  int first_stage_;
  int b_scale_at_[2] = {};    // recipe kBlock: where in a stage B's scales are
  int columns_of_first_ = 0;  // not swapped: columns that have the first of them
  RingPosition<config.stages> ring_;
};

}  // namespace octavo
