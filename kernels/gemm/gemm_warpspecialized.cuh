// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product: persistent thread blocks of one producer warp-group, which loads tiles of
// A and B by TMA and their scales, and two consumer warp-groups, which multiply and promote them.
// docs/kernels.md walks one tile through it; docs/numerics.md has the formulas whose bits it keeps.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/consumer.cuh"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/producer.cuh"
#include "kernels/gemm/tile_tickets.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// Parts of a consumer's that have rows before the tile's end.
template <GemmConfig config>
__device__ __forceinline__ int active_parts(const Tile& tile, int index) {
  constexpr int all = num_parts(config);
  if constexpr (config.grouping == Grouping::kNone) return all;
  int active = 0;
#pragma unroll
  for (int part = 0; part < all; ++part) {
    if (tile.row_a + part_row(config, index, part) < tile.end_a) active = part + 1;
  }
  return active;
}

template <GemmConfig config, int active>
__device__ __forceinline__ void multiply(Consumer<config>& consumer, const GemmParams& params,
                                         const Tile& tile) {
  if constexpr (Consumer<config>::promotes) {
    consumer.template multiply_promoted<active>(params, scale_shift<config>(tile));
  } else {
    consumer.template multiply_fast<active>(params, [] {});
  }
}

template <GemmConfig config>
__device__ __forceinline__ void consume(const GemmArguments<config>& arguments,
                                        const GemmAddresses<config>& smem, int index) {
  Consumer<config> consumer(smem, index);
  Epilogue<config> epilogue(
      arguments, smem.base + smem.layout.output + index * output_boxes(config) * kOutputBoxBytes,
      smem.base + smem.layout.column_scale + index * smem.layout.column_scale_bytes, index);
  // A consumer with a tile of its own waits for its turn: the tensor core works on one tile at a
  // time, and no stage is a whole pass ahead of what is waited for.
  constexpr bool pingpong = config.schedule == Schedule::kPingpong;
  if constexpr (pingpong) {
    static_assert(!Consumer<config>::promotes, "one alone does not keep the tensor core busy");
    static_assert(config.grouping == Grouping::kNone, "the others' K-blocks are as many");
    constexpr int kFirstTurnBarrier = 1 + kConsumers;
    if (index > 0) consumer.skip_tile(arguments);
    for (TileWalk<config, kConsumers> walk(arguments, index); walk.has_tile(); walk.advance()) {
      const Tile tile = walk.tile();
      epilogue.fetch_scales(tile);
      if (!walk.is_first()) {
        ptx::named_barrier(kFirstTurnBarrier + index, kConsumers * kWarpGroupThreads);
      }
      consumer.template multiply_fast<num_parts(config)>(arguments, [&] {
        if (!walk.is_last()) {
          ptx::named_barrier_arrive(kFirstTurnBarrier + 1 - index, kConsumers * kWarpGroupThreads);
        }
      });
      consumer.skip_tile(arguments);
      epilogue.store(consumer.total, tile);
    }
  } else {
    TileTickets<config> tickets(arguments, smem);
    for (TileWalk<config> walk(arguments); walk.has_tile(); to_next_tile(walk, tickets)) {
      const Tile tile = walk.tile();
      // PERF: what the epilogue multiplies by is on its way while the tile is multiplied.
      epilogue.fetch_scales(tile);
      const GemmParams& params = product_of(arguments, tile);
      const int active = active_parts<config>(tile, index);
      constexpr int all = num_parts(config);
      static_assert(all <= 2);
      if (active == all) {
        multiply<config, all>(consumer, params, tile);
      } else if (all > 1 && active == 1) {
        multiply<config, 1>(consumer, params, tile);
      } else {
        consumer.pass(params);
      }
      epilogue.store(consumer.total, tile);
    }
  }
  if (threadIdx.x % kWarpGroupThreads == 0) ptx::tma_store_wait();
}

// Registers of a thread that loads and of one that multiplies.
struct RegisterShares {
  int loading;
  int multiplying;
};

template <GemmConfig config>
__device__ __forceinline__ void gemm_warpspecialized(const GemmArguments<config>& arguments) {
  extern __shared__ __align__(kSwizzleAtomBytes) unsigned char dynamic_shared_memory[];
  unsigned base = ptx::shared_address(dynamic_shared_memory);
  // PERF: an opaque copy keeps the compiler from computing the base again before every use.
  asm volatile("mov.b32 %0, %0;" : "+r"(base));
  const GemmAddresses<config> smem{base};
  // PERF: a value that the compiler knows to be the same for a whole warp: branches on it cost no
  // divergence code.
  const int warp_group =
      __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kWarpGroupThreads, 0);
  constexpr int cluster_size = ClusterPosition<config>::size;
  // Of what the launch gave each thread, 168, they are all.
  constexpr RegisterShares registers =
      config.grouping == Grouping::kNone ? RegisterShares{40, 232} : RegisterShares{56, 224};
  static_assert(registers.loading + kConsumers * registers.multiplying == 3 * 168);
  const ScalePath path = scale_path(arguments);
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpGroupThreads / 32;
    for (int stage = 0; stage < config.stages; ++stage) {
      ptx::mbarrier_init(smem.full(stage), full_arrivals<config>(path));
      ptx::mbarrier_init(smem.empty(stage),
                         kWarps * consumers_of_stage(config) * Consumer<config>::num_sharers);
    }
    for (int slot = 0; slot < num_tickets(config); ++slot) {
      ptx::mbarrier_init(smem.ticket_drawn(slot), 1);
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
    ptx::setmaxnreg_dec<registers.loading>();
    constexpr int kFirstWarp = kConsumers * kWarpGroupThreads / 32;
    const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0) - kFirstWarp;
    if (warp == 0) {
      // PERF: the compiler knows this copy to be the same for the whole warp.
      const GemmAddresses<config> smem_of_warp{__shfl_sync(0xFFFFFFFFU, base, 0)};
      if (is_block_scaled(config.recipe) && path == ScalePath::kBulk) {
        produce<config, is_block_scaled(config.recipe)>(arguments, smem_of_warp);
      } else {
        produce<config, false>(arguments, smem_of_warp);
      }
    } else if (is_block_scaled(config.recipe) && warp == 1) {
      if (path == ScalePath::kCopy) {
        produce_scales<config, ScalePath::kCopy>(arguments, smem);
      } else if (path == ScalePath::kDecode) {
        produce_scales<config, ScalePath::kDecode>(arguments, smem);
      }
    }
  } else {
    ptx::setmaxnreg_inc<registers.multiplying>();
    consume<config>(arguments, smem, warp_group);
  }
  // A block must not exit while others of its cluster may still signal its barriers.
  if constexpr (cluster_size > 1) ptx::cluster_barrier();
}

}  // namespace octavo
