// SPDX-License-Identifier: Apache-2.0
#include "cpu/attention_tile_keys.hpp"

#include <numbers>

namespace octavo::cpu {
namespace {

std::int64_t key_stride(const TensorView& view) {
  return view.strides[static_cast<std::size_t>(view.rank - 3)];
}

const void* element(const TensorView& view, std::int64_t offset) {
  return static_cast<const std::byte*>(view.data) + offset * size_bytes(view.dtype);
}

bool has_adjacent_elements(const TensorView& view) {
  return last_stride(view) == 1 || view.shape[static_cast<std::size_t>(view.rank - 1)] == 1;
}

}  // namespace

TileKeys::TileKeys(const AttentionLayout& layout, float* packed)
    : layout_(layout),
      k_dtype_(layout.problem().k.dtype),
      v_dtype_(layout.problem().v.dtype),
      has_page_scales_(layout.problem().v_scale_kind == AttentionScale::kPageHead) {
  factors_.fill(0);
  value_scales_.fill(0);
  if (!has_adjacent_elements(layout.problem().k)) {
    packed_k_ = packed;
    packed += kMaxTileKeys * layout.dim_qk();
    k_dtype_ = DType::kF32;
  }
  if (!has_adjacent_elements(layout.problem().v)) {
    packed_v_ = packed;
    v_dtype_ = DType::kF32;
  }
}

std::int64_t TileKeys::packed_elems(const AttentionLayout& layout) {
  std::int64_t num_elems = 0;
  if (!has_adjacent_elements(layout.problem().k)) num_elems += kMaxTileKeys * layout.dim_qk();
  if (!has_adjacent_elements(layout.problem().v)) num_elems += kMaxTileKeys * layout.dim_vo();
  return num_elems;
}

void TileKeys::locate(const Sequence& sequence, std::int64_t kv_head, const KeyRange& range) {
  const AttentionProblem& problem = layout_.problem();
  const double score_factor = problem.softcap == 0 ? std::numbers::log2e : 1.0 / problem.softcap;
  const std::int64_t run_keys =
      problem.page_table.present() ? problem.k.shape[1] : sequence.num_keys;
  const std::int64_t k_stride = key_stride(problem.k);
  const std::int64_t v_stride = key_stride(problem.v);
  for (std::int64_t key_idx = range.begin; key_idx < range.end;) {
    const KeyLocation first = layout_.key(sequence, kv_head, key_idx);
    const std::int64_t run_end = std::min(range.end, (key_idx / run_keys + 1) * run_keys);
    const auto factor =
        static_cast<float>(layout_.k_scale(sequence, kv_head, first.page) *
                           static_cast<double>(layout_.softmax_scale()) * score_factor);
    const float value_scale =
        has_page_scales_ ? layout_.v_scale(sequence, kv_head, first.page) : 1.0F;
    std::int64_t k_offset = first.k_offset;
    std::int64_t v_offset = first.v_offset;
    for (; key_idx < run_end; ++key_idx) {
      const auto i = static_cast<std::size_t>(key_idx - range.begin);
      k_rows_[i] = element(problem.k, k_offset);
      v_rows_[i] = element(problem.v, v_offset);
      factors_[i] = factor;
      value_scales_[i] = value_scale;
      if (packed_k_ != nullptr) {
        float* row = packed_k_ + static_cast<std::int64_t>(i) * layout_.dim_qk();
        load_row(problem.k, k_offset, layout_.dim_qk(), row);
        k_rows_[i] = row;
      }
      if (packed_v_ != nullptr) {
        float* row = packed_v_ + static_cast<std::int64_t>(i) * layout_.dim_vo();
        load_row(problem.v, v_offset, layout_.dim_vo(), row);
        v_rows_[i] = row;
      }
      k_offset += k_stride;
      v_offset += v_stride;
    }
  }
}

}  // namespace octavo::cpu
