// SPDX-License-Identifier: Apache-2.0
// A warp-group of a streamed product: 64 rows of B are wgmma's rows, rows of A its columns.
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
// element of row a_row() + 8 g + c of A and row b_row() + 8 r of B.
template <GemmConfig config>
struct StreamedPart {
  static constexpr int registers = streamed_sums(config);
  using Sums = float[registers];

  int consumer;

  __device__ __forceinline__ int first_b_row() const { return consumer * kWarpGroupRows; }
  __device__ __forceinline__ int a_row() const { return static_cast<int>(threadIdx.x) % 4 * 2; }
  __device__ __forceinline__ int b_row() const {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    return first_b_row() + thread / 32 * 16 + thread % 32 / 4;
  }
};

template <GemmConfig config>
class StreamedConsumer {
 public:
  using Part = StreamedPart<config>;
  using Sums = typename Part::Sums;

  // Its stages begin at `first_stage`.
  __device__ __forceinline__ StreamedConsumer(const GemmAddresses<config>& smem, const Part& part,
                                              int first_stage)
      : smem_(smem), part_(part), first_stage_(first_stage) {
    a_descriptor_ = lower_descriptor(smem.a(0));
    b_descriptor_ = lower_descriptor(smem.b(0) + part.first_b_row() * kSwizzleBytes);
  }

  // The sums of the next `k_blocks` stages, of which there is one at least.
  __device__ __forceinline__ void multiply(Sums& total, int k_blocks, const Tile& tile) {
    if constexpr (b_scales_of_stage(config) > 1) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        b_scale_at_[r] = 4 * ((tile.row_b % kScaleBlock + part_.b_row() + 8 * r) / kScaleBlock);
      }
    }
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
    ptx::wgmma_fence();
#pragma unroll
    for (int step = 0; step < config.tile_k / kStepBytes; ++step) {
      ptx::wgmma<config.b, config.a, config.tile_m>(sums, descriptor(b + step * step_units),
                                                    descriptor(a + step * step_units),
                                                    adds || step > 0);
    }
    ptx::wgmma_commit();
  }

  // K-blocks one after the other; while one is promoted the next is multiplied.
  template <int count>
  __device__ __forceinline__ void promote(Sums& total) {
    float sums[count][Part::registers];
    int stages[count];
#pragma unroll
    for (int i = 0; i < count; ++i) {
      stages[i] = first_stage_ + ring_.stage;
      ptx::mbarrier_wait(smem_.full(stages[i]), ring_.parity);
      issue(sums[i], stages[i], false);
      ring_.advance();
      if (i > 0) {
        ptx::wgmma_wait<1>();
        add(total, sums[i - 1], stages[i - 1]);
        release(stages[i - 1]);
      }
    }
    ptx::wgmma_wait<0>();
    add(total, sums[count - 1], stages[count - 1]);
    release(stages[count - 1]);
  }

  __device__ __forceinline__ void add(Sums& total, const Sums& sums, int stage) const {
    if constexpr (is_block_scaled(config.recipe)) {
      float b_scale[2];
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
        b_scale[0] = ptx::load_shared(smem_.b_scale(stage) + 4 * part_.b_row());
        b_scale[1] = ptx::load_shared(smem_.b_scale(stage) + 4 * (part_.b_row() + 8));
      } else {
        b_scale[0] = b_scale[1] = ptx::load_shared(smem_.b_scale(stage) + b_scale_at_[0]);
        if constexpr (b_scales_of_stage(config) > 1) {
          b_scale[1] = ptx::load_shared(smem_.b_scale(stage) + b_scale_at_[1]);
        }
      }
#pragma unroll
      for (int group = 0; group < config.tile_m / 8; ++group) {
        const float2 a_scale =
            ptx::load_shared_pair(smem_.a_scale(stage) + 4 * (part_.a_row() + 8 * group));
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const int j = group * 4 + r * 2;
          total[j] = fmaf(a_scale.x * b_scale[r], sums[j], total[j]);
          total[j + 1] = fmaf(a_scale.y * b_scale[r], sums[j + 1], total[j + 1]);
        }
      }
    } else {
#pragma unroll
      for (int i = 0; i < Part::registers; ++i) total[i] += sums[i];
    }
  }

  const GemmAddresses<config>& smem_;
  const Part& part_;
  unsigned a_descriptor_;
  unsigned b_descriptor_;
  int first_stage_;
  int b_scale_at_[2] = {};  // recipe kBlock: where in a stage the scale of each of its rows is
  RingPosition<config.stages> ring_;
};

}  // namespace octavo
