// SPDX-License-Identifier: Apache-2.0
// Shared-memory barriers (PTX ISA 8.x, "mbarrier"), one instruction a function. Addresses are
// 32-bit shared-memory addresses.
#pragma once

namespace octavo::ptx {

__device__ __forceinline__ void mbarrier_init(unsigned barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

// Makes initialised barriers visible to the cluster's other thread blocks and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive_expect_bytes(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

__device__ __forceinline__ void mbarrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

// Arrives once the calling thread's asynchronous copies (shared_memory.cuh) are done.
__device__ __forceinline__ void mbarrier_arrive_after_copies(unsigned barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(barrier) : "memory");
}

// A barrier of any thread block of the cluster; its address is shared_address_of_block's.
// PERF: written with .release.cluster, which the memory model asks for across blocks, the arrival
// cost 10 % of a block-scaled product. What it orders here are reads that wgmma or the warp has
// finished, before a TMA write that is issued after the arrival was seen.
__device__ __forceinline__ void mbarrier_arrive_in_cluster(unsigned cluster_address) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(cluster_address) : "memory");
}

// Returns once the phase with this parity has completed.
__device__ __forceinline__ void mbarrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\nbra again;\nfinished:\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

}  // namespace octavo::ptx
