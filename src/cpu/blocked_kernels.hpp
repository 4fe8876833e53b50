// SPDX-License-Identifier: Apache-2.0
// What the blocked product needs from an instruction set: packing operands into panels and
// multiplying panels. Tests use it to force one set; everything else goes through cpu_gemm.hpp.
// Driver: blocked_gemm.cpp. Sets: blocked_lanes.cpp, blocked_bf16_x86.cpp, blocked_row_x86.cpp,
// blocked_amx_x86.cpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "octavo/dtype.hpp"
#include "octavo/error.hpp"
#include "octavo/gemm.hpp"

// Unrolls the loop behind it, whose extent is a constant, at every optimisation level.
// PERF: g++ 12 at -O2 otherwise keeps arrays of sums in memory instead of registers, at a fifth of
// the speed.
#define OCTAVO_UNROLL _Pragma("GCC unroll 16")

namespace octavo::cpu {

// A panel holds rows in groups of BlockedKernels::group_a or group_b; a single row of A is a group
// of its own. Inside a group comes one step of K after another, and inside a step one vector of 64
// bytes (32 BF16 or 16 FP32 values) for each row, zero behind the end of K. So a kernel reads a
// panel from front to back.
inline constexpr std::int64_t kPanelVectorBytes = 64;

// Some rows of an operand, K contiguous, to be decoded into a panel.
struct PackArgs {
  const std::byte* rows = nullptr;
  std::int64_t row_stride_bytes = 0;
  DType dtype = DType::kF32;
  std::int64_t num_rows = 0;
  std::int64_t k = 0;
  std::int64_t group = 1;
  std::byte* panel = nullptr;
  // From each row to the one that will be packed after it, to be brought nearer meanwhile; 0 for
  // none.
  std::int64_t prefetch_stride_bytes = 0;
};

// totals[m, n] += sum over k of A[m, k] * B[n, k], each 128 of K scaled if scales are given.
struct ProductArgs {
  const std::byte* a = nullptr;  // panel of num_rows_a rows
  const std::byte* b = nullptr;  // panel of num_rows_b rows
  std::int64_t num_rows_a = 0;
  std::int64_t num_rows_b = 0;
  std::int64_t k = 0;
  // [ceil(k/128), stride]: scales of the rows of A and B, or null for none.
  const float* a_scale = nullptr;
  std::int64_t a_scale_stride = 0;
  const float* b_scale = nullptr;
  std::int64_t b_scale_stride = 0;
  // Element (m, n) lies at [m * stride + n], or at [n * stride + m] if the kernels say
  // totals_transposed. Holds whole groups of rows and columns.
  float* totals = nullptr;
  std::int64_t totals_stride = 0;
};

struct BlockedKernels {
  std::string_view instruction_set;
  bool bf16 = false;        // panels of BF16, which operands must fit in exactly; else of FP32
  bool single_row = false;  // made for products of one row; right for any, slow for many
  bool totals_transposed = false;
  std::int64_t group_a = 1;
  std::int64_t group_b = 1;
  // K of one product() call: a multiple of 128. Sums inside it are kept in vectors and added up at
  // its end, so it is part of the numerics.
  std::int64_t chunk_k = 0;
  // Rows of B that are packed and multiplied at a time: a multiple of group_b.
  std::int64_t rows_b_at_a_time = 1;
  // Called by a task before its products and after them, by the thread that computes them; null for
  // nothing to do.
  void (*begin_products)(std::int64_t num_rows_a) = nullptr;
  void (*end_products)() = nullptr;
  // 16 x 16 totals from [N, M] to [M, N]; given if totals_transposed.
  void (*transpose)(const float* in, std::int64_t in_stride, float* out,
                    std::int64_t out_stride) = nullptr;
  void (*pack_a)(const PackArgs&) = nullptr;
  void (*pack_b)(const PackArgs&) = nullptr;
  void (*product)(const ProductArgs&) = nullptr;
  // The sums of product(), with B's rows packed on the way: for up to group_a rows of A and
  // rows_b_at_a_time of B, any K, `a` one chunk. Null for none: pack_b() and product() serve.
  void (*streamed_product)(const PackArgs& b_rows, const ProductArgs&) = nullptr;
};

// Those this machine can run, best first; the last one runs everywhere and takes every type.
[[nodiscard]] const std::vector<const BlockedKernels*>& blocked_kernel_sets();

// Whether a set takes operands of these types.
[[nodiscard]] bool serves(const BlockedKernels& kernels, DType a, DType b);

// The best set of this machine for m rows of these types.
[[nodiscard]] const BlockedKernels& best_kernels(DType a, DType b, std::int64_t m);

// blocked_gemm() on a given set, which must serve the problem's types.
Status blocked_gemm_on(const BlockedKernels& kernels, const GemmProblem& problem, int num_threads);

// FP32 kernels of every Highway target that this machine runs, best first.
[[nodiscard]] std::vector<const BlockedKernels*> lane_kernels();

// Null where the build or the machine lacks the instructions.
[[nodiscard]] const BlockedKernels* avx512_bf16_kernels();
[[nodiscard]] const BlockedKernels* avx512_bf16_row_kernels();
[[nodiscard]] const BlockedKernels* amx_bf16_kernels();

}  // namespace octavo::cpu
