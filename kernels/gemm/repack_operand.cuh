// SPDX-License-Identifier: Apache-2.0
// Copies an FP8 operand that wgmma cannot read in place into K-major rows at multiples of 16 bytes,
// padded with zeros. Every lane moves 4 bytes at a time, 128 a warp, which reads and writes whole
// lines; bytes are all it sees, so NaN payloads and zeros' signs stay.
#pragma once

#include "kernels/contract/repack_params.hpp"

namespace octavo {

inline constexpr int kWordBytes = 4;

// A line of contiguous bytes that begins at any address, read in words of 4; zeros behind its end.
// In two steps, the first without branches, so that a thread has many loads on their way at once.
struct Line {
  const unsigned char* bytes;
  long long size;
  int shift;  // bytes from the aligned word before it

  __device__ __forceinline__ Line(const unsigned char* from, long long n)
      : bytes(from),
        size(n),
        shift(static_cast<int>(reinterpret_cast<unsigned long long>(from) % kWordBytes)) {}

  struct Words {
    unsigned low;
    unsigned high;
  };

  // The aligned words that hold bytes [i, i + 4), i a multiple of 4. One that begins before the
  // line lies in the line's allocation all the same; one that ends behind it may not.
  __device__ __forceinline__ Words load(long long i) const {
    const auto* words = reinterpret_cast<const unsigned*>(bytes + i - shift);
    const long long left = size - i + shift;
    Words loaded{0, 0};
    if (left >= kWordBytes) loaded.low = __ldg(words);
    if (shift != 0 && left >= 2 * kWordBytes) loaded.high = __ldg(words + 1);
    return loaded;
  }

  __device__ __forceinline__ unsigned word(Words loaded, long long i) const {
    const long long left = size - i + shift;
    if (left >= 2 * kWordBytes || (shift == 0 && left >= kWordBytes)) {
      return __funnelshift_r(loaded.low, loaded.high, 8 * shift);
    }
    unsigned result = 0;
#pragma unroll 1
    for (int byte = 0; byte < kWordBytes && i + byte < size; ++byte) {
      result |= static_cast<unsigned>(__ldg(bytes + i + byte)) << (8 * byte);
    }
    return result;
  }
};

// One stretch of a row for each warp.
__device__ __forceinline__ void repack_rows(const RepackParams& params) {
  constexpr int kWarps = kRepackThreads / 32;
  constexpr int kWords = kRepackStretch / (32 * kWordBytes);
  const long long stretches = (params.to_row_stride + kRepackStretch - 1) / kRepackStretch;
  const long long count = params.batch * params.rows * stretches;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (long long task = static_cast<long long>(blockIdx.x) * kWarps + threadIdx.x / 32;
       task < count; task += static_cast<long long>(gridDim.x) * kWarps) {
    const long long all_rows = task / stretches;
    const long long first = (task - all_rows * stretches) * kRepackStretch;
    const long long batch = all_rows / params.rows;
    const long long row = all_rows - batch * params.rows;
    const auto* from = static_cast<const unsigned char*>(params.from) +
                       batch * params.from_batch_stride + row * params.from_row_stride;
    auto* to = static_cast<unsigned char*>(params.to) + batch * params.to_batch_stride +
               row * params.to_row_stride;
    unsigned words[kWords];
    if (params.layout == RepackFrom::kRows) {
      const Line line(from, params.k);
      Line::Words loaded[kWords];
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        loaded[i] = line.load(first + (i * 32 + lane) * kWordBytes);
      }
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        words[i] = line.word(loaded[i], first + (i * 32 + lane) * kWordBytes);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kWords; ++i) {
        const long long k = first + (i * 32 + lane) * kWordBytes;
        words[i] = 0;
#pragma unroll
        for (int byte = 0; byte < kWordBytes; ++byte) {
          if (k + byte < params.k) {
            words[i] |= static_cast<unsigned>(__ldg(from + (k + byte) * params.from_k_stride))
                        << (8 * byte);
          }
        }
      }
    }
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const long long k = first + (i * 32 + lane) * kWordBytes;
      if (k < params.to_row_stride) *reinterpret_cast<unsigned*>(to + k) = words[i];
    }
  }
}

// Squares of kRepackTile rows and as much of K.
__device__ __forceinline__ void repack_columns(const RepackParams& params) {
  constexpr int kWords = kRepackTile / kWordBytes;  // of a row of the square; one lane each
  static_assert(kWords == 32);
  constexpr int kWarps = kRepackThreads / 32;
  __shared__ unsigned square[kRepackTile * kWords];
  const long long tiles_k = (params.to_row_stride + kRepackTile - 1) / kRepackTile;
  const long long tiles_row = (params.rows + kRepackTile - 1) / kRepackTile;
  const long long count = params.batch * tiles_row * tiles_k;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const int warp = static_cast<int>(threadIdx.x) / 32;
  for (long long tile = blockIdx.x; tile < count; tile += gridDim.x) {
    const long long stripe = tile / tiles_row;
    const long long first_row = (tile - stripe * tiles_row) * kRepackTile;
    const long long batch = stripe / tiles_k;
    const long long first_k = (stripe - batch * tiles_k) * kRepackTile;
    const auto* from =
        static_cast<const unsigned char*>(params.from) + batch * params.from_batch_stride;
    auto* to = static_cast<unsigned char*>(params.to) + batch * params.to_batch_stride;
    // Each lane turns blocks of 4 rows by 4 of K around in registers. A warp's loads are 128 rows
    // of one k.
    const long long lane_row = first_row + lane * kWordBytes;
#pragma unroll 1
    for (int word = warp; word < kWords; word += 2 * kWarps) {
      // Two blocks at a time, for loads in flight.
      Line::Words loaded[2][kWordBytes];
#pragma unroll
      for (int i = 0; i < 2 * kWordBytes; ++i) {
        const long long k =
            first_k + (word + i / kWordBytes * kWarps) * kWordBytes + i % kWordBytes;
        const Line line(from + k * params.from_k_stride, k < params.k ? params.rows : 0);
        loaded[i / kWordBytes][i % kWordBytes] = line.load(lane_row);
      }
#pragma unroll
      for (int part = 0; part < 2; ++part) {
        const int part_word = word + part * kWarps;
        unsigned column[kWordBytes];
#pragma unroll
        for (int i = 0; i < kWordBytes; ++i) {
          const long long k = first_k + part_word * kWordBytes + i;
          const Line line(from + k * params.from_k_stride, k < params.k ? params.rows : 0);
          column[i] = line.word(loaded[part][i], lane_row);
        }
        // Bytes 0 and 1, then 2 and 3, of two columns interleaved; then pairs of those.
        const unsigned low01 = __byte_perm(column[0], column[1], 0x5140);
        const unsigned low23 = __byte_perm(column[2], column[3], 0x5140);
        const unsigned high01 = __byte_perm(column[0], column[1], 0x7362);
        const unsigned high23 = __byte_perm(column[2], column[3], 0x7362);
        const unsigned rows[kWordBytes] = {
            __byte_perm(low01, low23, 0x5410), __byte_perm(low01, low23, 0x7632),
            __byte_perm(high01, high23, 0x5410), __byte_perm(high01, high23, 0x7632)};
        // PERF: word w of row r lies at w ^ (r / 4): no two lanes meet in a bank, here or below.
#pragma unroll
        for (int i = 0; i < kWordBytes; ++i) {
          square[(lane * kWordBytes + i) * kWords + (part_word ^ lane)] = rows[i];
        }
      }
    }
    __syncthreads();
    const long long lane_k = first_k + lane * kWordBytes;
#pragma unroll
    for (int pass = 0; pass < kRepackTile / kWarps; ++pass) {
      const int row = pass * kWarps + warp;
      if (first_row + row < params.rows && lane_k < params.to_row_stride) {
        *reinterpret_cast<unsigned*>(to + (first_row + row) * params.to_row_stride + lane_k) =
            square[row * kWords + (lane ^ (row / kWordBytes))];
      }
    }
    __syncthreads();
  }
}

__device__ __forceinline__ void repack_operand(const RepackParams& params) {
  if (params.layout == RepackFrom::kColumns) {
    repack_columns(params);
  } else {
    repack_rows(params);
  }
}

}  // namespace octavo
