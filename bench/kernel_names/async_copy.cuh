// SPDX-License-Identifier: Apache-2.0
// Copies of 16 bytes from global to shared memory that a thread starts and does not wait for
// (PTX ISA, "cp.async"). For the tensor-core kernels of this folder; the library's own are in
// kernels/ptx.
#pragma once

#include <cstdint>

__device__ __forceinline__ uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

__device__ __forceinline__ void copy_16_bytes(uint32_t to_shared, const void* from_global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to_shared), "l"(from_global)
               : "memory");
}

// Closes a group: the copies that this thread has started since the last one.
__device__ __forceinline__ void close_copy_group() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Until all but the newest `pending` groups of this thread have arrived.
template <int pending>
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_group %0;" ::"n"(pending) : "memory");
}
