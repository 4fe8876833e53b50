// SPDX-License-Identifier: Apache-2.0
// Where a validated attention problem keeps its things: the extent of each sequence, the keys a
// query may see, and the position of every row of Q, K, V, O and of every scale. All three
// numerics use it, so dense, variable-length and paged tensors are told apart here only.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "octavo/attention.hpp"

namespace octavo::cpu {

// Queries and keys of one sequence; the rows are those of a variable-length tensor, else 0.
struct Sequence {
  std::int64_t idx = 0;
  std::int64_t first_q_row = 0;
  std::int64_t num_queries = 0;
  std::int64_t first_k_row = 0;
  std::int64_t num_keys = 0;
};

// Keys [begin, end) of a sequence; empty if begin >= end.
struct KeyRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] bool empty() const { return begin >= end; }
};

// Element offsets of one key's rows of K and V, and its page (-1 if K and V are not in pages).
struct KeyLocation {
  std::int64_t k_offset = 0;
  std::int64_t v_offset = 0;
  std::int64_t page = -1;
};

// Offset of slot `slot` of page `page` for one head in a tensor [num_pages, page_size, heads, dim].
// A cache passes 2^31 elements easily, so everything here is 64-bit.
[[nodiscard]] constexpr std::int64_t page_slot_offset(
    const std::array<std::int64_t, kMaxRank>& strides, std::int64_t page, std::int64_t slot,
    std::int64_t head) {
  return page * strides[0] + slot * strides[1] + head * strides[2];
}

[[nodiscard]] inline std::int64_t int32_at(const TensorView& view, std::int64_t idx) {
  return static_cast<const std::int32_t*>(view.data)[idx * view.strides[0]];
}

// The keys that query `query_idx` of `num_queries` sees of `num_keys`.
[[nodiscard]] inline KeyRange visible_keys(const AttentionProblem& problem,
                                           const Sequence& sequence, std::int64_t query_idx) {
  const std::int64_t position = query_idx + sequence.num_keys - sequence.num_queries;
  KeyRange range{0, sequence.num_keys};
  // Windows may be as large as an int64 holds, so they are compared before they are added.
  if (problem.window_left >= 0 && problem.window_left < position) {
    range.begin = position - problem.window_left;
  }
  std::int64_t right = problem.mask == AttentionMask::kCausal ? 0 : problem.window_right;
  if (right >= 0) {
    right = std::min(right, sequence.num_keys + sequence.num_queries);
    range.end = std::min(range.end, position + right + 1);
  }
  return range;
}

class AttentionLayout {
 public:
  explicit AttentionLayout(const AttentionProblem& problem);

  [[nodiscard]] const AttentionProblem& problem() const { return *problem_; }
  [[nodiscard]] std::int64_t num_sequences() const { return num_sequences_; }
  [[nodiscard]] std::int64_t num_q_heads() const { return num_q_heads_; }
  [[nodiscard]] std::int64_t num_kv_heads() const { return num_kv_heads_; }
  [[nodiscard]] std::int64_t group_size() const { return group_size_; }
  [[nodiscard]] std::int64_t dim_qk() const { return dim_qk_; }
  [[nodiscard]] std::int64_t dim_vo() const { return dim_vo_; }
  [[nodiscard]] float softmax_scale() const { return softmax_scale_; }

  [[nodiscard]] Sequence sequence(std::int64_t sequence_idx) const;

  // Offset of the first element of a row of Q or O.
  [[nodiscard]] std::int64_t row_offset(const TensorView& view, const Sequence& sequence,
                                        std::int64_t query_idx, std::int64_t head) const;
  [[nodiscard]] std::int64_t lse_offset(const Sequence& sequence, std::int64_t query_idx,
                                        std::int64_t head) const;
  [[nodiscard]] KeyLocation key(const Sequence& sequence, std::int64_t kv_head,
                                std::int64_t key_idx) const;

  [[nodiscard]] float q_scale(const Sequence& sequence, std::int64_t q_head) const {
    return scale(problem_->q_scale, problem_->q_scale_kind, sequence.idx, q_head, -1);
  }
  [[nodiscard]] float k_scale(const Sequence& sequence, std::int64_t kv_head,
                              std::int64_t page) const {
    return scale(problem_->k_scale, problem_->k_scale_kind, sequence.idx, kv_head, page);
  }
  [[nodiscard]] float v_scale(const Sequence& sequence, std::int64_t kv_head,
                              std::int64_t page) const {
    return scale(problem_->v_scale, problem_->v_scale_kind, sequence.idx, kv_head, page);
  }
  [[nodiscard]] float o_scale() const {
    return problem_->o_scale.absent() ? 1.0F : *static_cast<const float*>(problem_->o_scale.data);
  }

 private:
  [[nodiscard]] static float scale(const TensorView& view, AttentionScale kind,
                                   std::int64_t sequence_idx, std::int64_t head, std::int64_t page);

  const AttentionProblem* problem_;
  std::int64_t num_sequences_;
  std::int64_t num_q_heads_;
  std::int64_t num_kv_heads_;
  std::int64_t group_size_;
  std::int64_t dim_qk_;
  std::int64_t dim_vo_;
  float softmax_scale_;
};

[[nodiscard]] inline std::int64_t last_stride(const TensorView& view) {
  return view.strides[static_cast<std::size_t>(view.rank - 1)];
}

// A row of any value type as FP32, `num_elems` of them from element `offset` on.
void load_row(const TensorView& view, std::int64_t offset, std::int64_t num_elems, float* out);

// Rounds a row once to the view's type.
void store_row(const MutableTensorView& view, std::int64_t offset, std::int64_t num_elems,
               const float* values);

}  // namespace octavo::cpu
