// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product: persistent thread blocks of one producer warp-group, which loads tiles of
// A and B by TMA, and two consumer warp-groups of 64 rows each, which multiply and promote them.
// docs/kernels.md walks one tile through it; docs/numerics.md has the formulas whose bits it keeps.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/rasterization.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/epilogue.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/thread_block.cuh"
#include "kernels/ptx/tma.cuh"
#include "kernels/ptx/wgmma.cuh"

namespace octavo {

// A stage of the ring of tiles in shared memory and the parity of its current pass.
template <int stages>
struct RingPosition {
  int stage = 0;
  unsigned parity = 0;

  __device__ __forceinline__ void advance() {
    if (++stage == stages) {
      stage = 0;
      parity ^= 1;
    }
  }
};

// Shared-memory addresses of everything a thread block uses.
template <GemmConfig config>
struct GemmAddresses {
  static constexpr GemmSharedMemory layout = gemm_shared_memory(config);
  unsigned base;

  __device__ __forceinline__ unsigned a(int stage) const {
    return base + layout.a + stage * layout.a_stage_bytes;
  }
  __device__ __forceinline__ unsigned b(int stage) const {
    return base + layout.b + stage * layout.b_stage_bytes;
  }
  __device__ __forceinline__ unsigned a_scale(int stage) const {
    return base + layout.a_scale + stage * layout.a_scale_stage_bytes;
  }
  __device__ __forceinline__ unsigned b_scale(int stage) const {
    return base + layout.b_scale + stage * layout.b_scale_stage_bytes;
  }
  __device__ __forceinline__ unsigned full(int stage) const {
    return base + layout.full_barriers + stage * kBarrierBytes;
  }
  __device__ __forceinline__ unsigned empty(int stage) const {
    return base + layout.empty_barriers + stage * kBarrierBytes;
  }
};

// Where in its cluster a thread block is.
template <GemmConfig config>
struct ClusterPosition {
  static constexpr int size = config.cluster_m * config.cluster_n;
  int m = 0;
  int n = 0;

  __device__ __forceinline__ ClusterPosition() {
    if constexpr (size > 1) {
      const int rank = static_cast<int>(ptx::cluster_rank());
      m = rank % config.cluster_m;
      n = rank / config.cluster_m;
    }
  }
};

// Matrix descriptor of a K-major FP8 tile with 128-byte swizzle (PTX ISA, "matrix descriptor"):
// address / 16, leading offset (unused), stride between atoms of 8 rows 1024 / 16, swizzle mode 1.
__device__ __forceinline__ unsigned long long smem_descriptor(unsigned address) {
  constexpr unsigned long long kLeadingOffset = 1ULL << 16;
  constexpr unsigned long long kStrideOffset = (1024ULL / 16) << 32;
  constexpr unsigned long long kSwizzle128 = 1ULL << 62;
  return ((address & 0x3FFFFU) >> 4) | kLeadingOffset | kStrideOffset | kSwizzle128;
}

template <GemmConfig config>
__device__ __forceinline__ void produce(const GemmParams& params, const GemmAddresses<config>& smem,
                                        const Rasterization& raster) {
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ClusterPosition<config> position;
  const int num_k_blocks = (params.k + kScaleBlock - 1) / kScaleBlock;
  RingPosition<config.stages> ring;
  for (int linear = static_cast<int>(blockIdx.x) / cluster_size; linear < raster.num_clusters();
       linear += static_cast<int>(gridDim.x) / cluster_size) {
    const TileIndex cluster = raster.cluster(linear);
    const int row_a = (cluster.m * config.cluster_m + position.m) * config.tile_m;
    const int row_b = (cluster.n * config.cluster_n + position.n) * config.tile_n;
    // A scale row ends with its multiple of 4; a tile may end behind it, or begin behind it in a
    // cluster that sticks out, where nothing is loaded.
    constexpr unsigned kScaleBytes = sizeof(float);
    const auto scale_bytes = [](int extent, int first, int tile) {
      const int left = (extent + 3) / 4 * 4 - first;
      return kScaleBytes * static_cast<unsigned>(left < 0 ? 0 : left < tile ? left : tile);
    };
    const unsigned a_scale_bytes = scale_bytes(params.m, row_a, config.tile_m);
    const unsigned b_scale_bytes = scale_bytes(params.n, row_b, config.tile_n);
    for (int k_block = 0; k_block < num_k_blocks; ++k_block) {
      const int stage = ring.stage;
      ptx::mbarrier_wait(smem.empty(stage), ring.parity ^ 1);
      const unsigned full = smem.full(stage);
      // A box that sticks out of the matrix arrives whole, filled up with zeros.
      unsigned bytes = smem.layout.a_stage_bytes + smem.layout.b_stage_bytes;
      if constexpr (is_block_scaled(config.recipe)) bytes += a_scale_bytes;
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) bytes += b_scale_bytes;
      ptx::mbarrier_arrive_expect_bytes(full, bytes);
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
      if constexpr (is_block_scaled(config.recipe)) {
        if (a_scale_bytes > 0) {
          ptx::bulk_load(smem.a_scale(stage),
                         params.a_scale + k_block * params.a_scale_stride + row_a, a_scale_bytes,
                         full);
        }
      }
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
        if (b_scale_bytes > 0) {
          ptx::bulk_load(smem.b_scale(stage),
                         params.b_scale + k_block * params.b_scale_stride + row_b, b_scale_bytes,
                         full);
        }
      }
      ring.advance();
    }
  }
}

// One consumer warp-group: rows [64 i, 64 i + 64) of every tile.
template <GemmConfig config>
class Consumer {
 public:
  // Promotion needs registers for a partial sum beside the total: the tile is multiplied in parts
  // of 128 columns, the width of a scale block of B.
  static constexpr bool promotes = config.sum == MainloopSum::kPromoted;
  static constexpr int part_n = promotes ? 128 : config.tile_n;
  static constexpr int num_parts = config.tile_n / part_n;
  static constexpr int part_registers = part_n / 2;
  // wgmma multiplies 32 bytes of K at a time; descriptors count in units of 16.
  static constexpr int steps = config.tile_k / 32;
  static constexpr int step_units = 32 / 16;
  static constexpr int part_units = part_n * kSwizzleBytes / 16;

  __device__ __forceinline__ Consumer(const GemmParams& params, const GemmAddresses<config>& smem,
                                      int index)
      : params_(params), smem_(smem), index_(index) {
    const int thread = static_cast<int>(threadIdx.x) % kWarpGroupThreads;
    lane_ = thread % 32;
    row_ = index * kWarpGroupRows + thread / 32 * 16 + lane_ / 4;
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

  // The sums of the tile at (row_a, row_b).
  __device__ __forceinline__ void multiply(int row_b) {
    const int num_k_blocks = (params_.k + kScaleBlock - 1) / kScaleBlock;
    if constexpr (!promotes) {
      multiply_fast(num_k_blocks);
    } else {
      // Adding to -0 keeps every bit of the first sum; a scaled sum starts at +0 by definition.
      const float start = is_block_scaled(config.recipe) ? 0.0F : -0.0F;
#pragma unroll
      for (int part = 0; part < num_parts; ++part) {
#pragma unroll
        for (int i = 0; i < part_registers; ++i) total[part][i] = start;
      }
      int k_block = 0;
      for (; k_block + config.unroll_k <= num_k_blocks; k_block += config.unroll_k) {
        multiply_body<config.unroll_k>(row_b, k_block);
      }
      for (; k_block < num_k_blocks; ++k_block) multiply_body<1>(row_b, k_block);
    }
  }

  float total[num_parts][part_registers];

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

  template <int N>
  __device__ __forceinline__ void issue(float (&sums)[N / 2], int stage, int part, bool adds) {
    const unsigned long long a =
        smem_descriptor(smem_.a(stage) + index_ * kWarpGroupRows * kSwizzleBytes);
    const unsigned long long b = smem_descriptor(smem_.b(stage)) + part * part_units;
#pragma unroll
    for (int step = 0; step < steps; ++step) {
      ptx::wgmma<config.a, config.b, N>(sums, a + step * step_units, b + step * step_units,
                                        adds || step > 0);
    }
    ptx::wgmma_commit();
  }

  // One accumulator through all of K; one K-block is always in flight.
  __device__ __forceinline__ void multiply_fast(int num_k_blocks) {
    int previous = 0;
    for (int k_block = 0; k_block < num_k_blocks; ++k_block) {
      ptx::mbarrier_wait(smem_.full(ring_.stage), ring_.parity);
      ptx::wgmma_fence();
      issue<part_n>(total[0], ring_.stage, 0, k_block > 0);
      if (k_block > 0) {
        ptx::wgmma_wait<1>();
        release(previous);
      }
      previous = ring_.stage;
      ring_.advance();
    }
    ptx::wgmma_wait<0>();
    release(previous);
  }

  // PERF: `count` K-blocks a body: B's scales come in one vector load each, and the bookkeeping of
  // the loop is paid once. 4 against 1: +3 % (docs/experiments.md).
  template <int count>
  __device__ __forceinline__ void multiply_body(int row_b, int k_block) {
    constexpr int num_b_blocks = config.tile_n / kScaleBlock;
    float b_scale[num_b_blocks][count];
    if constexpr (config.recipe == ScaleRecipe::kBlock) load_b_scales(row_b, k_block, b_scale);
#pragma unroll
    for (int i = 0; i < count; ++i) {
      const int stage = ring_.stage;
      ptx::mbarrier_wait(smem_.full(stage), ring_.parity);
      float a_scale[2] = {1, 1};
      if constexpr (is_block_scaled(config.recipe)) {
        a_scale[0] = ptx::load_shared(smem_.a_scale(stage) + 4 * row_);
        a_scale[1] = ptx::load_shared(smem_.a_scale(stage) + 4 * (row_ + 8));
      }
#pragma unroll
      for (int part = 0; part < num_parts; ++part) {
        float sums[part_registers];
        ptx::wgmma_fence();
        issue<part_n>(sums, stage, part, false);
        ptx::wgmma_wait<0>();
        if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
          promote_by_column(sums, part, a_scale, smem_.b_scale(stage));
        } else if constexpr (config.recipe == ScaleRecipe::kBlock) {
          const float low = a_scale[0] * b_scale[part][i];
          const float high = a_scale[1] * b_scale[part][i];
          if (part == num_parts - 1) release(stage);
#pragma unroll
          for (int j = 0; j < part_registers; ++j) {
            total[part][j] = fmaf((j & 2) != 0 ? high : low, sums[j], total[part][j]);
          }
        } else {
          if (part == num_parts - 1) release(stage);
#pragma unroll
          for (int j = 0; j < part_registers; ++j) total[part][j] += sums[j];
        }
        if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
          if (part == num_parts - 1) release(stage);
        }
      }
      ring_.advance();
    }
  }

  __device__ __forceinline__ void promote_by_column(const float (&sums)[part_registers], int part,
                                                    const float (&a_scale)[2], unsigned b_scales) {
#pragma unroll
    for (int group = 0; group < part_n / 8; ++group) {
      const int column = part * part_n + group * 8 + lane_ % 4 * 2;
      const float2 b_scale = ptx::load_shared_pair(b_scales + 4 * column);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int j = group * 4 + r * 2;
        total[part][j] = fmaf(a_scale[r] * b_scale.x, sums[j], total[part][j]);
        total[part][j + 1] = fmaf(a_scale[r] * b_scale.y, sums[j + 1], total[part][j + 1]);
      }
    }
  }

  // Scales of the tile's 128-column blocks, [block][k_block, k_block + count).
  template <int num_b_blocks, int count>
  __device__ __forceinline__ void load_b_scales(int row_b, int k_block,
                                                float (&scales)[num_b_blocks][count]) {
    const int last = (params_.n - 1) / kScaleBlock;
#pragma unroll
    for (int block = 0; block < num_b_blocks; ++block) {
      // Columns behind the end are never stored; any scale will do for them.
      const int row = min(row_b / kScaleBlock + block, last);
      const float* from = params_.b_scale + row * params_.b_scale_stride + k_block;
      if constexpr (count % 4 == 0) {
#pragma unroll
        for (int i = 0; i < count; i += 4) {
          const float4 four = __ldg(reinterpret_cast<const float4*>(from + i));
          scales[block][i] = four.x;
          scales[block][i + 1] = four.y;
          scales[block][i + 2] = four.z;
          scales[block][i + 3] = four.w;
        }
      } else {
#pragma unroll
        for (int i = 0; i < count; ++i) scales[block][i] = __ldg(from + i);
      }
    }
  }

  const GemmParams& params_;
  const GemmAddresses<config>& smem_;
  int index_;
  int lane_;
  int row_;
  unsigned empty_of_peer_ = 0;
  RingPosition<config.stages> ring_;
};

template <GemmConfig config>
__device__ __forceinline__ void consume(const GemmParams& params, const GemmAddresses<config>& smem,
                                        const Rasterization& raster, int index) {
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ClusterPosition<config> position;
  Consumer<config> consumer(params, smem, index);
  Epilogue<config, Consumer<config>::part_n> epilogue(
      params, smem.base + smem.layout.output + index * kOutputBoxes * kOutputBoxBytes,
      smem.base + smem.layout.column_scale + index * smem.layout.column_scale_bytes, index);
  for (int linear = static_cast<int>(blockIdx.x) / cluster_size; linear < raster.num_clusters();
       linear += static_cast<int>(gridDim.x) / cluster_size) {
    const TileIndex cluster = raster.cluster(linear);
    const int row_a = (cluster.m * config.cluster_m + position.m) * config.tile_m;
    const int row_b = (cluster.n * config.cluster_n + position.n) * config.tile_n;
    // PERF: what the epilogue multiplies by is on its way while the tile is multiplied.
    epilogue.fetch_scales(row_a, row_b);
    consumer.multiply(row_b);
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
  const Rasterization raster =
      rasterization(params.m, params.n, config.tile_m, config.tile_n, config.cluster_m,
                    config.cluster_n, config.raster_group_m);
  // PERF: a value that the compiler knows to be the same for a whole warp: branches on it cost no
  // divergence code.
  const int warp_group =
      __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kWarpGroupThreads, 0);
  constexpr int cluster_size = ClusterPosition<config>::size;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpGroupThreads / 32;
    for (int stage = 0; stage < config.stages; ++stage) {
      ptx::mbarrier_init(smem.full(stage), 1);
      ptx::mbarrier_init(smem.empty(stage),
                         kWarps * num_consumers(config) * Consumer<config>::num_sharers);
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
  if (warp_group == num_consumers(config)) {
    ptx::setmaxnreg_dec<40>();
    if (threadIdx.x == num_consumers(config) * kWarpGroupThreads)
      produce<config>(params, smem, raster);
  } else {
    ptx::setmaxnreg_inc<232>();
    consume<config>(params, smem, raster, warp_group);
  }
  // A block must not exit while others of its cluster may still signal its barriers.
  if constexpr (cluster_size > 1) ptx::cluster_barrier();
}

}  // namespace octavo
