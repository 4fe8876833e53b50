// SPDX-License-Identifier: Apache-2.0
// A warp-group that multiplies: wgmma from shared memory, promotion, and the release of stages.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/gemm/matrix_descriptor.cuh"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace octavo {

// One consumer warp-group. It multiplies parts of 64 rows of a tile.
template <GemmConfig config>
class Consumer {
 public:
  static constexpr bool promotes = config.sum == MainloopSum::kPromoted;
  static constexpr int parts = num_parts(config);
  static constexpr int part_registers = config.tile_n / 2;
  static_assert(!promotes || kScaleBlock % config.tile_n == 0, "a part has one scale of B");
  // wgmma multiplies 32 bytes of K at a time.
  static constexpr int steps = config.tile_k / 32;
  static constexpr int step_units = 32 / kDescriptorUnit;

  __device__ __forceinline__ Consumer(const GemmAddresses<config>& smem, int index)
      : smem_(smem), index_(index) {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    lane_ = thread % 32;
    row_ = thread / 32 * 16 + lane_ / 4;
    a_descriptor_ = lower_descriptor(smem.a(0) + part_row(config, index, 0) * kSwizzleBytes);
    b_descriptor_ = lower_descriptor(smem.b(0));
    // One lane a warp tells each block that shares a tile with this one that a stage is free.
    if constexpr (ClusterPosition<config>::size > 1) {
      const ClusterPosition<config> position;
      int peer = 0;
      if (lane_ < config.cluster_m) {
        peer = position.n * config.cluster_m + lane_;
      } else if (lane_ < num_sharers) {
        int other_n = lane_ - config.cluster_m;
        if (other_n >= position.n) ++other_n;
        peer = other_n * config.cluster_m + position.m;
      }
      empty_of_peer_ = ptx::shared_address_of_block(smem.empty(0), peer);
    }
  }

  static constexpr int num_sharers = config.cluster_m + config.cluster_n - 1;

  // The first `active` parts, one accumulator through all of K; one K-block is always in flight.
  // `all_issued` is called when the tensor core has the last one.
  template <int active, typename AllIssued>
  __device__ __forceinline__ void multiply_fast(const GemmParams& params,
                                                const AllIssued& all_issued) {
    static_assert(!promotes);
    static_assert(config.stages > 1, "the next stage must arrive while one is held");
    const int k_blocks = num_k_blocks(params);
    int previous = 0;
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      ptx::mbarrier_wait(smem_.full(ring_.stage), ring_.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int part = 0; part < active; ++part) issue(total[part], ring_.stage, part, k_block > 0);
      ptx::wgmma_commit();
      if (k_block > 0) {
        ptx::wgmma_wait<1>();
        release(previous);
      }
      previous = ring_.stage;
      ring_.advance();
    }
    all_issued();
    ptx::wgmma_wait<0>();
    release(previous);
  }

  // Totals of the sums of each K-block, of the first `active` parts. The scales of A's rows begin
  // `shift` behind the start of theirs.
  template <int active>
  __device__ __forceinline__ void multiply_promoted(const GemmParams& params, int shift) {
    // Adding to -0 keeps every bit of the first sum; a scaled sum starts at +0 by definition.
    const float start = is_block_scaled(config.recipe) ? 0.0F : -0.0F;
#pragma unroll
    for (int part = 0; part < active; ++part) {
#pragma unroll
      for (int i = 0; i < part_registers; ++i) total[part][i] = start;
    }
    int left = num_k_blocks(params);
    for (; left >= config.unroll_k; left -= config.unroll_k) {
#pragma unroll
      for (int i = 0; i < config.unroll_k; ++i) promote_k_block<active>(shift);
    }
    for (; left > 0; --left) promote_k_block<active>(shift);
  }

  // Passes over the stages of a tile of the other consumer.
  __device__ __forceinline__ void skip_tile(const GemmParams& params) {
    ring_.advance(num_k_blocks(params));
  }

  // Releases the stages of a tile that has nothing for this one.
  __device__ __forceinline__ void pass(const GemmParams& params) {
    for (int left = num_k_blocks(params); left > 0; --left) {
      ptx::mbarrier_wait(smem_.full(ring_.stage), ring_.parity);
      release(ring_.stage);
      ring_.advance();
    }
  }

  float total[parts][part_registers];

 private:
  __device__ __forceinline__ void release(int stage) {
    // The lanes that do not signal have read their scales, too.
    __syncwarp();
    if constexpr (ClusterPosition<config>::size == 1) {
      if (lane_ == 0) ptx::mbarrier_arrive(smem_.empty(stage));
    } else {
      if (lane_ < num_sharers) {
        ptx::mbarrier_arrive_in_cluster(empty_of_peer_ + stage * kBarrierBytes);
      }
    }
  }

  __device__ __forceinline__ void issue(float (&sums)[part_registers], int stage, int part,
                                        bool adds) {
    // PERF: two additions between the barrier and the first wgmma; whole descriptors made anew from
    // addresses kept the tensor core waiting (docs/experiments.md).
    constexpr int part_units =
        (part_row(config, 0, 1) - part_row(config, 0, 0)) * kSwizzleBytes / kDescriptorUnit;
    const unsigned a =
        a_descriptor_ + stage * (smem_.layout.a_stage_bytes / kDescriptorUnit) + part * part_units;
    const unsigned b = b_descriptor_ + stage * (smem_.layout.b_stage_bytes / kDescriptorUnit);
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      ptx::wgmma<config.a, config.b, config.tile_n>(sums, descriptor(a + step * step_units),
                                                    descriptor(b + step * step_units),
                                                    adds || step > 0);
    }
  }

  template <int active>
  __device__ __forceinline__ void promote_k_block(int shift) {
    const int stage = ring_.stage;
    ptx::mbarrier_wait(smem_.full(stage), ring_.parity);
    float b_scale = 1;
    if constexpr (config.recipe == ScaleRecipe::kBlock) {
      b_scale = ptx::load_shared(smem_.b_scale(stage));
    }
#pragma unroll
    for (int part = 0; part < active; ++part) {
      float a_scale[2] = {1, 1};
      if constexpr (is_block_scaled(config.recipe)) {
        const int row = part_row(config, index_, part) + row_ + shift;
        a_scale[0] = ptx::load_shared(smem_.a_scale(stage) + 4 * row);
        a_scale[1] = ptx::load_shared(smem_.a_scale(stage) + 4 * (row + 8));
      }
      float sums[part_registers];
      ptx::wgmma_fence();
      issue(sums, stage, part, false);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      const bool last = part == active - 1;
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
        promote_by_column(sums, part, a_scale, smem_.b_scale(stage));
        if (last) release(stage);
      } else {
        if (last) release(stage);
        if constexpr (config.recipe == ScaleRecipe::kBlock) {
          const float low = a_scale[0] * b_scale;
          const float high = a_scale[1] * b_scale;
#pragma unroll
          for (int j = 0; j < part_registers; ++j) {
            total[part][j] = fmaf((j & 2) != 0 ? high : low, sums[j], total[part][j]);
          }
        } else {
#pragma unroll
          for (int j = 0; j < part_registers; ++j) total[part][j] += sums[j];
        }
      }
    }
    ring_.advance();
  }

  __device__ __forceinline__ void promote_by_column(const float (&sums)[part_registers], int part,
                                                    const float (&a_scale)[2], unsigned b_scales) {
#pragma unroll
    for (int group = 0; group < config.tile_n / 8; ++group) {
      const int column = group * 8 + lane_ % 4 * 2;
      const float2 b_scale = ptx::load_shared_pair(b_scales + 4 * column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int j = group * 4 + r * 2;
        total[part][j] = fmaf(a_scale[r] * b_scale.x, sums[j], total[part][j]);
        total[part][j + 1] = fmaf(a_scale[r] * b_scale.y, sums[j + 1], total[part][j + 1]);
      }
    }
  }

  const GemmAddresses<config>& smem_;
  int index_;
  int lane_;
  int row_;
  unsigned a_descriptor_;
  unsigned b_descriptor_;
  unsigned empty_of_peer_ = 0;
  RingPosition<config.stages> ring_;
};

}  // namespace octavo
