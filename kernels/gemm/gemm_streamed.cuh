// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product of few rows of A, as in decoding: time goes into reading B once, so that
// what counts is bytes under way on every multiprocessor. A tile has as many rows of B as give
// every multiprocessor the same share; with fewer than 64 rows of A they are the 64-row side of
// wgmma. K can be split over teams, each with a ring of stages of its own: first those of a thread
// block, then those of a cluster. Their sums meet in (distributed) shared memory and are added in
// ascending order.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/gemm/producer.cuh"
#include "kernels/gemm/streamed_consumer.cuh"
#include "kernels/gemm/streamed_epilogue.cuh"
#include "kernels/gemm/streamed_loader.cuh"
#include "kernels/gemm/tile_walk.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

template <GemmConfig config>
__device__ __forceinline__ void gemm_streamed(const GemmArguments<config>& arguments) {
  static_assert(config.cluster_m == 1 && config.cluster_n == 1);
  static_assert(config.tile_n % 8 == 0 && config.tile_n <= 256, "whole atoms of one box");
  static_assert(config.tile_m <= kWarpGroupRows && streamed_width(config) % 8 == 0 &&
                    streamed_consumers(config) * streamed_b_rows(config) >= config.tile_n,
                "a wgmma for every part");
  static_assert(config.stages > 1, "the next stage must arrive while one is held");
  constexpr bool splits = config.num_splits > 1;
  constexpr int consumers = streamed_consumers(config);
  constexpr int teams = streamed_teams(config);
  static_assert(kFirstConsumerBarrier + teams * consumers <= kConsumersBarrier);
  using Memory = GemmAddresses<config>;
  extern __shared__ __align__(kSwizzleAtomBytes) unsigned char dynamic_shared_memory[];
  // PERF: of what comes out of a shuffle the compiler knows that it is the same for a whole warp,
  // and does not compute it again before every use.
  const unsigned base = __shfl_sync(0xFFFFFFFFU, ptx::shared_address(dynamic_shared_memory), 0);
  const Memory smem{base};
  // What a split leaves in shared memory takes the place of tiles that were read.
  static_assert(!splits || shared_sums_bytes(config) + consumers * streamed_output_bytes(config) <=
                               Memory::layout.output,
                "sums and results of a tile are no larger than the stages");
  // Swapped, a tile's last consumer multiplies 64 rows whether or not the tile has them; what it
  // reads behind the last stage of B is A's.
  static_assert((consumers * streamed_b_rows(config) - config.tile_n) * kSwizzleBytes <=
                Memory::layout.total_bytes - Memory::layout.a);
  // PERF: the same for a whole warp, as the compiler knows.
  const int warp = __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / 32, 0);
  constexpr int kFirstLoadingWarp = teams * consumers * kWarpGroupThreads / 32;
  const bool is_loading = warp >= kFirstLoadingWarp;
  const int loading_team = (warp - kFirstLoadingWarp) / 2;
  const bool loads_tiles = is_loading && (warp - kFirstLoadingWarp) % 2 == 0;
  StreamedLoader<config> loader(arguments, smem, loading_team);
  if (loads_tiles) {
    loader.init_barriers();
    if constexpr (config.grouping == Grouping::kNone) {
      const TileWalk<config> walk(arguments);
      if (arguments.loads_b_early != 0 && walk.has_tile()) loader.load_b_early(walk.tile());
    }
  }
  __syncthreads();
  // Where nobody knows a thread block's last tile.
  if constexpr (config.grouping != Grouping::kNone) ptx::let_next_kernel_start();
  ptx::wait_for_earlier_kernels();

  // Twice for every tile: sums are there, sums were read. Whoever loads waits for the second alone,
  // unless a cluster's barrier counts all of its threads.
  constexpr bool is_spread = cluster_size(config) > 1;
  constexpr int kConsumerThreads = teams * consumers * kWarpGroupThreads;
  // All that load, and a warp of consumers that tells them.
  constexpr int kSumsReadThreads = num_threads(config) - kConsumerThreads + 32;
  const auto meet_consumers = [] {
    __syncwarp();
    if constexpr (is_spread) {
      ptx::cluster_barrier();
    } else {
      ptx::named_barrier(kConsumersBarrier, kConsumerThreads);
    }
  };
  const auto wait_for_consumers = [] {
    if constexpr (splits) {
      __syncwarp();
      if constexpr (is_spread) {
        ptx::cluster_barrier();
        ptx::cluster_barrier();
      } else {
        ptx::named_barrier(kSumsReadBarrier, kSumsReadThreads);
      }
    }
  };
  if (is_loading) {
    const bool decodes = scale_path(arguments) == ScalePath::kDecode;
    const int first_stage = loading_team * config.stages;
    ScaleProducer<config, ScalePath::kCopy> copies(arguments, smem, first_stage);
    ScaleProducer<config, ScalePath::kDecode> decoded(arguments, smem, first_stage);
    for (TileWalk<config> walk(arguments); walk.has_tile(); walk.advance()) {
      const Tile tile = walk.tile();
      if (loads_tiles) {
        bool lets_next_start = false;
        if constexpr (config.grouping == Grouping::kNone) {
          lets_next_start = walk.is_last() && loading_team == 0;
        }
        loader.load(tile, lets_next_start);
      } else if constexpr (is_block_scaled(config.recipe)) {
        const KRange range =
            k_range<config>(product_of(arguments, tile), split_of<config>(loading_team));
        if (decodes) {
          decoded.produce(tile, range.first, range.last);
        } else {
          copies.produce(tile, range.first, range.last);
        }
      }
      wait_for_consumers();
    }
  } else {
    const int consumer_of_all = warp * 32 / kWarpGroupThreads;
    const int team = consumer_of_all / consumers;
    const StreamedPart<config> part{consumer_of_all % consumers};
    StreamedConsumer<config> consumer(smem, part, team * config.stages);
    const StreamedEpilogue<config> epilogue(arguments, part, team);
    for (TileWalk<config> walk(arguments); walk.has_tile(); walk.advance()) {
      const Tile tile = walk.tile();
      const KRange range = k_range<config>(product_of(arguments, tile), split_of<config>(team));
      typename StreamedPart<config>::Sums total;
      consumer.multiply(total, range.last - range.first, tile);
      epilogue.scale(total, tile);
      if constexpr (splits) {
        // Every consumer has read its last stage.
        ptx::named_barrier(kConsumersBarrier, kConsumerThreads);
        epilogue.share(total, base);
        meet_consumers();
        epilogue.store_shared(base, split_of<config>(team), tile);
        ptx::fence_shared_for_tma();
        meet_consumers();
        if (!is_spread && warp == 0) {
          ptx::named_barrier_arrive(kSumsReadBarrier, kSumsReadThreads);
        }
      } else {
        epilogue.store(total, tile, base + Memory::layout.output);
      }
    }
  }
}

}  // namespace octavo
