// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product of few rows of A, as in decoding: time goes into reading B once, so that
// what counts is bytes under way on every multiprocessor. B's rows are the 64-row side of wgmma;
// two thread blocks share a multiprocessor, so that one reads while the other stores; where B has
// too few tiles for the whole GPU the thread blocks of a cluster have a part of K each and add
// their sums through distributed shared memory, in ascending order.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/producer.cuh"
#include "kernels/gemm/streamed_consumer.cuh"
#include "kernels/gemm/streamed_epilogue.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// The K-blocks [first, last) that a thread block has of every tile of a product.
struct KRange {
  int first;
  int last;
};

// Split i of n begins at block floor(i * blocks / n) (docs/numerics.md, "Splits").
template <GemmConfig config>
[[nodiscard]] __device__ __forceinline__ KRange k_range(const GemmParams& params) {
  constexpr int n = config.num_splits;
  const auto boundary = [&](int i) {
    return static_cast<int>(static_cast<long long>(i) * num_k_blocks(params) / n);
  };
  const int split = static_cast<int>(blockIdx.x) % n;
  return {boundary(split), boundary(split + 1)};
}

// The tiles of A and B, by one thread.
template <GemmConfig config>
__device__ __forceinline__ void load_streamed(const GemmArguments<config>& arguments,
                                              const GemmAddresses<config>& smem, const Tile& tile,
                                              RingPosition<config.stages>& ring) {
  const GemmParams& params = product_of(arguments, tile);
  const KRange range = k_range<config>(params);
  for (int k_block = range.first; k_block < range.last; ++k_block) {
    const int stage = ring.stage;
    const unsigned full = smem.full(stage);
    const int k = k_block * config.tile_k;
    ptx::mbarrier_wait(smem.empty(stage), ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_bytes(full, smem.layout.a_stage_bytes + smem.layout.b_stage_bytes);
    if constexpr (config.grouping == Grouping::kRows) {
      // Not once: a group of more rows than a tile reads it again.
      ptx::tma_load(smem.b(stage), &params.b, full, k, tile.row_b, tile.group);
      ptx::tma_load(smem.a(stage), &params.a, full, k, tile.row_a, matrix_of(arguments, tile));
    } else {
      ptx::tma_load_once(smem.b(stage), &params.b, full, k, tile.row_b);
      ptx::tma_load(smem.a(stage), &params.a, full, k, tile.row_a);
    }
    ring.advance();
  }
}

template <GemmConfig config>
__device__ __forceinline__ void gemm_streamed(const GemmArguments<config>& arguments) {
  static_assert(config.cluster_m == 1 && config.cluster_n == 1);
  constexpr bool splits = config.num_splits > 1;
  constexpr int consumers = streamed_consumers(config);
  extern __shared__ __align__(kSwizzleAtomBytes) unsigned char dynamic_shared_memory[];
  const unsigned base = ptx::shared_address(dynamic_shared_memory);
  const GemmAddresses<config> smem{base};
  // Shared sums take the place of tiles that were read.
  static_assert(config.tile_m * config.tile_n * static_cast<int>(sizeof(float)) <=
                    GemmAddresses<config>::layout.output,
                "sums of a tile are no larger than the stages");
  const bool decodes = scale_path(arguments) == ScalePath::kDecode;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpGroupThreads / 32;
    for (int stage = 0; stage < config.stages; ++stage) {
      ptx::mbarrier_init(smem.full(stage), full_arrivals<config>(ScalePath::kCopy));
      ptx::mbarrier_init(smem.empty(stage), kWarps * consumers);
    }
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  // PERF: the next kernel's thread blocks may come before this one's have ended. With splits they
  // would take places that clusters need; they are let in with the last load.
  if constexpr (!splits) ptx::let_next_kernel_start();
  ptx::wait_for_earlier_kernels();

  // Twice for every tile: sums are there, sums were read.
  const auto meet_splits = [] {
    if constexpr (splits) {
      __syncwarp();
      ptx::cluster_barrier();
    }
  };
  // PERF: the same for a whole warp, as the compiler knows.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  constexpr int kLoadingWarp = consumers * kWarpGroupThreads / 32;
  if (warp == kLoadingWarp) {
    RingPosition<config.stages> ring;
    for (TileWalk<config> walk(arguments); walk.has_tile(); walk.advance()) {
      if (threadIdx.x % 32 == 0) {
        load_streamed<config>(arguments, smem, walk.tile(), ring);
        if constexpr (splits) {
          if (walk.is_last()) ptx::let_next_kernel_start();
        }
      }
      meet_splits();
      meet_splits();
    }
  } else if (warp == kLoadingWarp + 1) {
    ScaleProducer<config, ScalePath::kCopy> copies(arguments, smem);
    ScaleProducer<config, ScalePath::kDecode> decoded(arguments, smem);
    for (TileWalk<config> walk(arguments); walk.has_tile(); walk.advance()) {
      if constexpr (is_block_scaled(config.recipe)) {
        const Tile tile = walk.tile();
        const KRange range = k_range<config>(product_of(arguments, tile));
        if (decodes) {
          decoded.produce(tile, range.first, range.last);
        } else {
          copies.produce(tile, range.first, range.last);
        }
      }
      meet_splits();
      meet_splits();
    }
  } else {
    const StreamedPart<config> part{warp * 32 / kWarpGroupThreads};
    StreamedConsumer<config> consumer(smem, part);
    const StreamedEpilogue<config> epilogue(arguments, part);
    for (TileWalk<config> walk(arguments); walk.has_tile(); walk.advance()) {
      const Tile tile = walk.tile();
      const KRange range = k_range<config>(product_of(arguments, tile));
      typename StreamedPart<config>::Sums total;
      consumer.multiply(total, range.last - range.first);
      epilogue.scale(total, tile);
      if constexpr (splits) {
        // Every consumer has read its last stage.
        ptx::named_barrier(1, consumers * kWarpGroupThreads);
        epilogue.share(total, base);
        meet_splits();
        epilogue.store_shared(base, static_cast<int>(blockIdx.x) % config.num_splits, tile);
        ptx::fence_shared_for_tma();
        meet_splits();
      } else {
        epilogue.store(total, tile);
      }
    }
  }
}

}  // namespace octavo
