// SPDX-License-Identifier: Apache-2.0
// FP32 kernels of the blocked product, compiled once per Highway target. The lanes of a vector run
// along K: operands are used in the order in which they are stored, and every element of D sums its
// products in one order whatever M, N and the number of threads are.
#include "cpu/blocked_kernels.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/blocked_lanes.cpp"
#include <hwy/foreach_target.h>
//
#include <hwy/highway.h>

#include <algorithm>

#include "numerics/codec_lanes-inl.hpp"
#include "octavo/scale.hpp"

HWY_BEFORE_NAMESPACE();
namespace octavo::cpu::HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;
namespace lanes = octavo::HWY_NAMESPACE;

using lanes::FloatTag;
using lanes::FloatVec;

constexpr std::int64_t kFloatsPerVector =
    kPanelVectorBytes / static_cast<std::int64_t>(sizeof(float));
// A panel vector is this many of the target's.
constexpr std::int64_t kLanes =
    HWY_LANES(float) < kFloatsPerVector ? HWY_LANES(float) : kFloatsPerVector;
constexpr std::int64_t kStepsPerBlock = kScaleBlock / kFloatsPerVector;

// Rows of A and B whose products are summed together: with AVX-512's 32 registers 24 sums, with 16
// registers 12, and the rest holds operands.
constexpr int kGroupA = HWY_LANES(float) >= 16 ? 4 : 3;
constexpr int kGroupB = HWY_LANES(float) >= 16 ? 6 : 4;

// PERF: 1024 of K keeps a group of B (6 x 4 KiB) in a first-level cache while A streams by.
constexpr std::int64_t kChunkK = 1024;

template <typename Array>
void pack_rows(const PackArgs& args) {
  using Code = typename Array::Code;
  const FloatTag d;
  const std::int64_t group = args.group;
  const std::int64_t num_steps = (args.k + kFloatsPerVector - 1) / kFloatsPerVector;
  const std::int64_t whole = args.k / kFloatsPerVector;
  const std::int64_t num_panel_rows = (args.num_rows + group - 1) / group * group;
  for (std::int64_t row = 0; row < num_panel_rows; ++row) {
    auto* out = reinterpret_cast<float*>(args.panel) +
                (row / group * group * num_steps + row % group) * kFloatsPerVector;
    const std::int64_t step_stride = group * kFloatsPerVector;
    if (row >= args.num_rows) {
      for (std::int64_t step = 0; step < num_steps; ++step) {
        std::fill_n(out + step * step_stride, kFloatsPerVector, 0.0F);
      }
      continue;
    }
    const auto* in = reinterpret_cast<const Code*>(args.rows + row * args.row_stride_bytes);
    for (std::int64_t step = 0; step < whole; ++step) {
      OCTAVO_UNROLL
      for (std::int64_t lane = 0; lane < kFloatsPerVector; lane += kLanes) {
        hn::Store(Array::load(in + lane), d, out + lane);
      }
      in += kFloatsPerVector;
      out += step_stride;
    }
    if (whole == num_steps) continue;
    HWY_ALIGN Code rest[kFloatsPerVector] = {};
    std::copy_n(in, args.k - whole * kFloatsPerVector, rest);
    OCTAVO_UNROLL
    for (std::int64_t lane = 0; lane < kFloatsPerVector; lane += kLanes) {
      hn::Store(Array::load(rest + lane), d, out + lane);
    }
  }
}

void pack(const PackArgs& args) {
  switch (args.dtype) {
    case DType::kE4M3: return pack_rows<lanes::E4M3Array>(args);
    case DType::kE5M2: return pack_rows<lanes::E5M2Array>(args);
    case DType::kBF16: return pack_rows<lanes::Bf16Array>(args);
    case DType::kF16: return pack_rows<lanes::F16Array>(args);
    default: return pack_rows<lanes::F32Array>(args);
  }
}

template <int kRows>
using Sums = FloatVec[kRows][kGroupB];

template <int kRows>
HWY_INLINE void clear(Sums<kRows>& sums) {
  OCTAVO_UNROLL
  for (int i = 0; i < kRows; ++i) {
    OCTAVO_UNROLL
    for (int j = 0; j < kGroupB; ++j) sums[i][j] = hn::Zero(FloatTag());
  }
}

template <int kRows>
HWY_INLINE void multiply_steps(const float* HWY_RESTRICT a, const float* HWY_RESTRICT b,
                               std::int64_t group_a, std::int64_t num_steps, Sums<kRows>& sums) {
  const FloatTag d;
  for (std::int64_t step = 0; step < num_steps; ++step) {
    OCTAVO_UNROLL
    for (std::int64_t lane = 0; lane < kFloatsPerVector; lane += kLanes) {
      FloatVec a_values[kRows];
      OCTAVO_UNROLL
      for (int i = 0; i < kRows; ++i) a_values[i] = hn::Load(d, a + i * kFloatsPerVector + lane);
      OCTAVO_UNROLL
      for (int j = 0; j < kGroupB; ++j) {
        const FloatVec b_values = hn::Load(d, b + j * kFloatsPerVector + lane);
        OCTAVO_UNROLL
        for (int i = 0; i < kRows; ++i) {
          sums[i][j] = hn::MulAdd(a_values[i], b_values, sums[i][j]);
        }
      }
    }
    a += group_a * kFloatsPerVector;
    b += kGroupB * kFloatsPerVector;
  }
}

// kRows rows of one group of A by one group of B.
template <int kRows>
void multiply_groups(const ProductArgs& args, const float* a, const float* b, std::int64_t row_a,
                     std::int64_t row_b) {
  const FloatTag d;
  const std::int64_t group_a = args.num_rows_a == 1 ? 1 : kGroupA;
  const std::int64_t num_steps = (args.k + kFloatsPerVector - 1) / kFloatsPerVector;
  Sums<kRows> sums;
  clear<kRows>(sums);
  if (args.a_scale == nullptr) {
    multiply_steps<kRows>(a, b, group_a, num_steps, sums);
  } else {
    for (std::int64_t step = 0; step < num_steps; step += kStepsPerBlock) {
      Sums<kRows> partial;
      clear<kRows>(partial);
      multiply_steps<kRows>(a + step * group_a * kFloatsPerVector,
                            b + step * kGroupB * kFloatsPerVector, group_a,
                            std::min(kStepsPerBlock, num_steps - step), partial);
      const std::int64_t block = step / kStepsPerBlock;
      const float* a_scale = args.a_scale + block * args.a_scale_stride + row_a;
      const float* b_scale = args.b_scale + block * args.b_scale_stride + row_b;
      OCTAVO_UNROLL
      for (int i = 0; i < kRows; ++i) {
        OCTAVO_UNROLL
        for (int j = 0; j < kGroupB; ++j) {
          const float scale = a_scale[i] * b_scale[j];
          sums[i][j] = hn::MulAdd(hn::Set(d, scale), partial[i][j], sums[i][j]);
        }
      }
    }
  }
  OCTAVO_UNROLL
  for (int i = 0; i < kRows; ++i) {
    float* totals = args.totals + (row_a + i) * args.totals_stride + row_b;
    OCTAVO_UNROLL
    for (int j = 0; j < kGroupB; ++j) totals[j] += hn::GetLane(hn::SumOfLanes(d, sums[i][j]));
  }
}

void product(const ProductArgs& args) {
  const std::int64_t num_steps = (args.k + kFloatsPerVector - 1) / kFloatsPerVector;
  const auto* b = reinterpret_cast<const float*>(args.b);
  for (std::int64_t row_b = 0; row_b < args.num_rows_b; row_b += kGroupB) {
    const auto* a = reinterpret_cast<const float*>(args.a);
    for (std::int64_t row_a = 0; row_a < args.num_rows_a; row_a += kGroupA) {
      switch (std::min<std::int64_t>(kGroupA, args.num_rows_a - row_a)) {
        case 1: multiply_groups<1>(args, a, b, row_a, row_b); break;
        case 2: multiply_groups<2>(args, a, b, row_a, row_b); break;
        case 3: multiply_groups<3>(args, a, b, row_a, row_b); break;
        default: multiply_groups<kGroupA>(args, a, b, row_a, row_b); break;
      }
      a += kGroupA * num_steps * kFloatsPerVector;
    }
    b += kGroupB * num_steps * kFloatsPerVector;
  }
}

}  // namespace

const BlockedKernels& blocked_lane_kernels() {
  static constexpr BlockedKernels kKernels{
      .instruction_set = HWY_LANES(float) >= 16  ? "avx512"
                         : HWY_LANES(float) >= 8 ? "avx2"
                                                 : "scalar",
      .bf16 = false,
      .totals_transposed = false,
      .group_a = kGroupA,
      .group_b = kGroupB,
      .chunk_k = kChunkK,
      .rows_b_at_a_time = kGroupB,
      .pack_a = pack,
      .pack_b = pack,
      .product = product,
  };
  return kKernels;
}

}  // namespace octavo::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace octavo::cpu {

std::vector<const BlockedKernels*> lane_kernels() {
  std::vector<const BlockedKernels*> sets;
#if (HWY_TARGETS & HWY_AVX3) && HWY_STATIC_TARGET != HWY_AVX3
  if ((hwy::SupportedTargets() & HWY_AVX3) != 0) sets.push_back(&N_AVX3::blocked_lane_kernels());
#endif
#if (HWY_TARGETS & HWY_AVX2) && HWY_STATIC_TARGET != HWY_AVX2
  if ((hwy::SupportedTargets() & HWY_AVX2) != 0) sets.push_back(&N_AVX2::blocked_lane_kernels());
#endif
  sets.push_back(&HWY_STATIC_DISPATCH(blocked_lane_kernels)());
  return sets;
}

}  // namespace octavo::cpu
#endif  // HWY_ONCE
