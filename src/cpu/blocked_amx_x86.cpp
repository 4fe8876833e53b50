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

OCTAVO_TARGET_AMX void transpose(const float* in, std::int64_t in_stride, float* out,
                                 std::int64_t out_stride) {
  alignas(64) std::byte step[kTileBytes];
  for (int i = 0; i < kTileRows; ++i) {
    _mm512_store_si512(step + i * kPanelVectorBytes, _mm512_loadu_si512(in + i * in_stride));
  }
  transpose_step(step);
  for (int i = 0; i < kTileRows; ++i) {
    _mm512_storeu_si512(out + i * out_stride, _mm512_load_si512(step + i * kPanelVectorBytes));
  }
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

// One or two groups of B, decoded on the way, by a single row (kGroupsA = 0) or one group of A.
// PERF: the vector units decode a piece of B, 16 rows by 64 of K, while the tile unit multiplies
// the piece before it. The two buffers of a piece share a page: loads from one are never mistaken
// for reads of what is being stored to the other, which the processor tells apart by the low 12
// bits.
template <int kGroupsB, int kGroupsA>
class StreamedProduct {
 public:
  OCTAVO_TARGET_AMX StreamedProduct(const PackArgs& b_rows, const ProductArgs& args)
      : b_rows_(b_rows), args_(args), decode_(x86::decoder_of(b_rows.dtype)) {
    const std::int64_t first_missing = b_rows.num_rows % kTileRows;
    if (first_missing == 0) return;
    for (std::byte* piece : {pieces_, pieces_ + kPieceBytes}) {
      for (std::int64_t i = 0; i < kPieceBytes; i += kPanelVectorBytes) {
        _mm512_store_si512(piece + i, _mm512_setzero_si512());
      }
    }
  }

  OCTAVO_TARGET_AMX void run() {
    const Product sums{args_, args_.a, pieces_, args_.totals, 0};
    const std::int64_t num_blocks = num_scale_blocks(args_.k);
    const bool scaled = args_.a_scale != nullptr;
    if (!scaled) sums.load_sums();
    for (std::int64_t block = 0; block < num_blocks; ++block) {
      const std::int64_t k = block * kScaleBlock;
      decode_piece(0, 0, k);
      if (block > 0) finish_block(sums, block - 1);
      if (scaled) sums.zero_sums();
      if constexpr (kGroupsB > 1) decode_piece(1, 1, k);
      multiply_piece<0>(0, k);
      decode_piece(0, kGroupsB > 1 ? 0 : 1, k + kPieceK);
      if constexpr (kGroupsB > 1) {
        multiply_piece<1>(1, k);
        decode_piece(1, 1, k + kPieceK);
        multiply_piece<0>(0, k + kPieceK);
      }
    }
    finish_block(sums, num_blocks - 1);
    if (scaled) {
      sums.promote(partials_[(num_blocks - 1) % 2], num_blocks - 1, 0, 0);
    } else {
      sums.store_sums(args_.totals, args_.totals_stride, kTileRows);
    }
  }

 private:
  using Product = TileProduct<kGroupsB, kGroupsA>;
  static constexpr std::int64_t kPieceK = 2 * kBf16PerVector;
  static constexpr std::int64_t kPieceBytes = 2 * kTileBytes;
  // How far ahead of its use B is asked for.
  static constexpr std::int64_t kPrefetchBytes = 1024;

  // The last piece of a block is multiplied while the next block's first one is decoded; then the
  // sums of the block before are added to the totals while that goes on.
  OCTAVO_TARGET_AMX void finish_block(const Product& sums, std::int64_t block) {
    constexpr int kLastGroup = kGroupsB - 1;
    multiply_piece<kLastGroup>(1, block * kScaleBlock + kPieceK);
    if (args_.a_scale == nullptr) return;
    if (block > 0) sums.promote(partials_[(block - 1) % 2], block - 1, 0, 0);
    sums.store_sums(partials_[block % 2], Product::kColumns, kGroupsB * kTileRows * kTileRows);
  }

  OCTAVO_TARGET_AMX void decode_piece(std::int64_t group, int buffer, std::int64_t k) {
    if (k >= args_.k) return;
    const std::int64_t count = std::min(kPieceK, args_.k - k);
    const std::int64_t bytes = size_bytes(b_rows_.dtype);
    const std::int64_t num_rows =
        std::min<std::int64_t>(kTileRows, b_rows_.num_rows - group * kTileRows);
    const std::byte* in = b_rows_.rows + group * kTileRows * b_rows_.row_stride_bytes + k * bytes;
    // Behind the end of a row comes the row of the next group.
    const std::int64_t row_bytes = args_.k * bytes;
    std::int64_t ahead = std::min(kPrefetchBytes, row_bytes);
    if (k * bytes + ahead >= row_bytes) ahead += b_rows_.prefetch_stride_bytes - row_bytes;
    std::byte* out = pieces_ + buffer * kPieceBytes;
    if (b_rows_.dtype == DType::kBF16) {
      for (std::int64_t row = 0; row < num_rows; ++row) {
        _mm_prefetch(in + ahead, _MM_HINT_T0);
        _mm_prefetch(in + ahead + kPanelVectorBytes, _MM_HINT_T0);
        x86::pack_bf16_row(in, count, out, kTileBytes);
        in += b_rows_.row_stride_bytes;
        out += kPanelVectorBytes;
      }
    } else {
      const __mmask64 valid =
          count == kPieceK ? ~std::uint64_t{0} : (std::uint64_t{1} << count) - 1;
      for (std::int64_t row = 0; row < num_rows; ++row) {
        _mm_prefetch(in + ahead, _MM_HINT_T0);
        const x86::Bf16Pair pair = decode_(_mm512_maskz_loadu_epi8(valid, in));
        _mm512_store_si512(out, pair.first);
        _mm512_store_si512(out + kTileBytes, pair.second);
        in += b_rows_.row_stride_bytes;
        out += kPanelVectorBytes;
      }
    }
    finish_stores();
  }

  // Group kGroup of B, K [k, k + kPieceK). Tiles 6 and 7 keep A's two steps for the second group.
  template <int kGroup>
  OCTAVO_TARGET_AMX void multiply_piece(int half, std::int64_t k) {
    if (k >= args_.k) return;
    const std::byte* b = pieces_ + (kGroupsB > 1 ? kGroup : half) * kPieceBytes;
    const std::byte* a = args_.a + k / kBf16PerVector * Product::kStepBytesA;
    const bool two_steps = args_.k - k > kBf16PerVector;
    if constexpr (kGroup == 0) {
      _tile_loadd(6, a, Product::kRowBytesA);
      _tile_loadd(4, b, kPanelVectorBytes);
      _tile_dpbf16ps(0, 4, 6);
      if (!two_steps) return;
      _tile_loadd(7, a + Product::kStepBytesA, Product::kRowBytesA);
      _tile_loadd(5, b + kTileBytes, kPanelVectorBytes);
      _tile_dpbf16ps(0, 5, 7);
    } else {
      _tile_loadd(4, b, kPanelVectorBytes);
      _tile_dpbf16ps(1, 4, 6);
      if (!two_steps) return;
      _tile_loadd(5, b + kTileBytes, kPanelVectorBytes);
      _tile_dpbf16ps(1, 5, 7);
    }
  }

  const PackArgs& b_rows_;
  const ProductArgs& args_;
  const x86::Fp8ToBf16 decode_;
  alignas(4096) std::byte pieces_[2 * kPieceBytes];
  alignas(64) float partials_[2][2 * kTileRows * kTileRows];
};

OCTAVO_TARGET_AMX void streamed_product(const PackArgs& b_rows, const ProductArgs& args) {
  const bool one_row = args.num_rows_a == 1;
  const bool one_group = args.num_rows_b <= kTileRows;
  if (one_row) {
    one_group ? StreamedProduct<1, 0>(b_rows, args).run()
              : StreamedProduct<2, 0>(b_rows, args).run();
  } else {
    one_group ? StreamedProduct<1, 1>(b_rows, args).run()
              : StreamedProduct<2, 1>(b_rows, args).run();
  }
}

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

// The shapes of the tiles stay for a whole task: setting them takes longer than a small product.
OCTAVO_TARGET_AMX void begin_products(std::int64_t num_rows_a) {
  _tile_loadconfig(num_rows_a == 1 ? &kOneColumnTiles : &kWideTiles);
}

OCTAVO_TARGET_AMX void end_products() { _tile_release(); }

OCTAVO_TARGET_AMX void product(const ProductArgs& args) {
  const std::int64_t num_steps = (args.k + kBf16PerVector - 1) / kBf16PerVector;
  for (std::int64_t row = 0; row < args.num_rows_b; row += 2 * kTileRows) {
    const std::byte* b = args.b + row * num_steps * kPanelVectorBytes;
    if (args.num_rows_b - row > kTileRows) {
      multiply_groups<2>(args, b, row);
    } else {
      multiply_groups<1>(args, b, row);
    }
  }
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
      .begin_products = begin_products,
      .end_products = end_products,
      .transpose = transpose,
      .pack_a = pack_a,
      .pack_b = pack_b,
      .product = product,
      .streamed_product = streamed_product,
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
