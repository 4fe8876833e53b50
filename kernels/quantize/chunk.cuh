// SPDX-License-Identifier: Apache-2.0
// A chunk: eight neighbouring elements of a row, in one thread's registers. Loading and storing it
// with and without vector instructions, and its conversions, which give the bits of the CPU's
// (docs/numerics.md, "Formats").
#pragma once

#include "kernels/contract/quantize_params.hpp"

namespace octavo {

// Elements of x as they lie in memory.
template <DType kX>
struct WideChunk {
  static constexpr int kWords = kQuantizeChunk * size_bytes(kX) / 4;
  unsigned words[kWords];
};

// FP8 codes, four to a word.
struct NarrowChunk {
  unsigned words[2];
};

// One chunk's words. What is read once need not stay in the first-level cache.
__device__ __forceinline__ void load_words(const char* from, unsigned (&words)[2]) {
  asm volatile("ld.global.nc.L1::no_allocate.v2.u32 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "l"(from));
}
template <int kWords>
__device__ __forceinline__ void load_words(const char* from, unsigned (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[i]), "=r"(words[i + 1]), "=r"(words[i + 2]), "=r"(words[i + 3])
                 : "l"(from + 4 * i));
  }
}
__device__ __forceinline__ void store_words(char* to, const unsigned (&words)[2]) {
  asm volatile("st.global.v2.u32 [%0], {%1, %2};" ::"l"(to), "r"(words[0]), "r"(words[1])
               : "memory");
}
template <int kWords>
__device__ __forceinline__ void store_words(char* to, const unsigned (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; i += 4) {
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to + 4 * i), "r"(words[i]),
                 "r"(words[i + 1]), "r"(words[i + 2]), "r"(words[i + 3])
                 : "memory");
  }
}

// The chunks of one thread: number i is at (row + i * row_step, col + i * col_step).
struct ChunkWalk {
  long long row;
  long long col;
  int row_step;
  int col_step;
  // What the matrix has from the first chunk on; at most 2^30, beyond any walk.
  int rows_left;
  int cols_left;

  [[nodiscard]] __device__ __forceinline__ bool is_whole(int i) const {
    return i * row_step < rows_left && i * col_step + kQuantizeChunk <= cols_left;
  }
  // Of a chunk's elements, those that the matrix has.
  [[nodiscard]] __device__ __forceinline__ int num_elements(int i) const {
    return i * row_step < rows_left ? cols_left - i * col_step : 0;
  }
};

__device__ __forceinline__ ChunkWalk chunk_walk(const QuantizeParams& params, long long row,
                                                long long col, int row_step, int col_step) {
  constexpr long long kFar = 1 << 30;
  const auto left = [](long long extent, long long position) {
    const long long rest = extent - position;
    return static_cast<int>(rest < 0 ? 0 : rest < kFar ? rest : kFar);
  };
  return {row, col, row_step, col_step, left(params.rows, row), left(params.cols, col)};
}

// A matrix as load_chunks() and store_chunks() see it.
struct MatrixPlace {
  char* data;
  long long row_stride;
  long long col_stride;
};
__device__ __forceinline__ MatrixPlace place_of_x(const QuantizeParams& params) {
  return {static_cast<char*>(params.x), params.x_row_stride, params.x_col_stride};
}
__device__ __forceinline__ MatrixPlace place_of_q(const QuantizeParams& params) {
  return {static_cast<char*>(params.q), params.q_row_stride, params.q_col_stride};
}

// Only the last chunk of a row may be cut, and only if this is so.
__device__ __forceinline__ bool has_cut_chunks(const QuantizeParams& params) {
  return params.cols % kQuantizeChunk != 0;
}

// What lies outside the matrix reads as zero. kBytes: of an element.
template <int kBytes, QuantizeAccess kAccess, typename Chunk, int kCount>
__device__ __forceinline__ void load_chunks(const QuantizeParams& params, const MatrixPlace& matrix,
                                            const ChunkWalk& walk, Chunk (&chunks)[kCount]) {
  constexpr bool kVectors = kAccess == QuantizeAccess::kVectors;
  const char* first =
      matrix.data + (walk.row * matrix.row_stride + walk.col * matrix.col_stride) * kBytes;
  const long long step =
      (walk.row_step * matrix.row_stride + walk.col_step * matrix.col_stride) * kBytes;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    chunks[i] = {};
    if (kVectors && walk.is_whole(i)) load_words(first + i * step, chunks[i].words);
  }
  if (kVectors && !has_cut_chunks(params)) return;
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (kVectors && walk.is_whole(i)) continue;
#pragma unroll
    for (int j = 0; j < kQuantizeChunk; ++j) {
      if (j >= walk.num_elements(i)) break;
      const char* element = first + i * step + j * matrix.col_stride * kBytes;
      unsigned bits;
      if constexpr (kBytes == 4) bits = *reinterpret_cast<const unsigned*>(element);
      if constexpr (kBytes == 2) bits = *reinterpret_cast<const unsigned short*>(element);
      if constexpr (kBytes == 1) bits = *reinterpret_cast<const unsigned char*>(element);
      constexpr int kPerWord = 4 / kBytes;
      chunks[i].words[j / kPerWord] |= bits << (8 * kBytes * (j % kPerWord));
    }
  }
}

template <int kBytes, QuantizeAccess kAccess, typename Chunk, int kCount>
__device__ __forceinline__ void store_chunks(const QuantizeParams& params,
                                             const MatrixPlace& matrix, const ChunkWalk& walk,
                                             const Chunk (&chunks)[kCount]) {
  constexpr bool kVectors = kAccess == QuantizeAccess::kVectors;
  char* first =
      matrix.data + (walk.row * matrix.row_stride + walk.col * matrix.col_stride) * kBytes;
  const long long step =
      (walk.row_step * matrix.row_stride + walk.col_step * matrix.col_stride) * kBytes;
  if constexpr (kVectors) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      if (walk.is_whole(i)) store_words(first + i * step, chunks[i].words);
    }
    if (!has_cut_chunks(params)) return;
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (kVectors && walk.is_whole(i)) continue;
#pragma unroll
    for (int j = 0; j < kQuantizeChunk; ++j) {
      if (j >= walk.num_elements(i)) break;
      char* element = first + i * step + j * matrix.col_stride * kBytes;
      constexpr int kPerWord = 4 / kBytes;
      const unsigned bits = chunks[i].words[j / kPerWord] >> (8 * kBytes * (j % kPerWord));
      if constexpr (kBytes == 4) *reinterpret_cast<unsigned*>(element) = bits;
      if constexpr (kBytes == 2) {
        *reinterpret_cast<unsigned short*>(element) = static_cast<unsigned short>(bits);
      }
      if constexpr (kBytes == 1) {
        *reinterpret_cast<unsigned char*>(element) = static_cast<unsigned char>(bits);
      }
    }
  }
}

template <DType kX, QuantizeAccess kAccess, int kCount>
__device__ __forceinline__ void load_x(const QuantizeParams& params, const ChunkWalk& walk,
                                       WideChunk<kX> (&x)[kCount]) {
  load_chunks<size_bytes(kX), kAccess>(params, place_of_x(params), walk, x);
}
template <DType kX, QuantizeAccess kAccess, int kCount>
__device__ __forceinline__ void store_x(const QuantizeParams& params, const ChunkWalk& walk,
                                        const WideChunk<kX> (&x)[kCount]) {
  store_chunks<size_bytes(kX), kAccess>(params, place_of_x(params), walk, x);
}
template <QuantizeAccess kAccess, int kCount>
__device__ __forceinline__ void load_q(const QuantizeParams& params, const ChunkWalk& walk,
                                       NarrowChunk (&q)[kCount]) {
  load_chunks<1, kAccess>(params, place_of_q(params), walk, q);
}
template <QuantizeAccess kAccess, int kCount>
__device__ __forceinline__ void store_q(const QuantizeParams& params, const ChunkWalk& walk,
                                        const NarrowChunk (&q)[kCount]) {
  store_chunks<1, kAccess>(params, place_of_q(params), walk, q);
}

// Element i of the chunk.
template <DType kX>
__device__ __forceinline__ float wide_value(const WideChunk<kX>& chunk, int i) {
  if constexpr (kX == DType::kF32) return __uint_as_float(chunk.words[i]);
  const unsigned word = chunk.words[i / 2];
  if constexpr (kX == DType::kBF16) {
    return __uint_as_float(i % 2 == 0 ? word << 16 : word & 0xFFFF0000U);
  } else {
    float value;
    const auto bits = static_cast<unsigned short>(i % 2 == 0 ? word : word >> 16);
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(bits));
    return value;
  }
}

// Nearest even, saturating, NaN gives 0x7F. The first value is in the low byte.
template <DType kQ>
__device__ __forceinline__ unsigned encode_four(float a, float b, float c, float d) {
  unsigned word;
  if constexpr (kQ == DType::kE4M3) {
    asm("{\n.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e4m3x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e4m3x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n}"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  } else {
    asm("{\n.reg .b16 low, high;\n"
        "cvt.rn.satfinite.e5m2x2.f32 low, %2, %1;\n"
        "cvt.rn.satfinite.e5m2x2.f32 high, %4, %3;\n"
        "mov.b32 %0, {low, high};\n}"
        : "=r"(word)
        : "f"(a), "f"(b), "f"(c), "f"(d));
  }
  return word;
}

// encode(x * factor), the product rounded to FP32 first.
template <DType kX, DType kQ>
__device__ __forceinline__ NarrowChunk encode_chunk(const WideChunk<kX>& x, float factor) {
  float products[kQuantizeChunk];
#pragma unroll
  for (int i = 0; i < kQuantizeChunk; ++i) products[i] = __fmul_rn(wide_value(x, i), factor);
  return {{encode_four<kQ>(products[0], products[1], products[2], products[3]),
           encode_four<kQ>(products[4], products[5], products[6], products[7])}};
}

template <DType kX, DType kQ, QuantizeAccess kAccess, int kCount>
__device__ __forceinline__ void encode_and_store(const QuantizeParams& params,
                                                 const ChunkWalk& walk,
                                                 const WideChunk<kX> (&x)[kCount], float factor) {
  NarrowChunk q[kCount];
#pragma unroll
  for (int i = 0; i < kCount; ++i) q[i] = encode_chunk<kX, kQ>(x[i], factor);
  store_q<kAccess>(params, walk, q);
}

// Two codes, in the low half of `codes`, as FP32. Both formats are subsets of F16.
template <DType kQ>
__device__ __forceinline__ void decode_two(unsigned codes, float& first, float& second) {
  const auto pair = static_cast<unsigned short>(codes);
  if constexpr (kQ == DType::kE4M3) {
    asm("{\n.reg .b32 halves;\n.reg .b16 low, high;\n"
        "cvt.rn.f16x2.e4m3x2 halves, %2;\n"
        "mov.b32 {low, high}, halves;\n"
        "cvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(first), "=f"(second)
        : "h"(pair));
  } else {
    asm("{\n.reg .b32 halves;\n.reg .b16 low, high;\n"
        "cvt.rn.f16x2.e5m2x2 halves, %2;\n"
        "mov.b32 {low, high}, halves;\n"
        "cvt.f32.f16 %0, low;\ncvt.f32.f16 %1, high;\n}"
        : "=f"(first), "=f"(second)
        : "h"(pair));
  }
}

// round(decode(q) * scale), the product rounded to FP32 first.
template <DType kQ, DType kX>
__device__ __forceinline__ WideChunk<kX> decode_chunk(const NarrowChunk& q, float scale) {
  WideChunk<kX> x;
#pragma unroll
  for (int i = 0; i < kQuantizeChunk; i += 2) {
    float first;
    float second;
    decode_two<kQ>(q.words[i / 4] >> (8 * (i % 4)), first, second);
    first = __fmul_rn(first, scale);
    second = __fmul_rn(second, scale);
    if constexpr (kX == DType::kF32) {
      x.words[i] = __float_as_uint(first);
      x.words[i + 1] = __float_as_uint(second);
    } else if constexpr (kX == DType::kBF16) {
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(x.words[i / 2]) : "f"(second), "f"(first));
    } else {
      asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(x.words[i / 2]) : "f"(second), "f"(first));
    }
  }
  return x;
}

}  // namespace octavo
