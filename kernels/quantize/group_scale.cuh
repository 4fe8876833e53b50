// SPDX-License-Identifier: Apache-2.0
// A group's largest finite magnitude, the scale it leads to and that scale's reciprocal, with the
// bits of the CPU's src/numerics/scale_math.hpp; and where scales lie.
#pragma once

#include "kernels/contract/quantize_params.hpp"
#include "kernels/quantize/chunk.cuh"

namespace octavo {

inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

// Magnitudes as integers in which infinities and NaN are negative, so that a signed maximum passes
// them over: a magnitude's bits plus what takes infinity's to the sign bit. Of 16-bit types there
// are two in a word.
template <DType kX>
struct Amax {
  static constexpr bool kPaired = kX != DType::kF32;
  static constexpr unsigned kMagnitude = kPaired ? 0x7FFF7FFFU : 0x7FFFFFFFU;
  static constexpr unsigned kZero = kX == DType::kBF16  ? 0x00800080U
                                    : kX == DType::kF16 ? 0x04000400U
                                                        : 0x00800000U;

  unsigned bits = kZero;

  __device__ __forceinline__ void merge(unsigned other) {
    if constexpr (kPaired) {
      asm("max.s16x2 %0, %0, %1;" : "+r"(bits) : "r"(other));
    } else {
      const int a = static_cast<int>(bits);
      const int b = static_cast<int>(other);
      bits = static_cast<unsigned>(a > b ? a : b);
    }
  }
  __device__ __forceinline__ void add(const WideChunk<kX>& chunk) {
#pragma unroll
    for (const unsigned word : chunk.words) merge((word & kMagnitude) + kZero);
  }
  template <int kCount>
  __device__ __forceinline__ void add(const WideChunk<kX> (&chunks)[kCount]) {
#pragma unroll
    for (const WideChunk<kX>& chunk : chunks) add(chunk);
  }

  // The pair's larger one, as a whole number that orders as magnitudes do.
  [[nodiscard]] __device__ __forceinline__ int folded() const {
    if constexpr (!kPaired) return static_cast<int>(bits);
    const int low = static_cast<short>(bits & 0xFFFFU);
    const int high = static_cast<int>(bits) >> 16;
    return low > high ? low : high;
  }
  [[nodiscard]] static __device__ __forceinline__ float value(int folded) {
    const unsigned magnitude = static_cast<unsigned>(folded) - (kPaired ? kZero & 0xFFFFU : kZero);
    if constexpr (kX == DType::kF32) return __uint_as_float(magnitude);
    WideChunk<kX> chunk{};
    chunk.words[0] = magnitude;
    return wide_value(chunk, 0);
  }
};

// The largest of the warp's; every lane gets it.
template <DType kX>
__device__ __forceinline__ int warp_amax(const Amax<kX>& amax) {
  return __reduce_max_sync(kAllLanes, amax.folded());
}

// The largest of a thread block's, whose warps need one int each in `shared`. Every thread gets it.
// The caller synchronises before `shared` is used again.
template <DType kX>
__device__ __forceinline__ float block_amax(const Amax<kX>& amax, int* shared) {
  const int num_warps = static_cast<int>(blockDim.x) / kQuantizeWarp;
  const int lane = static_cast<int>(threadIdx.x) % kQuantizeWarp;
  const int of_warp = warp_amax(amax);
  if (lane == 0) shared[threadIdx.x / kQuantizeWarp] = of_warp;
  __syncthreads();
  const int mine = shared[lane < num_warps ? lane : 0];
  return Amax<kX>::value(__reduce_max_sync(kAllLanes, mine));
}

// A positive scale rounded up to a power of two in [2^-126, 2^127], as a UE8M0 code.
__device__ __forceinline__ unsigned ue8m0_scale_code(float scale) {
  const unsigned bits = __float_as_uint(scale);
  const unsigned code = ((bits >> 23) & 0xFFU) + ((bits & 0x7FFFFFU) != 0 ? 1U : 0U);
  return code < 1 ? 1 : code > 254 ? 254 : code;
}

template <DType kQ>
__device__ __forceinline__ float scale_from_amax(const QuantizeParams& params, float amax) {
  const float scale =
      __fdiv_rn(amax > params.amax_floor ? amax : params.amax_floor, max_finite_fp8(kQ));
  return params.scale_is_ue8m0 != 0 ? __uint_as_float(ue8m0_scale_code(scale) << 23) : scale;
}

__device__ __forceinline__ float reciprocal(float scale) { return __frcp_rn(scale); }

__device__ __forceinline__ long long scale_offset(const QuantizeParams& params, long long row,
                                                  long long col) {
  return (row >> params.scale_row_shift) * params.scale_row_stride +
         (col >> params.scale_col_shift) * params.scale_col_stride;
}

// A scale that scale_from_amax() gave, for the group of element (row, col).
__device__ __forceinline__ void write_scale(const QuantizeParams& params, long long row,
                                            long long col, float scale) {
  const long long offset = scale_offset(params, row, col);
  if (params.scale_is_ue8m0 != 0) {
    static_cast<unsigned char*>(params.scale)[offset] =
        static_cast<unsigned char>(__float_as_uint(scale) >> 23);
  } else {
    static_cast<float*>(params.scale)[offset] = scale;
  }
}

__device__ __forceinline__ float read_scale(const QuantizeParams& params, long long row,
                                            long long col) {
  if (params.scale == nullptr) return 1.0F;
  const long long offset = scale_offset(params, row, col);
  if (params.scale_is_ue8m0 == 0) return static_cast<const float*>(params.scale)[offset];
  // 2^(code - 127); code 0 is 2^-127, a subnormal F32, and code 255 NaN.
  const unsigned code = static_cast<const unsigned char*>(params.scale)[offset];
  constexpr unsigned kSubnormal = 0x00400000U;
  constexpr unsigned kNan = 0x7FFFFFFFU;
  return __uint_as_float(code == 0 ? kSubnormal : code == 255 ? kNan : code << 23);
}

}  // namespace octavo
