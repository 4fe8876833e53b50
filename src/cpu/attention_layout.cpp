// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention_layout.hpp"

#include <cmath>
#include <cstddef>

#include "numerics/codec_array.hpp"

namespace octavo::cpu {

AttentionLayout::AttentionLayout(const AttentionProblem& problem) : problem_(&problem) {
  const auto q_rank = static_cast<std::size_t>(problem.q.rank);
  const auto k_rank = static_cast<std::size_t>(problem.k.rank);
  const auto v_rank = static_cast<std::size_t>(problem.v.rank);
  num_sequences_ =
      problem.q_offsets.present() ? problem.q_offsets.shape[0] - 1 : problem.q.shape[0];
  num_q_heads_ = problem.q.shape[q_rank - 2];
  num_kv_heads_ = problem.k.shape[k_rank - 2];
  group_size_ = num_kv_heads_ > 0 ? num_q_heads_ / num_kv_heads_ : 1;
  dim_qk_ = problem.q.shape[q_rank - 1];
  dim_vo_ = problem.v.shape[v_rank - 1];
  softmax_scale_ =
      problem.softmax_scale != 0
          ? problem.softmax_scale
          : static_cast<float>(1.0 / std::sqrt(static_cast<double>(problem.q.shape[q_rank - 1])));
}

Sequence AttentionLayout::sequence(std::int64_t sequence_idx) const {
  const AttentionProblem& problem = *problem_;
  Sequence sequence;
  sequence.idx = sequence_idx;
  if (problem.q_offsets.present()) {
    sequence.first_q_row = int32_at(problem.q_offsets, sequence_idx);
    sequence.num_queries = int32_at(problem.q_offsets, sequence_idx + 1) - sequence.first_q_row;
  } else {
    sequence.num_queries = problem.q.shape[1];
  }
  if (problem.k_offsets.present()) {
    sequence.first_k_row = int32_at(problem.k_offsets, sequence_idx);
    sequence.num_keys = int32_at(problem.k_offsets, sequence_idx + 1) - sequence.first_k_row;
  } else if (problem.kv_lengths.present()) {
    sequence.num_keys = int32_at(problem.kv_lengths, sequence_idx);
  } else {
    sequence.num_keys = problem.k.shape[1];
  }
  return sequence;
}

std::int64_t AttentionLayout::row_offset(const TensorView& view, const Sequence& sequence,
                                         std::int64_t query_idx, std::int64_t head) const {
  if (problem_->q_offsets.present()) {
    return (sequence.first_q_row + query_idx) * view.strides[0] + head * view.strides[1];
  }
  return sequence.idx * view.strides[0] + query_idx * view.strides[1] + head * view.strides[2];
}

std::int64_t AttentionLayout::lse_offset(const Sequence& sequence, std::int64_t query_idx,
                                         std::int64_t head) const {
  const auto& strides = problem_->lse.strides;
  if (problem_->q_offsets.present()) {
    return head * strides[0] + (sequence.first_q_row + query_idx) * strides[1];
  }
  return sequence.idx * strides[0] + head * strides[1] + query_idx * strides[2];
}

KeyLocation AttentionLayout::key(const Sequence& sequence, std::int64_t kv_head,
                                 std::int64_t key_idx) const {
  const AttentionProblem& problem = *problem_;
  if (problem.page_table.present()) {
    const std::int64_t page_size = problem.k.shape[1];
    const std::int64_t slot = key_idx % page_size;
    const std::int64_t page = static_cast<const std::int32_t*>(
        problem.page_table.data)[sequence.idx * problem.page_table.strides[0] +
                                 key_idx / page_size * problem.page_table.strides[1]];
    return {page_slot_offset(problem.k.strides, page, slot, kv_head),
            page_slot_offset(problem.v.strides, page, slot, kv_head), page};
  }
  if (problem.k_offsets.present()) {
    const std::int64_t row = sequence.first_k_row + key_idx;
    return {row * problem.k.strides[0] + kv_head * problem.k.strides[1],
            row * problem.v.strides[0] + kv_head * problem.v.strides[1], -1};
  }
  return {page_slot_offset(problem.k.strides, sequence.idx, key_idx, kv_head),
          page_slot_offset(problem.v.strides, sequence.idx, key_idx, kv_head), -1};
}

float AttentionLayout::scale(const TensorView& view, AttentionScale kind, std::int64_t sequence_idx,
                             std::int64_t head, std::int64_t page) {
  const auto* values = static_cast<const float*>(view.data);
  switch (kind) {
    case AttentionScale::kNone: return 1;
    case AttentionScale::kTensor: return values[0];
    case AttentionScale::kHead: return values[head * view.strides[0]];
    case AttentionScale::kBatchHead:
      return values[sequence_idx * view.strides[0] + head * view.strides[1]];
    case AttentionScale::kPageHead: return values[page * view.strides[0] + head * view.strides[1]];
  }
  return 1;
}

void load_row(const TensorView& view, std::int64_t offset, std::int64_t num_elems, float* out) {
  const auto* bytes = static_cast<const std::byte*>(view.data);
  decode_strided(view.dtype, bytes + offset * size_bytes(view.dtype), last_stride(view), num_elems,
                 out, 1);
}

void store_row(const MutableTensorView& view, std::int64_t offset, std::int64_t num_elems,
               const float* values) {
  auto* bytes = static_cast<std::byte*>(view.data);
  encode_strided(view.dtype, values, 1, num_elems, bytes + offset * size_bytes(view.dtype),
                 last_stride(view));
}

}  // namespace octavo::cpu
