// SPDX-License-Identifier: Apache-2.0
// Attention in plain FP64 loops: the oracle. Each row is computed by the textbook's formula in two
// passes over its keys (largest score, then sums), nothing is tiled and nothing is approximated.
#include <array>
#include <cmath>
#include <limits>

#include "base/thread_pool.hpp"
#include "cpu/attention_layout.hpp"
#include "cpu/cpu_attention.hpp"
#include "numerics/codec.hpp"

namespace octavo::cpu {
namespace {

constexpr std::size_t kMaxDim = 1024;  // include/octavo/attention.hpp

class ReferenceHead {
 public:
  ReferenceHead(const AttentionLayout& layout, const Sequence& sequence, std::int64_t head)
      : layout_(layout),
        problem_(layout.problem()),
        sequence_(sequence),
        head_(head),
        kv_head_(head / layout.group_size()) {}

  void attend(std::int64_t query_idx) {
    const std::int64_t q_offset = layout_.row_offset(problem_.q, sequence_, query_idx, head_);
    const std::int64_t q_stride = last_stride(problem_.q);
    for (std::int64_t i = 0; i < layout_.dim_qk(); ++i) {
      q_[static_cast<std::size_t>(i)] =
          load_element(problem_.q.data, problem_.q.dtype, q_offset + i * q_stride);
    }
    const KeyRange keys = visible_keys(problem_, sequence_, query_idx);

    double largest = -std::numeric_limits<double>::infinity();
    for (std::int64_t key_idx = keys.begin; key_idx < keys.end; ++key_idx) {
      const double value = score(layout_.key(sequence_, kv_head_, key_idx));
      if (value > largest) largest = value;
    }

    double sum = 0;
    std::array<double, kMaxDim> o{};
    const std::int64_t v_stride = last_stride(problem_.v);
    for (std::int64_t key_idx = keys.begin; key_idx < keys.end; ++key_idx) {
      const KeyLocation key = layout_.key(sequence_, kv_head_, key_idx);
      const double value = score(key);
      // A score of -inf weighs nothing, also where it is the largest.
      if (value == -std::numeric_limits<double>::infinity()) continue;
      const double weight = std::exp(value - largest);
      sum += weight;
      const double scaled = weight * layout_.v_scale(sequence_, kv_head_, key.page);
      for (std::int64_t i = 0; i < layout_.dim_vo(); ++i) {
        o[static_cast<std::size_t>(i)] +=
            scaled * load_element(problem_.v.data, problem_.v.dtype, key.v_offset + i * v_stride);
      }
    }

    const double divisor = sum == 0 ? 1 : sum * static_cast<double>(layout_.o_scale());
    const std::int64_t o_offset = layout_.row_offset(problem_.o, sequence_, query_idx, head_);
    const std::int64_t o_stride = last_stride(problem_.o);
    for (std::int64_t i = 0; i < layout_.dim_vo(); ++i) {
      store_element(problem_.o.data, problem_.o.dtype, o_offset + i * o_stride,
                    static_cast<float>(o[static_cast<std::size_t>(i)] / divisor));
    }
    if (problem_.lse.present()) {
      static_cast<float*>(problem_.lse.data)[layout_.lse_offset(sequence_, query_idx, head_)] =
          static_cast<float>(sum == 0 ? -std::numeric_limits<double>::infinity()
                                      : largest + std::log(sum));
    }
  }

 private:
  // The scaled and capped score of the query in q_ with one key.
  [[nodiscard]] double score(const KeyLocation& key) const {
    const std::int64_t k_stride = last_stride(problem_.k);
    double dot = 0;
    for (std::int64_t i = 0; i < layout_.dim_qk(); ++i) {
      dot += q_[static_cast<std::size_t>(i)] *
             load_element(problem_.k.data, problem_.k.dtype, key.k_offset + i * k_stride);
    }
    const double scaled = dot * layout_.q_scale(sequence_, head_) *
                          layout_.k_scale(sequence_, kv_head_, key.page) * layout_.softmax_scale();
    if (problem_.softcap == 0) return scaled;
    return problem_.softcap * std::tanh(scaled / problem_.softcap);
  }

  const AttentionLayout& layout_;
  const AttentionProblem& problem_;
  const Sequence& sequence_;
  std::int64_t head_;
  std::int64_t kv_head_;
  std::array<double, kMaxDim> q_{};
};

}  // namespace

Status reference_attention(const AttentionProblem& problem, int num_threads) {
  const AttentionLayout layout(problem);
  parallel_for(layout.num_sequences() * layout.num_q_heads(), num_threads,
               [&](std::int64_t task_idx) {
                 const Sequence sequence = layout.sequence(task_idx / layout.num_q_heads());
                 ReferenceHead head(layout, sequence, task_idx % layout.num_q_heads());
                 for (std::int64_t query_idx = 0; query_idx < sequence.num_queries; ++query_idx) {
                   head.attend(query_idx);
                 }
               });
  return Ok{};
}

}  // namespace octavo::cpu
