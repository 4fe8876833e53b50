// SPDX-License-Identifier: Apache-2.0
// The warp-group that loads: tiles of A and B by TMA, and the scales of block recipes.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/gemm/load_scale.cuh"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/tma.cuh"

namespace octavo {

// How scales get to shared memory.
enum class ScalePath : unsigned char {
  kNone,    // not for every K-block: the epilogue reads them
  kBulk,    // F32, neighbouring rows adjacent, whole vectors (is_bulk): with the tiles
  kCopy,    // F32 in other strides: by a warp of their own
  kDecode,  // UE8M0: by that warp, too
};

// Bulk copies move multiples of 16 bytes between multiples of 16 bytes; with a multiple of 4 rows
// none reads past the last.
__device__ __forceinline__ bool is_bulk(const ScaleParams& scale, int rows) {
  constexpr int kVector = 4;
  return scale.row_stride == 1 && scale.k_stride % kVector == 0 && rows % kVector == 0 &&
         reinterpret_cast<unsigned long long>(scale.data) % (kVector * sizeof(float)) == 0;
}

template <GemmConfig config>
__device__ __forceinline__ ScalePath scale_path(const GemmParams& params) {
  if constexpr (!is_block_scaled(config.recipe)) return ScalePath::kNone;
  if (params.a_scale.is_ue8m0 != 0 || params.b_scale.is_ue8m0 != 0) return ScalePath::kDecode;
  if (!is_bulk(params.a_scale, params.m)) return ScalePath::kCopy;
  if (config.recipe == ScaleRecipe::kBlock1d && !is_bulk(params.b_scale, params.n)) {
    return ScalePath::kCopy;
  }
  return ScalePath::kBulk;
}

// Arrivals that a full stage waits for: the thread that loads tiles, and whoever brings scales.
template <GemmConfig config>
__device__ __forceinline__ int full_arrivals(ScalePath path) {
  constexpr int kLoader = 1;
  if (path == ScalePath::kNone) return kLoader;
  // That thread's own copy of B's scale.
  if (path == ScalePath::kBulk) return kLoader + (config.recipe == ScaleRecipe::kBlock ? 1 : 0);
  return kLoader + 32;
}

// Bytes of the scales of rows [first, first + tile).
__device__ __forceinline__ unsigned bulk_bytes(int rows, int first, int tile) {
  const int left = rows - first;
  return 4U * static_cast<unsigned>(left < 0 ? 0 : left < tile ? left : tile);
}

__device__ __forceinline__ void bring_scales(unsigned to, const ScaleParams& scale, int row,
                                             int k_block, unsigned bytes, unsigned full) {
  if (bytes == 0) return;
  ptx::bulk_load(to, static_cast<const float*>(scale.data) + k_block * scale.k_stride + row, bytes,
                 full);
}

// One thread that loads every stage.
template <GemmConfig config, bool brings_scales>
__device__ __forceinline__ void produce(const GemmParams& params, const GemmAddresses<config>& smem,
                                        const Rasterization& raster) {
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ClusterPosition<config> position;
  const int k_blocks = num_k_blocks(params);
  RingPosition<config.stages> ring;
  for (int linear = static_cast<int>(blockIdx.x) / cluster_size; linear < raster.num_clusters();
       linear += static_cast<int>(gridDim.x) / cluster_size) {
    const TileIndex cluster = raster.cluster(linear);
    const int row_a = (cluster.m * config.cluster_m + position.m) * config.tile_m;
    const int row_b = (cluster.n * config.cluster_n + position.n) * config.tile_n;
    constexpr bool by_column = config.recipe == ScaleRecipe::kBlock1d;
    const unsigned a_scale_bytes = brings_scales ? bulk_bytes(params.m, row_a, config.tile_m) : 0;
    const unsigned b_scale_bytes =
        brings_scales && by_column ? bulk_bytes(params.n, row_b, config.tile_n) : 0;
    const float* b_scale = static_cast<const float*>(params.b_scale.data) +
                           min(row_b, params.n - 1) / kScaleBlock * params.b_scale.row_stride;
    for (int k_block = 0; k_block < k_blocks; ++k_block) {
      const int stage = ring.stage;
      ptx::mbarrier_wait(smem.empty(stage), ring.parity ^ 1);
      const unsigned full = smem.full(stage);
      const int k = k_block * config.tile_k;
      // Blocks that share a tile load an equal part each and send it to all of them.
      if constexpr (config.cluster_n == 1) {
        ptx::tma_load(smem.a(stage), &params.a, full, k, row_a);
      } else {
        constexpr int part = config.tile_m / config.cluster_n;
        unsigned short blocks = 0;
        for (int i = 0; i < config.cluster_n; ++i)
          blocks |= 1U << (i * config.cluster_m + position.m);
        ptx::tma_load_multicast(smem.a(stage) + position.n * part * kSwizzleBytes, &params.a, full,
                                k, row_a + position.n * part, blocks);
      }
      if constexpr (config.cluster_m == 1) {
        ptx::tma_load(smem.b(stage), &params.b, full, k, row_b);
      } else {
        constexpr int part = config.tile_n / config.cluster_m;
        const unsigned short blocks = ((1U << config.cluster_m) - 1)
                                      << (position.n * config.cluster_m);
        ptx::tma_load_multicast(smem.b(stage) + position.m * part * kSwizzleBytes, &params.b, full,
                                k, row_b + position.m * part, blocks);
      }
      if constexpr (brings_scales) {
        bring_scales(smem.a_scale(stage), params.a_scale, row_a, k_block, a_scale_bytes, full);
        if constexpr (by_column) {
          bring_scales(smem.b_scale(stage), params.b_scale, row_b, k_block, b_scale_bytes, full);
        } else {
          // Four bytes are too few for a bulk copy; this one arrives at the barrier by itself.
          ptx::copy_word_async(smem.b_scale(stage), b_scale);
          ptx::mbarrier_arrive_after_copies(full);
          b_scale += params.b_scale.k_stride;
        }
      }
      // A box that sticks out of the matrix arrives whole, filled up with zeros.
      ptx::mbarrier_arrive_expect_bytes(
          full,
          smem.layout.a_stage_bytes + smem.layout.b_stage_bytes + a_scale_bytes + b_scale_bytes);
      ring.advance();
    }
  }
}

// A warp of the producer's that brings the scales of every stage, from any layout. Asynchronous
// copies run as far ahead as the ring is long.
template <GemmConfig config, ScalePath path>
class ScaleProducer {
 public:
  __device__ __forceinline__ ScaleProducer(const GemmParams& params,
                                           const GemmAddresses<config>& smem)
      : params_(params), smem_(smem), lane_(static_cast<int>(threadIdx.x) % 32) {}

  // The stages of the tile at (row_a, row_b), of K-blocks [first, last).
  __device__ __forceinline__ void produce(int row_a, int row_b, int first, int last) {
    // A lane has four neighbouring rows of every 128.
    constexpr int kGroupRows = 4 * 32;
    const int lane_row = 4 * lane_;
    for (int k_block = first; k_block < last; ++k_block) {
      const int stage = ring_.stage;
      ptx::mbarrier_wait(smem_.empty(stage), ring_.parity ^ 1);
#pragma unroll
      for (int row = 0; row < config.tile_m; row += kGroupRows) {
        if (config.tile_m % kGroupRows == 0 || row + lane_row < config.tile_m) {
          bring_four(smem_.a_scale(stage) + 4 * (row + lane_row), params_.a_scale,
                     row_a + row + lane_row, params_.m, k_block);
        }
      }
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
#pragma unroll
        for (int row = 0; row < config.tile_n; row += kGroupRows) {
          if (config.tile_n % kGroupRows == 0 || row + lane_row < config.tile_n) {
            bring_four(smem_.b_scale(stage) + 4 * (row + lane_row), params_.b_scale,
                       row_b + row + lane_row, params_.n, k_block);
          }
        }
      } else if (lane_ == 0) {
        bring_one(smem_.b_scale(stage), params_.b_scale, min(row_b, params_.n - 1) / kScaleBlock,
                  k_block);
      }
      if constexpr (path == ScalePath::kDecode) {
        ptx::mbarrier_arrive(smem_.full(stage));
      } else {
        ptx::mbarrier_arrive_after_copies(smem_.full(stage));
      }
      ring_.advance();
    }
  }

 private:
  // Of rows [row, row + 4). Rows behind the end are multiplied by zeros or never stored; any scale
  // will do for them.
  __device__ __forceinline__ void bring_four(unsigned to, const ScaleParams& scale, int row,
                                             int rows, int k_block) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) bring_one(to + 4 * i, scale, min(row + i, rows - 1), k_block);
  }

  __device__ __forceinline__ void bring_one(unsigned to, const ScaleParams& scale, int row,
                                            int k_block) const {
    const long long at = row * scale.row_stride + k_block * scale.k_stride;
    if constexpr (path == ScalePath::kDecode) {
      ptx::store_shared(to, load_scale(scale, at));
    } else {
      ptx::copy_word_async(to, static_cast<const float*>(scale.data) + at);
    }
  }

  const GemmParams& params_;
  const GemmAddresses<config>& smem_;
  int lane_;
  RingPosition<config.stages> ring_;
};

template <GemmConfig config, ScalePath path>
__device__ __forceinline__ void produce_scales(const GemmParams& params,
                                               const GemmAddresses<config>& smem,
                                               const Rasterization& raster) {
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ClusterPosition<config> position;
  ScaleProducer<config, path> producer(params, smem);
  for (int linear = static_cast<int>(blockIdx.x) / cluster_size; linear < raster.num_clusters();
       linear += static_cast<int>(gridDim.x) / cluster_size) {
    const TileIndex cluster = raster.cluster(linear);
    producer.produce((cluster.m * config.cluster_m + position.m) * config.tile_m,
                     (cluster.n * config.cluster_n + position.n) * config.tile_n, 0,
                     num_k_blocks(params));
  }
}

}  // namespace octavo
