// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product of few rows of A, as in decoding: time goes into reading B once, so that
// what counts is bytes under way on every multiprocessor. B's rows are the 64-row side of wgmma;
// two thread blocks share a multiprocessor, so that one reads while the other stores; where B has
// too few tiles for the whole GPU the thread blocks of a cluster have a part of K each and add
// their sums through distributed shared memory, in ascending order.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/producer.cuh"
#include "kernels/gemm/streamed_consumer.cuh"
#include "kernels/gemm/streamed_epilogue.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// What a thread block has to do: K-blocks [first_k_block, last_k_block) of tiles first, first +
// step, ...
template <GemmConfig config>
struct StreamedWork {
  int split;
  int first_k_block;
  int last_k_block;
  int first;
  int step;

  // Split i of n begins at block floor(i * blocks / n) (docs/numerics.md, "Splits").
  __device__ __forceinline__ explicit StreamedWork(const GemmParams& params) {
    constexpr int n = config.num_splits;
    const auto boundary = [&](int i) {
      return static_cast<int>(static_cast<long long>(i) * num_k_blocks(params) / n);
    };
    split = static_cast<int>(blockIdx.x) % n;
    first_k_block = boundary(split);
    last_k_block = boundary(split + 1);
    first = static_cast<int>(blockIdx.x) / n;
    step = static_cast<int>(gridDim.x) / n;
  }

  // f(row_a, row_b, is_last) for each of its tiles.
  template <typename F>
  __device__ __forceinline__ void for_each_tile(const Rasterization& raster, const F& f) const {
    for (int linear = first; linear < raster.num_clusters(); linear += step) {
      const TileIndex tile = raster.cluster(linear);
      f(tile.m * config.tile_m, tile.n * config.tile_n, linear + step >= raster.num_clusters());
    }
  }
};

// The tiles of A and B, by one thread.
template <GemmConfig config>
__device__ __forceinline__ void load_streamed(const GemmParams& params,
                                              const GemmAddresses<config>& smem,
                                              const StreamedWork<config>& work, int row_a,
                                              int row_b, RingPosition<config.stages>& ring) {
  for (int k_block = work.first_k_block; k_block < work.last_k_block; ++k_block) {
    const int stage = ring.stage;
    const unsigned full = smem.full(stage);
    const int k = k_block * config.tile_k;
    ptx::mbarrier_wait(smem.empty(stage), ring.parity ^ 1);
    ptx::mbarrier_arrive_expect_bytes(full, smem.layout.a_stage_bytes + smem.layout.b_stage_bytes);
    ptx::tma_load_once(smem.b(stage), &params.b, full, k, row_b);
    ptx::tma_load(smem.a(stage), &params.a, full, k, row_a);
    ring.advance();
  }
}

template <GemmConfig config>
__device__ __forceinline__ void gemm_streamed(const GemmParams& params) {
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
  const StreamedWork<config> work(params);
  const bool decodes = params.a_scale.is_ue8m0 != 0 || params.b_scale.is_ue8m0 != 0;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpGroupThreads / 32;
    const ScalePath path = is_block_scaled(config.recipe) ? ScalePath::kCopy : ScalePath::kNone;
    for (int stage = 0; stage < config.stages; ++stage) {
      ptx::mbarrier_init(smem.full(stage), full_arrivals<config>(path));
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
    work.for_each_tile(params.raster, [&](int row_a, int row_b, bool is_last) {
      if (threadIdx.x % 32 == 0) {
        load_streamed<config>(params, smem, work, row_a, row_b, ring);
        if (splits && is_last) ptx::let_next_kernel_start();
      }
      meet_splits();
      meet_splits();
    });
  } else if (warp == kLoadingWarp + 1) {
    ScaleProducer<config, ScalePath::kCopy> copies(params, smem);
    ScaleProducer<config, ScalePath::kDecode> decoded(params, smem);
    work.for_each_tile(params.raster, [&](int row_a, int row_b, bool) {
      if constexpr (is_block_scaled(config.recipe)) {
        if (decodes) {
          decoded.produce(row_a, row_b, work.first_k_block, work.last_k_block);
        } else {
          copies.produce(row_a, row_b, work.first_k_block, work.last_k_block);
        }
      }
      meet_splits();
      meet_splits();
    });
  } else {
    const StreamedPart<config> part{warp * 32 / kWarpGroupThreads};
    StreamedConsumer<config> consumer(smem, part);
    const StreamedEpilogue<config> epilogue(params, part);
    work.for_each_tile(params.raster, [&](int row_a, int row_b, bool) {
      typename StreamedPart<config>::Sums total;
      consumer.multiply(total, work.last_k_block - work.first_k_block);
      epilogue.scale(total, row_a, row_b);
      if constexpr (splits) {
        // Every consumer has read its last stage.
        ptx::named_barrier(1, consumers * kWarpGroupThreads);
        epilogue.share(total, base);
        meet_splits();
        epilogue.store_shared(base, work.split, row_a, row_b);
        ptx::fence_shared_for_tma();
        meet_splits();
      } else {
        epilogue.store(total, row_a, row_b);
      }
    });
  }
}

}  // namespace octavo
