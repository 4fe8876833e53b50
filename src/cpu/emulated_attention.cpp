// SPDX-License-Identifier: Apache-2.0
// Attention as a Hopper kernel with FP8 Q, K and V computes it: both products by the tensor-core
// model, P rounded to E4M3 after scaling by 2^8, tiles of 128 keys from key 0 in ascending order,
// P V promoted to FP32 every tile. The formulas, in order: docs/attention.md, "Emulated numerics".
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

#include "cpu/attention_layout.hpp"
#include "cpu/attention_tasks.hpp"
#include "cpu/cpu_attention.hpp"
#include "numerics/codec.hpp"
#include "numerics/tensor_core.hpp"

namespace octavo::cpu {
namespace {

constexpr std::int64_t kTileKeys = 128;
// Query rows that share a tile; no result depends on it.
constexpr std::int64_t kBlockRows = 64;
// P is scaled by 2^8, the largest power of two in E4M3's range (its maximum is 448).
constexpr float kOffset = 8;
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = std::numbers::log2e_v<float>;

// 2^x, rounded once from FP64: within 2 ulp of the GPU's ex2.approx.
float exp2_rounded(float x) { return static_cast<float>(std::exp2(static_cast<double>(x))); }

// True if a product of 0 with this code is NaN.
bool is_special(DType dtype, std::uint8_t code) {
  constexpr std::uint8_t kMagnitude = 0x7F;
  constexpr std::uint8_t kE5M2Infinity = 0x7C;
  const auto magnitude = static_cast<std::uint8_t>(code & kMagnitude);
  return dtype == DType::kE5M2 ? magnitude >= kE5M2Infinity : magnitude == kMagnitude;
}

// The codes of a row, adjacent.
void copy_codes(const TensorView& view, std::int64_t offset, std::int64_t num_elems,
                std::uint8_t* out) {
  const auto* codes = static_cast<const std::uint8_t*>(view.data) + offset;
  const std::int64_t stride = last_stride(view);
  for (std::int64_t i = 0; i < num_elems; ++i) out[i] = codes[i * stride];
}

// One row of S, P and O, and its running softmax.
struct RowState {
  std::int64_t query_idx = 0;
  std::int64_t head = 0;
  KeyRange visible;
  KeyRange in_tile;
  float q_scale = 1;
  float largest = kMinusInfinity;
  float sum = 0;
  float rescale = 1;  // of O in this tile
};

// A block of the query rows of one KV head.
class EmulatedBlock {
 public:
  EmulatedBlock(const AttentionLayout& layout, const Sequence& sequence, std::int64_t kv_head,
                std::int64_t first_row, std::int64_t num_rows)
      : layout_(layout),
        problem_(layout.problem()),
        sequence_(sequence),
        kv_head_(kv_head),
        num_rows_(num_rows),
        dim_qk_(layout.dim_qk()),
        dim_vo_(layout.dim_vo()),
        rows_(static_cast<std::size_t>(num_rows)),
        q_(bytes(num_rows * dim_qk_)),
        k_(bytes(kTileKeys * dim_qk_)),
        v_(bytes(kTileKeys * dim_vo_)),
        visible_v_(bytes(kTileKeys * dim_vo_)),
        p_(bytes(num_rows * kTileKeys)),
        scores_(static_cast<std::size_t>(num_rows * kTileKeys)),
        o_(static_cast<std::size_t>(num_rows * dim_vo_)),
        o_tile_(static_cast<std::size_t>(num_rows * dim_vo_)),
        k_scales_(static_cast<std::size_t>(kTileKeys)),
        v_scales_(static_cast<std::size_t>(kTileKeys)) {
    const std::int64_t group = layout.group_size();
    for (std::int64_t r = 0; r < num_rows; ++r) {
      RowState& row = rows_[static_cast<std::size_t>(r)];
      row.query_idx = (first_row + r) / group;
      row.head = kv_head * group + (first_row + r) % group;
      row.visible = visible_keys(problem_, sequence, row.query_idx);
      row.q_scale = layout.q_scale(sequence, row.head);
      copy_codes(problem_.q, layout.row_offset(problem_.q, sequence, row.query_idx, row.head),
                 dim_qk_, q_.data() + r * dim_qk_);
    }
  }

  void attend() {
    const KeyRange keys{rows_.front().visible.begin, rows_.back().visible.end};
    for (std::int64_t tile = keys.begin / kTileKeys * kTileKeys; tile < keys.end;
         tile += kTileKeys) {
      attend_tile({tile, std::min(tile + kTileKeys, sequence_.num_keys)});
    }
    for (std::int64_t r = 0; r < num_rows_; ++r) {
      finish(rows_[static_cast<std::size_t>(r)], o_.data() + r * dim_vo_);
    }
  }

 private:
  static std::vector<std::uint8_t> bytes(std::int64_t n) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(n));
  }

  void attend_tile(const KeyRange& tile) {
    const std::int64_t num_keys = tile.end - tile.begin;
    load_tile(tile);
    tensor_core_products(kHopper, {q_.data(), problem_.q.dtype, dim_qk_, 1}, num_rows_,
                         {k_.data(), problem_.k.dtype, dim_qk_, 1}, num_keys, dim_qk_,
                         ChainStart::kAbsent, {scores_.data(), kTileKeys});
    bool masks_some = false;
    for (std::int64_t r = 0; r < num_rows_; ++r) {
      RowState& row = rows_[static_cast<std::size_t>(r)];
      row.in_tile = {std::max(row.visible.begin, tile.begin) - tile.begin,
                     std::min(row.visible.end, tile.end) - tile.begin};
      soften(row, scores_.data() + r * kTileKeys, p_.data() + r * kTileKeys);
      masks_some = masks_some || row.in_tile.begin != 0 || row.in_tile.end != num_keys;
    }
    if (masks_some && tile_has_special_values_) {
      for (std::int64_t r = 0; r < num_rows_; ++r) multiply_visible_values(r, num_keys);
    } else {
      multiply_values(v_.data(), num_keys, 0, num_rows_);
    }
    for (std::int64_t r = 0; r < num_rows_; ++r) promote(r);
  }

  void load_tile(const KeyRange& tile) {
    const bool in_pages = problem_.v_scale_kind == AttentionScale::kPageHead;
    tile_has_special_values_ = false;
    v_reference_ = 0;
    for (std::int64_t key_idx = tile.begin; key_idx < tile.end; ++key_idx) {
      const std::int64_t j = key_idx - tile.begin;
      const KeyLocation key = layout_.key(sequence_, kv_head_, key_idx);
      copy_codes(problem_.k, key.k_offset, dim_qk_, k_.data() + j * dim_qk_);
      std::uint8_t* v_row = v_.data() + j * dim_vo_;
      copy_codes(problem_.v, key.v_offset, dim_vo_, v_row);
      tile_has_special_values_ =
          tile_has_special_values_ || std::any_of(v_row, v_row + dim_vo_, [&](std::uint8_t code) {
            return is_special(problem_.v.dtype, code);
          });
      k_scales_[static_cast<std::size_t>(j)] = layout_.k_scale(sequence_, kv_head_, key.page);
      if (!in_pages) continue;
      const float v_scale = layout_.v_scale(sequence_, kv_head_, key.page);
      v_scales_[static_cast<std::size_t>(j)] = v_scale;
      v_reference_ = std::max(v_reference_, v_scale);
    }
  }

  // A score in units of log 2.
  [[nodiscard]] float scaled_score(const RowState& row, float dot, float k_scale) const {
    const float scale = row.q_scale * k_scale * layout_.softmax_scale();
    if (problem_.softcap == 0) return dot * (scale * kLog2E);
    const auto ratio = static_cast<double>(dot * scale / problem_.softcap);
    return problem_.softcap * static_cast<float>(std::tanh(ratio)) * kLog2E;
  }

  // The row's probabilities in this tile, as codes; keys it does not see get code 0.
  void soften(RowState& row, float* scores, std::uint8_t* p) const {
    std::fill(p, p + kTileKeys, std::uint8_t{0});
    row.rescale = 1;
    if (row.in_tile.empty()) return;
    float largest = row.largest;
    for (std::int64_t j = row.in_tile.begin; j < row.in_tile.end; ++j) {
      scores[j] = scaled_score(row, scores[j], k_scales_[static_cast<std::size_t>(j)]);
      largest = std::max(largest, scores[j]);
    }
    // Where all scores are -inf, -inf minus the largest would be NaN.
    const float reference = largest == kMinusInfinity ? 0 : largest;
    float sum = 0;
    for (std::int64_t j = row.in_tile.begin; j < row.in_tile.end; ++j) {
      const float probability = exp2_rounded(scores[j] - reference + kOffset);
      sum += probability;
      p[j] =
          E4M3::encode(v_reference_ == 0
                           ? probability
                           : probability * (v_scales_[static_cast<std::size_t>(j)] / v_reference_));
    }
    if (row.largest != kMinusInfinity) row.rescale = exp2_rounded(row.largest - largest);
    row.sum = std::fma(row.sum, row.rescale, sum);
    row.largest = largest;
  }

  void multiply_values(const std::uint8_t* v, std::int64_t num_keys, std::int64_t first_row,
                       std::int64_t num_rows) {
    tensor_core_products(kHopper, {p_.data() + first_row * kTileKeys, DType::kE4M3, kTileKeys, 1},
                         num_rows, {v, problem_.v.dtype, 1, dim_vo_}, dim_vo_, num_keys,
                         ChainStart::kAbsent, {o_tile_.data() + first_row * dim_vo_, dim_vo_});
  }

  // A key that a row does not see takes no part: 0 * NaN would be NaN.
  void multiply_visible_values(std::int64_t r, std::int64_t num_keys) {
    const KeyRange& seen = rows_[static_cast<std::size_t>(r)].in_tile;
    std::fill(visible_v_.begin(), visible_v_.end(), std::uint8_t{0});
    if (!seen.empty()) {
      std::copy(v_.begin() + seen.begin * dim_vo_, v_.begin() + seen.end * dim_vo_,
                visible_v_.begin() + seen.begin * dim_vo_);
    }
    multiply_values(visible_v_.data(), num_keys, r, 1);
  }

  void promote(std::int64_t r) {
    const RowState& row = rows_[static_cast<std::size_t>(r)];
    if (row.in_tile.empty()) return;
    float* o = o_.data() + r * dim_vo_;
    const float* o_tile = o_tile_.data() + r * dim_vo_;
    for (std::int64_t i = 0; i < dim_vo_; ++i) {
      const float product = v_reference_ == 0 ? o_tile[i] : o_tile[i] * v_reference_;
      o[i] = std::fma(o[i], row.rescale, product);
    }
  }

  void finish(const RowState& row, float* o) const {
    const bool in_pages = problem_.v_scale_kind == AttentionScale::kPageHead;
    const float v_scale = in_pages || row.sum == 0 ? 1 : layout_.v_scale(sequence_, kv_head_, -1);
    const float factor = row.sum == 0 ? 0 : v_scale / row.sum;
    const float o_factor = 1 / layout_.o_scale();
    for (std::int64_t i = 0; i < dim_vo_; ++i) {
      o[i] *= factor;
      if (problem_.o_scale.present()) o[i] *= o_factor;
      if (std::isnan(o[i])) o[i] = std::bit_cast<float>(kCanonicalNan);
    }
    store_row(problem_.o, layout_.row_offset(problem_.o, sequence_, row.query_idx, row.head),
              dim_vo_, o);
    if (problem_.lse.absent()) return;
    const double log2_sum = std::log2(static_cast<double>(row.sum)) - kOffset;
    static_cast<float*>(problem_.lse.data)[layout_.lse_offset(sequence_, row.query_idx, row.head)] =
        row.sum == 0 ? kMinusInfinity
                     : static_cast<float>((row.largest + log2_sum) * std::numbers::ln2);
  }

  const AttentionLayout& layout_;
  const AttentionProblem& problem_;
  const Sequence& sequence_;
  std::int64_t kv_head_;
  std::int64_t num_rows_;
  std::int64_t dim_qk_;
  std::int64_t dim_vo_;
  std::vector<RowState> rows_;
  std::vector<std::uint8_t> q_;          // [num_rows, dim_qk]
  std::vector<std::uint8_t> k_;          // [tile keys, dim_qk]
  std::vector<std::uint8_t> v_;          // [tile keys, dim_vo]
  std::vector<std::uint8_t> visible_v_;  // v_ with the rows that one query sees
  std::vector<std::uint8_t> p_;          // [num_rows, tile keys]
  std::vector<float> scores_;            // [num_rows, tile keys]
  std::vector<float> o_;                 // [num_rows, dim_vo]
  std::vector<float> o_tile_;            // [num_rows, dim_vo]
  std::vector<float> k_scales_;          // [tile keys]
  std::vector<float> v_scales_;          // [tile keys]
  bool tile_has_special_values_ = false;
  float v_reference_ = 0;  // largest V scale of the tile's pages; 0 if V's scale is not per page
};

}  // namespace

Status emulated_attention(const AttentionProblem& problem, int num_threads) {
  const AttentionLayout layout(problem);
  std::vector<Sequence> sequences;
  std::vector<std::int64_t> first_tasks;  // of each sequence
  std::int64_t num_tasks = 0;
  const auto blocks_per_head = [&](const Sequence& sequence) {
    return (sequence.num_queries * layout.group_size() + kBlockRows - 1) / kBlockRows;
  };
  for (std::int64_t i = 0; i < layout.num_sequences(); ++i) {
    const Sequence sequence = layout.sequence(i);
    if (sequence.num_queries == 0) continue;
    sequences.push_back(sequence);
    first_tasks.push_back(num_tasks);
    num_tasks += blocks_per_head(sequence) * layout.num_kv_heads();
  }
  for_each_task(num_tasks, num_threads, [&](std::int64_t task_idx) {
    const auto after = std::upper_bound(first_tasks.begin(), first_tasks.end(), task_idx);
    const auto i = static_cast<std::size_t>(std::distance(first_tasks.begin(), after) - 1);
    const Sequence& sequence = sequences[i];
    const std::int64_t block_idx = task_idx - first_tasks[i];
    const std::int64_t first_row = block_idx % blocks_per_head(sequence) * kBlockRows;
    const std::int64_t num_rows =
        std::min(kBlockRows, sequence.num_queries * layout.group_size() - first_row);
    EmulatedBlock(layout, sequence, block_idx / blocks_per_head(sequence), first_row, num_rows)
        .attend();
  });
  return Ok{};
}

}  // namespace octavo::cpu
