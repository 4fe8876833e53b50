// SPDX-License-Identifier: Apache-2.0
// BF16 kernels of the blocked product with AMX tiles. Rows of B (weights) are the tile rows and
// rows of A (tokens) its columns, so that weights are used in the order in which they are stored
// and only A is transposed; totals are therefore [N, M]. One row of A is a tile one column wide.
// NOTE: TDPBF16PS reads a BF16 subnormal as 0: operands below 2^-126 count as 0. No FP8 value is
// that small.
#include "cpu/blocked_kernels.hpp"

#if defined(__x86_64__) && defined(__linux__)

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>

#include "cpu/blocked_pack_x86.hpp"
#include "octavo/scale.hpp"

#define OCTAVO_TARGET_AMX \
  __attribute__((         \
      target("avx512f,avx512bw,avx512vl,avx512dq,avx512vbmi,avx512bf16,amx-tile,amx-bf16")))

namespace octavo::cpu {
namespace {

using x86::kBf16PerVector;

// A tile has 16 rows of 64 bytes (Intel SDM volume 1, chapter 18, palette 1).
constexpr int kTileRows = 16;
constexpr std::int64_t kTileBytes = kTileRows * kPanelVectorBytes;
constexpr std::int64_t kStepsPerBlock = kScaleBlock / kBf16PerVector;
// PERF: 512 of K keeps two groups of B (32 KiB) in a first-level cache while A streams by.
constexpr std::int64_t kChunkK = 512;

// The operand of LDTILECFG.
struct alignas(64) TileConfig {
  std::uint8_t palette = 1;
  std::uint8_t start_row = 0;
  std::uint8_t reserved[14] = {};
  std::uint16_t row_bytes[16] = {};
  std::uint8_t num_rows[16] = {};
};

// Tiles 0 to 3: sums; 4 and 5: rows of B; 6 and 7: rows of A as columns.
constexpr TileConfig tile_config(int num_columns) {
  TileConfig config;
  for (int tile = 0; tile < 8; ++tile) {
    const bool holds_b = tile == 4 || tile == 5;
    config.num_rows[tile] = kTileRows;
    config.row_bytes[tile] =
        static_cast<std::uint16_t>(holds_b ? kPanelVectorBytes : num_columns * 4);
  }
  return config;
}

constexpr TileConfig kWideTiles = tile_config(kTileRows);
constexpr TileConfig kOneColumnTiles = tile_config(1);

// ORDER: the compiler does not know that tile loads read memory (g++ 12 gives them no memory
// operand), so every stretch of code that ends in stores they read ends with this.
inline void finish_stores() { asm volatile("" ::: "memory"); }

// 16 x 16 elements of 4 bytes, in place: a panel step of 16 rows becomes the tile whose rows are
// pairs of K and whose columns are the panel's rows.
OCTAVO_TARGET_AMX void transpose_step(std::byte* step) {
  __m512i r[kTileRows];
  __m512i t[kTileRows];
  OCTAVO_UNROLL
  for (int i = 0; i < kTileRows; ++i) r[i] = _mm512_load_si512(step + i * kPanelVectorBytes);
  OCTAVO_UNROLL
  for (int i = 0; i < kTileRows; i += 2) {
    t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
    t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
  }
  OCTAVO_UNROLL
  for (int i = 0; i < kTileRows; i += 4) {
    r[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
    r[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
    r[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
    r[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
  }
  // Now r[4 q + c] holds, in its 128-bit lane l, column 4 l + c of rows 4 q to 4 q + 3.
  OCTAVO_UNROLL
  for (int c = 0; c < 4; ++c) {
    const __m512i low01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0x44);
    const __m512i high01 = _mm512_shuffle_i32x4(r[c], r[4 + c], 0xEE);
    const __m512i low23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0x44);
    const __m512i high23 = _mm512_shuffle_i32x4(r[8 + c], r[12 + c], 0xEE);
    t[c] = _mm512_shuffle_i32x4(low01, low23, 0x88);
    t[4 + c] = _mm512_shuffle_i32x4(low01, low23, 0xDD);
    t[8 + c] = _mm512_shuffle_i32x4(high01, high23, 0x88);
    t[12 + c] = _mm512_shuffle_i32x4(high01, high23, 0xDD);
  }
  OCTAVO_UNROLL
  for (int i = 0; i < kTileRows; ++i) _mm512_store_si512(step + i * kPanelVectorBytes, t[i]);
}

OCTAVO_TARGET_AMX void pack_b(const PackArgs& args) { x86::pack_rows(args); }

OCTAVO_TARGET_AMX void pack_a(const PackArgs& args) {
  x86::pack_rows(args);
  // A single row of 32 values is its own transpose: 16 tile rows of one pair.
  if (args.group == 1) return;
  const std::int64_t num_groups = (args.num_rows + kTileRows - 1) / kTileRows;
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  for (std::int64_t i = 0; i < num_groups * num_steps; ++i) {
    transpose_step(args.panel + i * kTileBytes);
  }
}

// One or two groups of B by one or two groups of A. kGroupsA is 0 for a single row.
template <int kGroupsB, int kGroupsA>
struct TileProduct {
  static constexpr bool kOneColumn = kGroupsA == 0;
  static constexpr std::int64_t kStepBytesA = kOneColumn ? kPanelVectorBytes : kTileBytes;
  static constexpr std::int64_t kRowBytesA = kOneColumn ? 4 : kPanelVectorBytes;
  static constexpr std::int64_t kColumns = kOneColumn ? 1 : kTileRows;

  const ProductArgs& args;
  const std::byte* a;
  const std::byte* b;
  float* totals;
  std::int64_t num_steps;

  OCTAVO_TARGET_AMX void zero_sums() const {
    _tile_zero(0);
    if constexpr (kGroupsB > 1) _tile_zero(1);
    if constexpr (kGroupsA > 1) _tile_zero(2);
    if constexpr (kGroupsA > 1 && kGroupsB > 1) _tile_zero(3);
  }

  OCTAVO_TARGET_AMX void load_sums() const {
    const std::int64_t row_bytes = args.totals_stride * 4;
    float* second = totals + kTileRows * args.totals_stride;
    _tile_loadd(0, totals, row_bytes);
    if constexpr (kGroupsB > 1) _tile_loadd(1, second, row_bytes);
    if constexpr (kGroupsA > 1) _tile_loadd(2, totals + kTileRows, row_bytes);
    if constexpr (kGroupsA > 1 && kGroupsB > 1) _tile_loadd(3, second + kTileRows, row_bytes);
  }

  // Sums of the four tiles at `out`, `tile_elements` apart from one group of A to the next.
  OCTAVO_TARGET_AMX void store_sums(float* out, std::int64_t row_elements,
                                    std::int64_t tile_elements) const {
    const std::int64_t row_bytes = row_elements * 4;
    float* second = out + kTileRows * row_elements;
    _tile_stored(0, out, row_bytes);
    if constexpr (kGroupsB > 1) _tile_stored(1, second, row_bytes);
    if constexpr (kGroupsA > 1) _tile_stored(2, out + tile_elements, row_bytes);
    if constexpr (kGroupsA > 1 && kGroupsB > 1) {
      _tile_stored(3, second + tile_elements, row_bytes);
    }
    finish_stores();
  }

  OCTAVO_TARGET_AMX void multiply_steps(std::int64_t begin, std::int64_t end) const {
    const std::int64_t group_bytes_a = num_steps * kTileBytes;
    const std::int64_t group_bytes_b = num_steps * kTileBytes;
    for (std::int64_t step = begin; step < end; ++step) {
      const std::byte* b_tile = b + step * kTileBytes;
      const std::byte* a_tile = a + step * kStepBytesA;
      _tile_loadd(4, b_tile, kPanelVectorBytes);
      _tile_loadd(6, a_tile, kRowBytesA);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kGroupsB > 1) {
        _tile_loadd(5, b_tile + group_bytes_b, kPanelVectorBytes);
        _tile_dpbf16ps(1, 5, 6);
      }
      if constexpr (kGroupsA > 1) {
        _tile_loadd(7, a_tile + group_bytes_a, kRowBytesA);
        _tile_dpbf16ps(2, 4, 7);
        if constexpr (kGroupsB > 1) _tile_dpbf16ps(3, 5, 7);
      }
    }
  }

  // totals += scale * partial for K block `block`.
  OCTAVO_TARGET_AMX void promote(const float* partial, std::int64_t block, std::int64_t row_a,
                                 std::int64_t row_b) const {
    const float* b_scale = args.b_scale + block * args.b_scale_stride + row_b;
    const float* a_scale = args.a_scale + block * args.a_scale_stride + row_a;
    if constexpr (kOneColumn) {
      for (int group = 0; group < kGroupsB; ++group) {
        const int n = group * kTileRows;
        const __m512 scale =
            _mm512_mul_ps(_mm512_set1_ps(a_scale[0]), _mm512_loadu_ps(b_scale + n));
        _mm512_storeu_ps(totals + n, _mm512_fmadd_ps(scale, _mm512_load_ps(partial + n),
                                                     _mm512_loadu_ps(totals + n)));
      }
    } else {
      for (int group = 0; group < kGroupsA; ++group) {
        const __m512 scale_a = _mm512_loadu_ps(a_scale + group * kTileRows);
        const float* from = partial + group * kGroupsB * kTileRows * kTileRows;
        float* to = totals + group * kTileRows;
        for (int n = 0; n < kGroupsB * kTileRows; ++n) {
          const __m512 scale = _mm512_mul_ps(scale_a, _mm512_set1_ps(b_scale[n]));
          _mm512_storeu_ps(to, _mm512_fmadd_ps(scale, _mm512_load_ps(from + n * kTileRows),
                                               _mm512_loadu_ps(to)));
          to += args.totals_stride;
        }
      }
    }
  }

  OCTAVO_TARGET_AMX void run(std::int64_t row_a, std::int64_t row_b) const {
    if (args.a_scale == nullptr) {
      load_sums();
      multiply_steps(0, num_steps);
      store_sums(totals, args.totals_stride, kTileRows);
      return;
    }
    // PERF: while the tile unit works on a block, the vector units add the block before it.
    alignas(64) float partials[2][4 * kTileRows * kTileRows];
    std::int64_t block = 0;
    for (std::int64_t step = 0; step < num_steps; step += kStepsPerBlock, ++block) {
      zero_sums();
      multiply_steps(step, std::min(step + kStepsPerBlock, num_steps));
      if (block > 0) promote(partials[(block - 1) % 2], block - 1, row_a, row_b);
      store_sums(partials[block % 2], kColumns, kGroupsB * kTileRows * kTileRows);
    }
    promote(partials[(block - 1) % 2], block - 1, row_a, row_b);
  }
};

template <int kGroupsB>
OCTAVO_TARGET_AMX void multiply_groups(const ProductArgs& args, const std::byte* b,
                                       std::int64_t row_b) {
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  float* totals = args.totals + row_b * args.totals_stride;
  if (args.num_rows_a == 1) {
    TileProduct<kGroupsB, 0>{args, args.a, b, totals, num_steps}.run(0, row_b);
    return;
  }
  for (std::int64_t row = 0; row < args.num_rows_a; row += 2 * kTileRows) {
    const std::byte* a = args.a + row * num_steps * kPanelVectorBytes;
    if (args.num_rows_a - row > kTileRows) {
      TileProduct<kGroupsB, 2>{args, a, b, totals + row, num_steps}.run(row, row_b);
    } else {
      TileProduct<kGroupsB, 1>{args, a, b, totals + row, num_steps}.run(row, row_b);
    }
  }
}

OCTAVO_TARGET_AMX void product(const ProductArgs& args) {
  _tile_loadconfig(args.num_rows_a == 1 ? &kOneColumnTiles : &kWideTiles);
  finish_stores();
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  for (std::int64_t row = 0; row < args.num_rows_b; row += 2 * kTileRows) {
    const std::byte* b = args.b + row * num_steps * kPanelVectorBytes;
    if (args.num_rows_b - row > kTileRows) {
      multiply_groups<2>(args, b, row);
    } else {
      multiply_groups<1>(args, b, row);
    }
  }
  _tile_release();
}

// AMX state is large, so Linux gives it to a process only on request (arch/x86/xstate.rst).
bool request_tile_permission() {
  constexpr long kArchReqXcompPerm = 0x1023;
  constexpr long kXfeatureXtileData = 18;
  return syscall(SYS_arch_prctl, kArchReqXcompPerm, kXfeatureXtileData) == 0;
}

bool processor_has_amx_bf16() {
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) == 0) return false;
  constexpr unsigned kAmxBf16 = 1U << 22;
  constexpr unsigned kAmxTile = 1U << 24;
  return (edx & kAmxBf16) != 0 && (edx & kAmxTile) != 0;
}

}  // namespace

const BlockedKernels* amx_bf16_kernels() {
  static constexpr BlockedKernels kKernels{
      .instruction_set = "amx_bf16",
      .bf16 = true,
      .totals_transposed = true,
      .group_a = kTileRows,
      .group_b = kTileRows,
      .chunk_k = kChunkK,
      .rows_b_at_a_time = 2 * kTileRows,
      .pack_a = pack_a,
      .pack_b = pack_b,
      .product = product,
  };
  static const bool available =
      avx512_bf16_kernels() != nullptr && processor_has_amx_bf16() && request_tile_permission();
  return available ? &kKernels : nullptr;
}

}  // namespace octavo::cpu

#else

namespace octavo::cpu {
const BlockedKernels* amx_bf16_kernels() { return nullptr; }
}  // namespace octavo::cpu

#endif
