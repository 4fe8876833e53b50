// SPDX-License-Identifier: Apache-2.0
// Where the warp-groups of a product meet: the ring of stages in shared memory, and the place of a
// thread block in its cluster.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/ptx/thread_block.cuh"

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
  __device__ __forceinline__ unsigned ticket_drawn(int slot) const {
    return base + layout.ticket_barriers + slot * kBarrierBytes;
  }
  __device__ __forceinline__ unsigned ticket(int slot) const {
    return base + layout.tickets + slot * kTicketBytes;
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

[[nodiscard]] __device__ __forceinline__ int num_k_blocks(const GemmParams& params) {
  return (params.k + kScaleBlock - 1) / kScaleBlock;
}

}  // namespace octavo
