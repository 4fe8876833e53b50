// SPDX-License-Identifier: Apache-2.0
// Bulk copies (PTX ISA 8.x, "cp.async.bulk"), one instruction a function.
#pragma once

#include "kernels/contract/gemm_params.hpp"

namespace octavo::ptx {

// A box of a 2-D tensor map to shared memory; signals `barrier` with the bytes that arrived.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap* map, unsigned barrier, int x,
                                         int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y)
      : "memory");
}

// What createpolicy.fractional.L2::evict_first makes for the whole of an access.
inline constexpr unsigned long long kEvictFirst = 0x12F0000000000000ULL;

// The same for what is read once: the second-level cache gives it up first.
__device__ __forceinline__ void tma_load_once(unsigned to, const TensorMap* map, unsigned barrier,
                                              int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "l"(kEvictFirst)
      : "memory");
}

// The same to the same place in every thread block of `blocks`, a mask of cluster ranks.
__device__ __forceinline__ void tma_load_multicast(unsigned to, const TensorMap* map,
                                                   unsigned barrier, int x, int y,
                                                   unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%3, %4}], [%2], %5;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "h"(blocks)
      : "memory");
}

// The same of 3-D tensor maps.
__device__ __forceinline__ void tma_load(unsigned to, const TensorMap* map, unsigned barrier, int x,
                                         int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, "
      "{%3, %4, %5}], [%2];" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void tma_load_multicast(unsigned to, const TensorMap* map,
                                                   unsigned barrier, int x, int y, int z,
                                                   unsigned short blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::"
      "cluster [%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(to),
      "l"(map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

// `bytes` consecutive bytes; addresses and size are multiples of 16.
__device__ __forceinline__ void bulk_load(unsigned to, const void* from, unsigned bytes,
                                          unsigned barrier) {
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap* map, unsigned from, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];" ::"l"(map),
      "r"(from), "r"(x), "r"(y)
      : "memory");
}

__device__ __forceinline__ void tma_store(const TensorMap* map, unsigned from, int x, int y,
                                          int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(map),
      "r"(from), "r"(x), "r"(y), "r"(z)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until all but `pending` of the calling thread's store groups have read shared memory.
template <int pending>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

// Until all of the calling thread's stores are done.
__device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
}

// Orders writes to shared memory before a TMA store that reads them.
__device__ __forceinline__ void fence_shared_for_tma() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

}  // namespace octavo::ptx
