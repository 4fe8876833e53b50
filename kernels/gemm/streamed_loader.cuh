// SPDX-License-Identifier: Apache-2.0
// The warp of a streamed product's team that loads tiles of A and B.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/producer.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// The split of K that a team of this thread block has of every tile.
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ int split_of(int team) {
  return static_cast<int>(blockIdx.x) % cluster_size(config) * streamed_teams(config) + team;
}

// K-blocks [first, last).
struct KRange {
  int first;
  int last;
};

// Split i of n begins at block floor(i * blocks / n) (docs/numerics.md, "Splits").
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ KRange k_range(const GemmParams& params, int split) {
  constexpr int n = config.num_splits;
  const auto boundary = [&](int i) {
    return static_cast<int>(static_cast<long long>(i) * num_k_blocks(params) / n);
  };
  return {boundary(split), boundary(split + 1)};
}

// A warp's work. PERF: all of its threads come along, and one of them does what must be done once:
// the compiler then knows addresses to be the same for the warp. In one thread's branch it does
// not, and every load became a loop over threads that might differ.
template <GemmConfig config>
class StreamedLoader {
 public:
  __device__ __forceinline__ StreamedLoader(const GemmArguments<config>& arguments,
                                            const GemmAddresses<config>& smem, int team)
      : arguments_(arguments),
        smem_(smem),
        split_(split_of<config>(team)),
        first_stage_(team * config.stages),
        is_elected_(ptx::elect_one()) {}

  // The barriers of the team's stages.
  __device__ __forceinline__ void init_barriers() const {
    if (!is_elected_) return;
    constexpr int kWarps = kWarpGroupThreads / 32;
    for (int i = 0; i < config.stages; ++i) {
      ptx::mbarrier_init(smem_.full(first_stage_ + i), full_arrivals<config>(ScalePath::kCopy));
      ptx::mbarrier_init(smem_.empty(first_stage_ + i), kWarps * streamed_consumers(config));
    }
    ptx::fence_mbarrier_init();
  }

  // B's part of the first stages of the first tile, before A may be read. PERF: A waits behind what
  // is loaded early, which costs more than it brings where A has many rows (docs/experiments.md,
  // "Before the kernel before has ended").
  __device__ __forceinline__ void load_b_early(const Tile& tile) {
    constexpr int kFewRows = 32;
    constexpr int kMost = config.tile_m <= kFewRows || config.stages < 2 ? config.stages : 2;
    const GemmParams& params = product_of(arguments_, tile);
    const KRange range = k_range<config>(params, split_);
    early_ = min(kMost, range.last - range.first);
    if (!is_elected_) return;
    for (int i = 0; i < early_; ++i) load_b(first_stage_ + i, range.first + i, tile);
  }

  // A team's split of a tile. With `lets_next_start` the next kernel's thread blocks may come
  // shortly before the last loads.
  __device__ __forceinline__ void load(const Tile& tile, bool lets_next_start) {
    // PERF: so long does a kernel take to begin (docs/experiments.md, "Teams").
    constexpr int kLead = 4;
    const GemmParams& params = product_of(arguments_, tile);
    const KRange range = k_range<config>(params, split_);
    const int starts_next = max(range.first, range.last - 1 - kLead);
    for (int k_block = range.first; k_block < range.last; ++k_block) {
      const int stage = first_stage_ + ring_.stage;
      if (lets_next_start && k_block == starts_next) ptx::let_next_kernel_start();
      const bool has_b = k_block < range.first + early_;
      if (!has_b) ptx::mbarrier_wait(smem_.empty(stage), ring_.parity ^ 1);
      if (is_elected_) {
        if (!has_b) load_b(stage, k_block, tile);
        const int k = k_block * config.tile_k;
        if constexpr (config.grouping == Grouping::kRows) {
          ptx::tma_load(smem_.a(stage), &params.a, smem_.full(stage), k, tile.row_a,
                        matrix_of(arguments_, tile));
        } else {
          ptx::tma_load(smem_.a(stage), &params.a, smem_.full(stage), k, tile.row_a);
        }
      }
      ring_.advance();
    }
    early_ = 0;
  }

 private:
  // And tells the barrier of the whole stage's bytes.
  __device__ __forceinline__ void load_b(int stage, int k_block, const Tile& tile) const {
    const GemmParams& params = product_of(arguments_, tile);
    const unsigned full = smem_.full(stage);
    const int k = k_block * config.tile_k;
    ptx::mbarrier_arrive_expect_bytes(full,
                                      smem_.layout.a_stage_bytes + smem_.layout.b_stage_bytes);
    if constexpr (config.grouping == Grouping::kRows) {
      // Not once: a group of more rows than a tile reads it again.
      ptx::tma_load(smem_.b(stage), &params.b, full, k, tile.row_b, tile.group);
    } else if (params.raster.clusters_m > 1) {
      // Nor here: other tiles' rows of A need it, too.
      ptx::tma_load(smem_.b(stage), &params.b, full, k, tile.row_b);
    } else {
      ptx::tma_load_once(smem_.b(stage), &params.b, full, k, tile.row_b);
    }
  }

  const GemmArguments<config>& arguments_;
  const GemmAddresses<config>& smem_;
  int split_;
  int first_stage_;
  bool is_elected_;
  int early_ = 0;  // K-blocks of the next tile whose part of B is on its way
  RingPosition<config.stages> ring_;
};

}  // namespace octavo
