// SPDX-License-Identifier: Apache-2.0
// The rows of K and V of a run of keys, found once and then only followed by pointer: pages,
// strides and scales end here. Used by blocked_attention.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "cpu/attention_kernels.hpp"
#include "cpu/attention_layout.hpp"

namespace octavo::cpu {

// PERF: also the keys of one split. Long enough that merging the parts costs 1 % of a part, short
// enough that three heads with a few hundred keys occupy two cores.
inline constexpr std::int64_t kMaxTileKeys = 256;

class TileKeys {
 public:
  // FP32 copies of K's and V's rows go to `packed` where their elements are not adjacent in memory;
  // packed_elems(layout) floats of it are used.
  TileKeys(const AttentionLayout& layout, float* packed);

  [[nodiscard]] static std::int64_t packed_elems(const AttentionLayout& layout);

  // Finds keys [range.begin, range.end), at most kMaxTileKeys of them.
  void locate(const Sequence& sequence, std::int64_t kv_head, const KeyRange& range);

  // Rows of the located keys from position `first` on.
  [[nodiscard]] KeyRows k_rows(std::int64_t first, std::int64_t num_keys) const {
    return {k_dtype_, layout_.dim_qk(), k_rows_.data() + first, num_keys};
  }
  [[nodiscard]] KeyRows v_rows(std::int64_t first, std::int64_t num_keys) const {
    return {v_dtype_, layout_.dim_vo(), v_rows_.data() + first, num_keys};
  }
  // What a score is multiplied by: its key's scale, the softmax scale, and log2(e) or the soft
  // cap's reciprocal.
  [[nodiscard]] const float* factors(std::int64_t first) const { return factors_.data() + first; }
  // Null unless V's scale differs between pages.
  [[nodiscard]] const float* value_scales(std::int64_t first) const {
    return has_page_scales_ ? value_scales_.data() + first : nullptr;
  }

 private:
  const AttentionLayout& layout_;
  float* packed_k_ = nullptr;
  float* packed_v_ = nullptr;
  DType k_dtype_;
  DType v_dtype_;
  bool has_page_scales_;
  std::array<const void*, kMaxTileKeys> k_rows_;
  std::array<const void*, kMaxTileKeys> v_rows_;
  // Read, but not used, up to the kernels' padding.
  std::array<float, kMaxTileKeys + kRowPadding> factors_;
  std::array<float, kMaxTileKeys + kRowPadding> value_scales_;
};

}  // namespace octavo::cpu
