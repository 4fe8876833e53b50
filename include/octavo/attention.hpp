// SPDX-License-Identifier: Apache-2.0
// O = softmax(scale * Q K^T, masked) V for prefill and decode; multi-head, grouped-query and
// multi-query; dense, variable-length and paged keys and values.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "octavo/backend.hpp"
#include "octavo/gemm.hpp"
#include "octavo/tensor_view.hpp"

namespace octavo {

// How one operand (Q, K or V) is scaled; H is its number of heads, its scale tensor is F32, each
// value finite, positive and from 2^-126 to 2^126:
enum class AttentionScale : unsigned char {
  kNone,       // no scale tensor: the scale is 1
  kTensor,     // [1]
  kHead,       // [H]
  kBatchHead,  // [batch, H]; batch is the number of sequences
  kPageHead,   // [num_pages, H]; K and V in pages only
};

[[nodiscard]] constexpr const char* to_string(AttentionScale scale) noexcept {
  switch (scale) {
    case AttentionScale::kNone: return "none";
    case AttentionScale::kTensor: return "tensor";
    case AttentionScale::kHead: return "head";
    case AttentionScale::kBatchHead: return "batch_head";
    case AttentionScale::kPageHead: return "page_head";
  }
  return "?";
}

enum class AttentionMask : unsigned char {
  kNone,
  kCausal,  // aligned bottom-right: query i of Sq sees keys up to i + Sk - Sq
};

// Shapes. Dense: q [batch, Sq, Hq, Dqk], k [batch, Sk, Hkv, Dqk], v [batch, Sk, Hkv, Dvo],
// o [batch, Sq, Hq, Dvo]. Variable length: q [total_q, Hq, Dqk], o [total_q, Hq, Dvo] with
// q_offsets, and k, v [total_k, Hkv, D] with k_offsets. Paged: k, v [num_pages, page_size, Hkv, D]
// with page_table and kv_lengths; q dense or variable-length. Hq is a multiple of Hkv (any group
// size). Any strides. Dqk and Dvo may differ, each 1..1024.
struct AttentionProblem {
  TensorView q;  // BF16, F16, F32, E4M3 or E5M2
  TensorView k;
  TensorView v;
  MutableTensorView o;  // BF16, F16, F32, E4M3 or E5M2
  // Optional log-sum-exp of each row's scaled and masked scores, F32: [batch, Hq, Sq], or
  // [Hq, total_q] with q_offsets. -inf for a row that sees no key (its o is 0).
  MutableTensorView lse;

  // I32. q_offsets, k_offsets: [batch + 1], ascending from 0. kv_lengths: [batch], the keys in use
  // (required for pages, optional for dense k and v). page_table: [batch, max_pages]; entries past
  // a sequence's length are never read.
  TensorView q_offsets;
  TensorView k_offsets;
  TensorView kv_lengths;
  TensorView page_table;

  float softmax_scale = 0;  // 0 means 1/sqrt(Dqk)
  AttentionMask mask = AttentionMask::kNone;
  // Keys a query may see before and after its own (bottom-right aligned) position; -1: no limit.
  std::int64_t window_left = -1;
  std::int64_t window_right = -1;
  float softcap = 0;  // scores become softcap * tanh(scores / softcap); 0: off

  AttentionScale q_scale_kind = AttentionScale::kNone;
  AttentionScale k_scale_kind = AttentionScale::kNone;
  AttentionScale v_scale_kind = AttentionScale::kNone;
  TensorView q_scale;
  TensorView k_scale;
  TensorView v_scale;
  // One F32 value, in the same range, by which an FP8 o is divided before rounding; absent means 1.
  TensorView o_scale;
};

struct AttentionReport {
  std::string backend;
  std::string kernel;
};

// Throws Error as gemm() does. Empty keys give zeros and -inf, never NaN; memory past a sequence's
// length is never read into a result.
AttentionReport attention(const AttentionProblem& problem, const Execution& execution = {});

[[nodiscard]] std::size_t workspace_bytes(const AttentionProblem& problem,
                                          const Execution& execution = {});

[[nodiscard]] std::vector<SupportReport> supports(const AttentionProblem& problem,
                                                  const Execution& execution = {});

}  // namespace octavo
