// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product: persistent thread blocks of one producer warp-group, which loads tiles of
// A and B by TMA and their scales, and two consumer warp-groups, which multiply and promote them.
// docs/kernels.md walks one tile through it; docs/numerics.md has the formulas whose bits it keeps.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/consumer.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/producer.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

template <GemmConfig config>
__device__ __forceinline__ void consume(const GemmParams& params, const GemmAddresses<config>& smem,
                                        const Rasterization& raster, int index) {
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ClusterPosition<config> position;
  Consumer<config> consumer(params, smem, index);
  Epilogue<config> epilogue(
      params, smem.base + smem.layout.output + index * output_boxes(config) * kOutputBoxBytes,
      smem.base + smem.layout.column_scale + index * smem.layout.column_scale_bytes, index);
  // A consumer with a tile of its own waits for its turn: the tensor core works on one tile at a
  // time, and no stage is a whole pass ahead of what is waited for.
  constexpr bool pingpong = config.schedule == Schedule::kPingpong;
  constexpr int kFirstTurnBarrier = 1 + kConsumers;
  const auto wait_for_turn = [&] {
    ptx::named_barrier(kFirstTurnBarrier + index, kConsumers * kWarpGroupThreads);
  };
  const auto give_turn = [&] {
    ptx::named_barrier_arrive(kFirstTurnBarrier + 1 - index, kConsumers * kWarpGroupThreads);
  };
  const int first = static_cast<int>(blockIdx.x) / cluster_size;
  const int next = static_cast<int>(gridDim.x) / cluster_size;
  if (pingpong && index > 0) consumer.skip_tile();
  for (int linear = pingpong ? first + index * next : first; linear < raster.num_clusters();
       linear += pingpong ? kConsumers * next : next) {
    const TileIndex cluster = raster.cluster(linear);
    const int row_a = (cluster.m * config.cluster_m + position.m) * config.tile_m;
    const int row_b = (cluster.n * config.cluster_n + position.n) * config.tile_n;
    // PERF: what the epilogue multiplies by is on its way while the tile is multiplied.
    epilogue.fetch_scales(row_a, row_b);
    if constexpr (Consumer<config>::promotes) {
      static_assert(!pingpong, "one consumer alone does not keep the tensor core busy");
      consumer.multiply_promoted();
    } else if constexpr (pingpong) {
      if (linear != first) wait_for_turn();
      consumer.multiply_fast([&] {
        if (linear + next < raster.num_clusters()) give_turn();
      });
      consumer.skip_tile();
    } else {
      consumer.multiply_fast([] {});
    }
    epilogue.store(consumer.total, row_a, row_b);
  }
  if (threadIdx.x % kWarpGroupThreads == 0) ptx::tma_store_wait();
}

template <GemmConfig config>
__device__ __forceinline__ void gemm_warpspecialized(const GemmParams& params) {
  extern __shared__ __align__(kSwizzleAtomBytes) unsigned char dynamic_shared_memory[];
  unsigned base = ptx::shared_address(dynamic_shared_memory);
  // PERF: an opaque copy keeps the compiler from computing the base again before every use.
  asm volatile("mov.b32 %0, %0;" : "+r"(base));
  const GemmAddresses<config> smem{base};
  const Rasterization& raster = params.raster;
  // PERF: a value that the compiler knows to be the same for a whole warp: branches on it cost no
  // divergence code.
  const int warp_group =
      __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kWarpGroupThreads, 0);
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ScalePath path = scale_path<config>(params);
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpGroupThreads / 32;
    for (int stage = 0; stage < config.stages; ++stage) {
      ptx::mbarrier_init(smem.full(stage), full_arrivals<config>(path));
      ptx::mbarrier_init(smem.empty(stage),
                         kWarps * consumers_of_stage(config) * Consumer<config>::num_sharers);
    }
    ptx::fence_mbarrier_init();
  }
  if constexpr (cluster_size > 1) {
    ptx::cluster_barrier();
  } else {
    __syncthreads();
  }
  // PERF: launched while the kernel before it still runs, so that set-up and launch cost no time of
  // their own; nothing in global memory is touched before this line.
  ptx::wait_for_earlier_kernels();
  ptx::let_next_kernel_start();
  if (warp_group == kConsumers) {
    ptx::setmaxnreg_dec<40>();
    constexpr int kFirstWarp = kConsumers * kWarpGroupThreads / 32;
    const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0) - kFirstWarp;
    if (warp == 0 && threadIdx.x % 32 == 0) {
      if (path == ScalePath::kBulk) {
        produce<config, is_block_scaled(config.recipe)>(params, smem, raster);
      } else {
        produce<config, false>(params, smem, raster);
      }
    } else if (is_block_scaled(config.recipe) && warp == 1) {
      if (path == ScalePath::kCopy) {
        produce_scales<config, ScalePath::kCopy>(params, smem, raster);
      } else if (path == ScalePath::kDecode) {
        produce_scales<config, ScalePath::kDecode>(params, smem, raster);
      }
    }
  } else {
    ptx::setmaxnreg_inc<232>();
    consume<config>(params, smem, raster, warp_group);
  }
  // A block must not exit while others of its cluster may still signal its barriers.
  if constexpr (cluster_size > 1) ptx::cluster_barrier();
}

}  // namespace octavo
