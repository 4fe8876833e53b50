// SPDX-License-Identifier: Apache-2.0
// Shared-memory loads, stores and small asynchronous copies by 32-bit shared address, one
// instruction a function (PTX ISA 8.x).
#pragma once

namespace octavo::ptx {

__device__ __forceinline__ float load_shared(unsigned address) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ int load_shared_int(unsigned address) {
  int value;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(address) : "memory");
  return value;
}
__device__ __forceinline__ unsigned short load_shared_16bit(unsigned address) {
  unsigned short value;
  asm volatile("ld.shared.u16 %0, [%1];" : "=h"(value) : "r"(address) : "memory");
  return value;
}

__device__ __forceinline__ float4 load_shared_chunk(unsigned address) {
  float4 values;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(values.x), "=f"(values.y), "=f"(values.z), "=f"(values.w)
               : "r"(address)
               : "memory");
  return values;
}

__device__ __forceinline__ float2 load_shared_pair(unsigned address) {
  float2 value;
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(address)
               : "memory");
  return value;
}

// From any thread block of the cluster; the address is shared_address_of_block's
// (thread_block.cuh).
__device__ __forceinline__ float2 load_cluster_pair(unsigned cluster_address) {
  float2 value;
  asm volatile("ld.shared::cluster.v2.f32 {%0, %1}, [%2];"
               : "=f"(value.x), "=f"(value.y)
               : "r"(cluster_address)
               : "memory");
  return value;
}

__device__ __forceinline__ void store_shared(unsigned address, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}

__device__ __forceinline__ void store_shared_int(unsigned address, int value) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(address), "r"(value) : "memory");
}
// To a thread block of the cluster and, with its four bytes, to a barrier there. PERF: a store and
// an arrival after it would need a fence, which takes a microsecond among loads.
__device__ __forceinline__ void store_in_cluster_async(unsigned cluster_address, int value,
                                                       unsigned cluster_barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.s32 [%0], %1, [%2];" ::"r"(
                   cluster_address),
               "r"(value), "r"(cluster_barrier)
               : "memory");
}
__device__ __forceinline__ void store_shared_pair(unsigned address, float low, float high) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(address), "f"(low), "f"(high) : "memory");
}

// Four matrices of 8 x 8 16-bit elements; lane i gives the address of row i % 8 of matrix i / 8 and
// holds, of each matrix, elements 2 (i % 4) and the next of row i / 4.
__device__ __forceinline__ void store_matrices(unsigned address, const unsigned (&pairs)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
               "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
               : "memory");
}

// The same, each matrix transposed: columns of what the lanes hold become rows.
__device__ __forceinline__ void store_matrices_transposed(unsigned address,
                                                          const unsigned (&pairs)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(address),
      "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
      : "memory");
}

// Four bytes of global memory to shared memory, without waiting.
__device__ __forceinline__ void copy_word_async(unsigned to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to),
               "l"(__cvta_generic_to_global(from))
               : "memory");
}

}  // namespace octavo::ptx
