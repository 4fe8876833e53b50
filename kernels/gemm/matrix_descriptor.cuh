// SPDX-License-Identifier: Apache-2.0
// How wgmma is told where a tile lies in shared memory.
#pragma once

namespace octavo {

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

}  // namespace octavo
