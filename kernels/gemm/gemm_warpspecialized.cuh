// SPDX-License-Identifier: Apache-2.0
// The Hopper FP8 product: persistent thread blocks of one producer warp-group, which loads tiles of
// A and B by TMA and their scales, and two consumer warp-groups, which multiply and promote them.
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
  __device__ __forceinline__ void advance(int count) {
    const int to = stage + count;
    parity ^= static_cast<unsigned>(to / stages) & 1U;
    stage = to % stages;
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

// Matrix descriptor of a K-major FP8 tile with 128-byte swizzle (PTX ISA, "matrix descriptor"): in
// its lower half address / 16 and a leading offset (unused), in its upper half the stride between
// atoms of 8 rows, 1024 / 16, and swizzle mode 1.
constexpr int kDescriptorUnit = 16;
__device__ __forceinline__ unsigned lower_descriptor(unsigned address) {
  constexpr unsigned kLeadingOffset = 1U << 16;
  return (address & 0x3FFFFU) / kDescriptorUnit | kLeadingOffset;
}
__device__ __forceinline__ unsigned long long descriptor(unsigned lower) {
  constexpr unsigned long long kStrideOffset = (1024ULL / kDescriptorUnit) << 32;
  constexpr unsigned long long kSwizzle128 = 1ULL << 62;
  return lower | kStrideOffset | kSwizzle128;
}

// How scales get to shared memory.
enum class ScalePath : unsigned char {
  kNone,    // not for every K-block: the epilogue reads them
  kBulk,    // F32 with neighbouring rows adjacent: with the tiles
  kCopy,    // F32 in other strides: by a warp of their own
  kDecode,  // UE8M0: by that warp, too
};

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
  const int num_k_blocks = (params.k + kScaleBlock - 1) / kScaleBlock;
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
    const long long b_scale_row =
        min(row_b, params.n - 1) / kScaleBlock * params.b_scale.row_stride;
    float b_scale = 0;
    if constexpr (brings_scales && !by_column) b_scale = load_scale(params.b_scale, b_scale_row);
    for (int k_block = 0; k_block < num_k_blocks; ++k_block) {
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
          ptx::store_shared(smem.b_scale(stage), b_scale);
          // PERF: the next one is on its way while the ring has no room for it.
          if (k_block + 1 < num_k_blocks) {
            b_scale =
                load_scale(params.b_scale, b_scale_row + (k_block + 1) * params.b_scale.k_stride);
          }
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
      : params_(params),
        smem_(smem),
        lane_(static_cast<int>(threadIdx.x) % 32),
        num_k_blocks_((params.k + kScaleBlock - 1) / kScaleBlock) {}

  // The stages of the tile at (row_a, row_b).
  __device__ __forceinline__ void produce(int row_a, int row_b) {
    // A lane has four neighbouring rows of every 128.
    constexpr int kGroupRows = 4 * 32;
    const int lane_row = 4 * lane_;
    for (int k_block = 0; k_block < num_k_blocks_; ++k_block) {
      const int stage = ring_.stage;
      ptx::mbarrier_wait(smem_.empty(stage), ring_.parity ^ 1);
#pragma unroll
      for (int row = 0; row < config.tile_m; row += kGroupRows) {
        bring_four(smem_.a_scale(stage) + 4 * (row + lane_row), params_.a_scale,
                   row_a + row + lane_row, params_.m, k_block);
      }
      if constexpr (config.recipe == ScaleRecipe::kBlock1d) {
#pragma unroll
        for (int row = 0; row < config.tile_n; row += kGroupRows) {
          bring_four(smem_.b_scale(stage) + 4 * (row + lane_row), params_.b_scale,
                     row_b + row + lane_row, params_.n, k_block);
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
  int num_k_blocks_;
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
                     (cluster.n * config.cluster_n + position.n) * config.tile_n);
  }
}

// One consumer warp-group. It multiplies parts of 64 rows of a tile.
template <GemmConfig config>
class Consumer {
 public:
  static constexpr bool promotes = config.sum == MainloopSum::kPromoted;
  static constexpr int parts = num_parts(config);
  static constexpr int part_registers = config.tile_n / 2;
  static_assert(!promotes || config.tile_n == kScaleBlock, "a part has one scale of B");
  // wgmma multiplies 32 bytes of K at a time.
  static constexpr int steps = config.tile_k / 32;
  static constexpr int step_units = 32 / kDescriptorUnit;

  __device__ __forceinline__ Consumer(const GemmParams& params, const GemmAddresses<config>& smem,
                                      int index)
      : params_(params), smem_(smem), index_(index) {
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

  // One accumulator through all of K; one K-block is always in flight. `all_issued` is called when
  // the tensor core has the last one.
  template <typename AllIssued>
  __device__ __forceinline__ void multiply_fast(const AllIssued& all_issued) {
    static_assert(!promotes);
    const int num_k_blocks = k_blocks();
    int previous = 0;
    for (int k_block = 0; k_block < num_k_blocks; ++k_block) {
      ptx::mbarrier_wait(smem_.full(ring_.stage), ring_.parity);
      ptx::wgmma_fence();
#pragma unroll
      for (int part = 0; part < parts; ++part) issue(total[part], ring_.stage, part, k_block > 0);
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

  // Totals of the sums of each K-block.
  __device__ __forceinline__ void multiply_promoted() {
    // Adding to -0 keeps every bit of the first sum; a scaled sum starts at +0 by definition.
    const float start = is_block_scaled(config.recipe) ? 0.0F : -0.0F;
#pragma unroll
    for (int part = 0; part < parts; ++part) {
#pragma unroll
      for (int i = 0; i < part_registers; ++i) total[part][i] = start;
    }
    int left = k_blocks();
    for (; left >= config.unroll_k; left -= config.unroll_k) {
#pragma unroll
      for (int i = 0; i < config.unroll_k; ++i) promote_k_block();
    }
    for (; left > 0; --left) promote_k_block();
  }

  // K-blocks of a tile.
  __device__ __forceinline__ int k_blocks() const {
    return (params_.k + kScaleBlock - 1) / kScaleBlock;
  }

  // Passes over the stages of a tile of the other consumer.
  __device__ __forceinline__ void skip_tile() { ring_.advance(k_blocks()); }

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

  __device__ __forceinline__ void promote_k_block() {
    const int stage = ring_.stage;
    ptx::mbarrier_wait(smem_.full(stage), ring_.parity);
    float b_scale = 1;
    if constexpr (config.recipe == ScaleRecipe::kBlock) {
      b_scale = ptx::load_shared(smem_.b_scale(stage));
    }
#pragma unroll
    for (int part = 0; part < parts; ++part) {
      float a_scale[2] = {1, 1};
      if constexpr (is_block_scaled(config.recipe)) {
        const int row = part_row(config, index_, part) + row_;
        a_scale[0] = ptx::load_shared(smem_.a_scale(stage) + 4 * row);
        a_scale[1] = ptx::load_shared(smem_.a_scale(stage) + 4 * (row + 8));
      }
      float sums[part_registers];
      ptx::wgmma_fence();
      issue(sums, stage, part, false);
      ptx::wgmma_commit();
      ptx::wgmma_wait<0>();
      const bool last = part == parts - 1;
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

  const GemmParams& params_;
  const GemmAddresses<config>& smem_;
  int index_;
  int lane_;
  int row_;
  unsigned a_descriptor_;
  unsigned b_descriptor_;
  unsigned empty_of_peer_ = 0;
  RingPosition<config.stages> ring_;
};

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
  const Rasterization raster =
      rasterization(params.m, params.n, config.tile_m, config.tile_n, config.cluster_m,
                    config.cluster_n, config.raster_group_m);
  // PERF: a value that the compiler knows to be the same for a whole warp: branches on it cost no
  // divergence code.
  const int warp_group =
      __shfl_sync(0xFFFFFFFFU, static_cast<int>(threadIdx.x) / kWarpGroupThreads, 0);
  constexpr int cluster_size = ClusterPosition<config>::size;
  const ScalePath path = scale_path<config>(params);
  const bool has_scale_warp = path == ScalePath::kCopy || path == ScalePath::kDecode;
  if (threadIdx.x == 0) {
    constexpr int kWarps = kWarpGroupThreads / 32;
    for (int stage = 0; stage < config.stages; ++stage) {
      ptx::mbarrier_init(smem.full(stage), has_scale_warp ? 1 + 32 : 1);
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
