// SPDX-License-Identifier: Apache-2.0
// Copies an FP8 operand that wgmma cannot read in place into K-major rows at multiples of 16 bytes,
// padded with zeros. Every lane moves 4 bytes at a time, 128 a warp, which reads and writes whole
// lines; bytes are all it sees, so NaN payloads and zeros' signs stay.
#pragma once

#include "kernels/contract/repack_params.hpp"
#include "kernels/ptx/thread_block.cuh"

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

inline constexpr int kSquareWords = kRepackTile / kWordBytes;  // of a row; one lane each
static_assert(kSquareWords == 32);

// A square of kRepackTile rows and as much of K. PERF: word w of row r lies at w ^ (r / 4): no two
// lanes meet in a bank, neither when columns are written nor when rows are read.
struct Square {
  unsigned* words;

  // Words `word` of rows [4 lane, 4 lane + 4), given as those rows' bytes of 4 columns.
  __device__ __forceinline__ void put(const unsigned (&column)[kWordBytes], int word, int lane) {
    // Bytes 0 and 1, then 2 and 3, of two columns interleaved; then pairs of those.
    const unsigned low01 = __byte_perm(column[0], column[1], 0x5140);
    const unsigned low23 = __byte_perm(column[2], column[3], 0x5140);
    const unsigned high01 = __byte_perm(column[0], column[1], 0x7362);
    const unsigned high23 = __byte_perm(column[2], column[3], 0x7362);
    unsigned* to = words + lane * kWordBytes * kSquareWords + (word ^ lane);
    to[0 * kSquareWords] = __byte_perm(low01, low23, 0x5410);
    to[1 * kSquareWords] = __byte_perm(low01, low23, 0x7632);
    to[2 * kSquareWords] = __byte_perm(high01, high23, 0x5410);
    to[3 * kSquareWords] = __byte_perm(high01, high23, 0x7632);
  }

  __device__ __forceinline__ unsigned get(int row, int word) const {
    return words[row * kSquareWords + (word ^ (row / kWordBytes))];
  }
};

// Squares turned around in shared memory; within them, each lane turns blocks of 4 rows by 4 of K
// around in registers. A warp's loads are 128 rows of one k, its stores 128 of K of one row.
__device__ __forceinline__ void repack_columns(const RepackParams& params) {
  constexpr int kWarps = kRepackThreads / 32;
  constexpr int kPasses = kSquareWords / kWarps;
  __shared__ unsigned words[kRepackTile * kSquareWords];
  Square square{words};
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
    const auto* from = static_cast<const unsigned char*>(params.from) +
                       batch * params.from_batch_stride + first_k * params.from_k_stride +
                       first_row;
    auto* to = static_cast<unsigned char*>(params.to) + batch * params.to_batch_stride +
               first_row * params.to_row_stride + first_k;
    const bool is_whole =
        first_row + kRepackTile <= params.rows && first_k + kRepackTile <= params.k;
    if (is_whole && reinterpret_cast<unsigned long long>(from) % kWordBytes == 0 &&
        params.from_k_stride % kWordBytes == 0) {
      // PERF: nothing to check, all loads at once: 1.6 times as quick as the general way below.
      const unsigned char* at = from + warp * kWordBytes * params.from_k_stride + lane * kWordBytes;
      unsigned columns[kPasses][kWordBytes];
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
#pragma unroll
        for (int i = 0; i < kWordBytes; ++i) {
          columns[pass][i] = __ldg(reinterpret_cast<const unsigned*>(at));
          at += params.from_k_stride;
        }
        at += (kWarps - 1) * kWordBytes * params.from_k_stride;
      }
#pragma unroll
      for (int pass = 0; pass < kPasses; ++pass) {
        square.put(columns[pass], pass * kWarps + warp, lane);
      }
    } else {
#pragma unroll 1
      for (int word = warp; word < kSquareWords; word += kWarps) {
        const auto line = [&](int i) {
          const int k = word * kWordBytes + i;
          return Line(from + k * params.from_k_stride,
                      first_k + k < params.k ? params.rows - first_row : 0);
        };
        Line::Words loaded[kWordBytes];
#pragma unroll
        for (int i = 0; i < kWordBytes; ++i) loaded[i] = line(i).load(lane * kWordBytes);
        unsigned column[kWordBytes];
#pragma unroll
        for (int i = 0; i < kWordBytes; ++i) {
          column[i] = line(i).word(loaded[i], lane * kWordBytes);
        }
        square.put(column, word, lane);
      }
    }
    __syncthreads();
    unsigned char* out = to + warp * params.to_row_stride + lane * kWordBytes;
    if (is_whole) {
#pragma unroll
      for (int row = 0; row < kRepackTile; row += kWarps) {
        *reinterpret_cast<unsigned*>(out) = square.get(row + warp, lane);
        out += kWarps * params.to_row_stride;
      }
    } else {
      for (int row = warp; row < kRepackTile && first_row + row < params.rows; row += kWarps) {
        if (first_k + lane * kWordBytes < params.to_row_stride) {
          *reinterpret_cast<unsigned*>(out) = square.get(row, lane);
        }
        out += kWarps * params.to_row_stride;
      }
    }
    __syncthreads();
  }
}

__device__ __forceinline__ void repack_operand(const RepackParams& params) {
  ptx::wait_for_earlier_kernels();
  ptx::let_next_kernel_start();
  if (params.layout == RepackFrom::kColumns) {
    repack_columns(params);
  } else {
    repack_rows(params);
  }
}

}  // namespace octavo
