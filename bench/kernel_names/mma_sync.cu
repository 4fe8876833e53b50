// SPDX-License-Identifier: Apache-2.0
// Products by warp-wide mma.sync, FP8 (sm_89 and later) and BF16 (sm_80 and later), as they are
// written for GPUs without wgmma: tiles come by cp.async through a ring of stages and reach the
// registers by ldmatrix. One entry per PTX file: README.md, "One entry a file".
#include <cstdint>

#include "async_copy.cuh"

// C = A @ B.T, C [M, N] in FP32, A [M, K] and B [N, K] row-major, E4M3 or BF16. M and N are
// multiples of 128; rows of A and B of 64 bytes (64 of E4M3, 32 of BF16).
// Launch: grid (N / 128, M / 128), 256 threads, kSharedBytes of dynamic shared memory.
//
// Eight warps share a tile of 128 x 128, two along M by four along N: a warp has 64 x 32. To
// ldmatrix rows are 16-byte chunks, whatever their type: 32 of E4M3 are as long as 16 of BF16, and
// the fragments of m16n8k32 (E4M3) lie, byte by byte, where those of m16n8k16 (BF16) do.
constexpr int kTile = 128;
constexpr int kRowBytes = 64;  // of a tile, in shared memory
constexpr int kChunkBytes = 16;
constexpr int kChunks = kRowBytes / kChunkBytes;
constexpr int kThreads = 256;
constexpr int kWarpSize = 32;
constexpr int kWarpsAlongN = 4;
constexpr int kStages = 3;
constexpr int kTileBytes = kTile * kRowBytes;
constexpr int kStageBytes = 2 * kTileBytes;          // A, then B
constexpr int kSharedBytes = kStages * kStageBytes;  // 48 KiB: what a launch gets unasked
constexpr int kFragmentM = 16;                       // of one mma.sync
constexpr int kFragmentN = 8;
constexpr int kWarpM = 64;
constexpr int kWarpN = 32;
constexpr int kFragmentsM = kWarpM / kFragmentM;
constexpr int kFragmentsN = kWarpN / kFragmentN;
static_assert(kSharedBytes == 49152);

// Where a chunk lies within a tile. Eight rows that follow one another meet no bank twice: two of
// them fill 128 bytes, and the other pairs have their chunks exchanged.
__device__ __forceinline__ uint32_t chunk_offset(int row, int chunk) {
  return static_cast<uint32_t>(row * kRowBytes + (chunk ^ (row / 2 % kChunks)) * kChunkBytes);
}

// Four matrices of 8 rows of 16 bytes. Lanes 8 i to 8 i + 7 give the rows of matrix i; lane l gets
// bytes 4 (l % 4) to 4 (l % 4) + 3 of row l / 4 of each.
__device__ __forceinline__ void load_matrices(uint32_t (&matrix)[4], uint32_t row_address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(row_address)
               : "memory");
}

enum class Input { kE4m3, kBf16 };

// c [16, 8] += a [16, 32 bytes] b [8, 32 bytes]^T
template <Input input>
__device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b_low,
                                         uint32_t b_high) {
  if constexpr (input == Input::kE4m3) {
    asm volatile(
        "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
        "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b_low), "r"(b_high));
  }
}

// Starts the copies of 64 bytes of K, from byte `k_byte` of each row on, for A's and B's tiles.
__device__ __forceinline__ void start_stage(uint32_t stage, const uint8_t* a, const uint8_t* b,
                                            size_t k_bytes, size_t k_byte) {
#pragma unroll
  for (int pass = 0; pass < kTile * kChunks / kThreads; ++pass) {
    const int i = pass * kThreads + static_cast<int>(threadIdx.x);
    const int row = i / kChunks;
    const int chunk = i % kChunks;
    const size_t from = row * k_bytes + k_byte + chunk * kChunkBytes;
    copy_16_bytes(stage + chunk_offset(row, chunk), a + from);
    copy_16_bytes(stage + kTileBytes + chunk_offset(row, chunk), b + from);
  }
}

template <Input input>
__device__ __forceinline__ void gemm(const uint8_t* a, const uint8_t* b, float* c, int m, int n,
                                     int k) {
  extern __shared__ __align__(128) uint8_t shared[];
  const int lane = static_cast<int>(threadIdx.x) % kWarpSize;
  const int warp = static_cast<int>(threadIdx.x) / kWarpSize;
  const int warp_row = warp / kWarpsAlongN * kWarpM;
  const int warp_column = warp % kWarpsAlongN * kWarpN;
  const int first_row = static_cast<int>(blockIdx.y) * kTile;
  const int first_column = static_cast<int>(blockIdx.x) * kTile;
  if (first_row >= m) return;

  constexpr int kInputBytes = input == Input::kE4m3 ? 1 : 2;
  const size_t k_bytes = static_cast<size_t>(k) * kInputBytes;
  const int steps = static_cast<int>(k_bytes / kRowBytes);
  const uint8_t* a_rows = a + first_row * k_bytes;
  const uint8_t* b_rows = b + first_column * k_bytes;
  const uint32_t ring = shared_address(shared);

#pragma unroll
  for (int step = 0; step < kStages - 1; ++step) {
    if (step < steps) {
      start_stage(ring + step * kStageBytes, a_rows, b_rows, k_bytes,
                  static_cast<size_t>(step) * kRowBytes);
    }
    close_copy_group();
  }

  float sum[kFragmentsM][kFragmentsN][4] = {};
  for (int step = 0; step < steps; ++step) {
    wait_for_copies<kStages - 2>();
    // Everyone's copies of this stage are there, and everyone is done with the one before it, which
    // is the one to fill.
    __syncthreads();
    const int ahead = step + kStages - 1;
    if (ahead < steps) {
      start_stage(ring + ahead % kStages * kStageBytes, a_rows, b_rows, k_bytes,
                  static_cast<size_t>(ahead) * kRowBytes);
    }
    close_copy_group();  // empty at the end, so that the count of pending groups stays right

    const uint32_t a_tile = ring + step % kStages * kStageBytes;
    const uint32_t b_tile = a_tile + kTileBytes;
#pragma unroll
    for (int half = 0; half < 2; ++half) {  // 32 bytes of K each: two chunks
      uint32_t a_fragment[kFragmentsM][4];
      uint32_t b_fragment[kFragmentsN / 2][4];
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
        // Rows 0 to 7 and 8 to 15 of the first chunk, then of the second.
        const int row = warp_row + i * kFragmentM + lane % 16;
        load_matrices(a_fragment[i], a_tile + chunk_offset(row, 2 * half + lane / 16));
      }
#pragma unroll
      for (int j = 0; j < kFragmentsN / 2; ++j) {
        // Both chunks of columns 0 to 7, then of 8 to 15.
        const int row = warp_column + j * 2 * kFragmentN + lane / 16 * kFragmentN + lane % 8;
        load_matrices(b_fragment[j], b_tile + chunk_offset(row, 2 * half + lane / 8 % 2));
      }
#pragma unroll
      for (int i = 0; i < kFragmentsM; ++i) {
#pragma unroll
        for (int j = 0; j < kFragmentsN; ++j) {
          const uint32_t(&b_pair)[4] = b_fragment[j / 2];
          multiply<input>(sum[i][j], a_fragment[i], b_pair[j % 2 * 2], b_pair[j % 2 * 2 + 1]);
        }
      }
    }
  }

  // Lane l has columns 2 (l % 4) and the next, of rows l / 4 and l / 4 + 8.
#pragma unroll
  for (int i = 0; i < kFragmentsM; ++i) {
    const int row = first_row + warp_row + i * kFragmentM + lane / 4;
#pragma unroll
    for (int j = 0; j < kFragmentsN; ++j) {
      const int column = first_column + warp_column + j * kFragmentN + lane % 4 * 2;
      float* out = c + static_cast<size_t>(row) * n + column;
      *reinterpret_cast<float2*>(out) = make_float2(sum[i][j][0], sum[i][j][1]);
      *reinterpret_cast<float2*>(out + static_cast<size_t>(8) * n) =
          make_float2(sum[i][j][2], sum[i][j][3]);
    }
  }
}

#if !defined(ONE_ENTRY) || defined(ENTRY_mma_sync_fp8_gemm)
extern "C" __global__ void __launch_bounds__(kThreads)
    mma_sync_fp8_gemm(const uint8_t* a, const uint8_t* b, float* c, int m, int n, int k) {
  gemm<Input::kE4m3>(a, b, c, m, n, k);
}
#endif

#if !defined(ONE_ENTRY) || defined(ENTRY_mma_sync_bf16_gemm)
extern "C" __global__ void __launch_bounds__(kThreads)
    mma_sync_bf16_gemm(const uint16_t* a, const uint16_t* b, float* c, int m, int n, int k) {
  gemm<Input::kBf16>(reinterpret_cast<const uint8_t*>(a), reinterpret_cast<const uint8_t*>(b), c, m,
                     n, k);
}
#endif
