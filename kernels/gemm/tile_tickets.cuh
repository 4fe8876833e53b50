// SPDX-License-Identifier: Apache-2.0
// Which tile a thread block takes next where tiles differ in what they cost: the first that nobody
// has taken. Of groups of rows and of several products.
#pragma once

#include "kernels/contract/gemm_config.hpp"
#include "kernels/contract/gemm_params.hpp"
#include "kernels/contract/smem_bytes.hpp"
#include "kernels/gemm/pipeline.cuh"
#include "kernels/ptx/mbarrier.cuh"
#include "kernels/ptx/shared_memory.cuh"
#include "kernels/ptx/thread_block.cuh"

namespace octavo {

// Tiles that were drawn in each launch that may be under way; 0 between launches.
static __device__ unsigned tile_counters[kTileCounters];

// How a cluster's next tile gets to the threads that walk over tiles. One thread of the cluster,
// the one that loads tiles of its first thread block, draws it and tells everybody how many
// clusters of tiles lie between it and the last one. PERF: it draws when a tile's last K-blocks are
// on their way, not before, so that whoever is behind takes fewer; neighbours in the order are
// taken at about the same time and find each other's rows of B in the second-level cache. Tiles
// that were dealt out in turn took up to 14 % longer (docs/experiments.md, "Whose tile is next").
template <GemmConfig config>
class TileTickets {
 public:
  __device__ __forceinline__ TileTickets(const GemmArguments<config>& arguments,
                                         const GemmAddresses<config>& smem)
      : arguments_(arguments), smem_(smem) {}

  // Waits for the next one.
  [[nodiscard]] __device__ __forceinline__ int take() {
    ptx::mbarrier_wait(smem_.ticket_drawn(ring_.stage), ring_.parity);
    const int ticket = ptx::load_shared_int(smem_.ticket(ring_.stage));
    ring_.advance();
    return ticket;
  }

 protected:
  const GemmArguments<config>& arguments_;
  const GemmAddresses<config>& smem_;
  RingPosition<num_tickets(config)> ring_;
};

// Those of a thread that loads tiles.
template <GemmConfig config>
class DrawnTickets : public TileTickets<config> {
 public:
  using TileTickets<config>::TileTickets;

  // Begins to draw, before the last of a tile's K-blocks.
  __device__ __forceinline__ void draw() {
    if (draws() && counter() >= 0) drawn_ = atomicAdd(&tile_counters[counter()], 1U);
  }

  // Before a thread that loads takes a ticket: tells the cluster. No slot is in use any more when
  // its turn comes again: a stage is loaded anew after everybody has passed it, and a tile has at
  // least one.
  __device__ __forceinline__ void publish() {
    const int slot = this->ring_.stage;
    const unsigned to = this->smem_.ticket(slot);
    const unsigned drawn = this->smem_.ticket_drawn(slot);
    const int next = (counter() >= 0 ? static_cast<int>(drawn_) : last_) + num_clusters();
    if constexpr (cluster_size(config) == 1) {
      ptx::store_shared_int(to, next - last_);
      ptx::mbarrier_arrive(drawn);
    } else {
      // Every block's own barrier waits for its thread that loads, and for the ticket.
      ptx::mbarrier_arrive_expect_bytes(drawn, kTicketBytes);
      if (!draws()) return;
#pragma unroll
      for (int rank = 0; rank < cluster_size(config); ++rank) {
        ptx::store_in_cluster_async(ptx::shared_address_of_block(to, rank), next - last_,
                                    ptx::shared_address_of_block(drawn, rank));
      }
    }
    last_ = next;
  }

  // Once there is no tile any more; `behind`: how far behind the last tile the ticket is. Every
  // tile was followed by a draw, so the launch's last one is known by its number.
  __device__ __forceinline__ void finish(int behind) const {
    if (draws() && counter() >= 0 && behind == num_clusters() - 1) tile_counters[counter()] = 0;
  }

 private:
  // PERF: both looked up again rather than kept: registers are short where this is used.
  [[nodiscard]] static __device__ __forceinline__ bool draws() {
    return cluster_size(config) == 1 || ptx::cluster_rank() == 0;
  }
  [[nodiscard]] static __device__ __forceinline__ int num_clusters() {
    return static_cast<int>(gridDim.x) / cluster_size(config);
  }
  // Negative: tiles in turn.
  [[nodiscard]] __device__ __forceinline__ int counter() const {
    return this->arguments_.tile_counter;
  }

  unsigned drawn_ = 0;
  int last_ = static_cast<int>(blockIdx.x) / cluster_size(config);
};

template <GemmConfig config, typename Walk>
__device__ __forceinline__ void to_next_tile(Walk& walk, TileTickets<config>& tickets) {
  if constexpr (draws_tiles(config)) {
    walk.advance(tickets.take());
  } else {
    walk.advance();
  }
}

}  // namespace octavo
