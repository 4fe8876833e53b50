// SPDX-License-Identifier: Apache-2.0
// Threaded, vectorised attention with FP32 sums; P is not rounded to FP8. A sequence with few query
// rows per KV head (decode) is streamed: K and V are read once, in splits of the keys that are
// merged in ascending order. One with many (prefill) is tiled: blocks of query rows against tiles
// of keys with a running softmax. How a sequence is cut depends on that sequence alone, so its bits
// depend neither on the threads nor on the rest of the batch. Inner loops: attention_kernels.cpp.
#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <numbers>
#include <vector>

#include "cpu/attention_kernels.hpp"
#include "cpu/attention_layout.hpp"
#include "cpu/attention_tasks.hpp"
#include "cpu/attention_tile_keys.hpp"
#include "cpu/cpu_attention.hpp"

namespace octavo::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
// Query rows of one KV head up to which a sequence is streamed.
constexpr std::int64_t kMaxStreamedRows = 16;
constexpr std::int64_t kTileKeys = 64;
constexpr std::int64_t kTileRows = 64;
// Rows that multiply_rows keeps in registers together.
constexpr std::int64_t kProductRows = 6;
// PERF: waking a second core costs a few microseconds, about what one core needs for this many
// multiply-adds.
constexpr double kMinThreadedProducts = 0x1p16;
// More than any machine holds; broadcast tensors can ask for it.
constexpr double kMaxPartialElems = 0x1p46;

// FP32 scratch of one thread, kept between calls.
class Scratch {
 public:
  // All of it, `num_elems` floats; what take() gave before is void.
  void reserve(std::int64_t num_elems) {
    if (static_cast<std::int64_t>(values_.size()) < num_elems) {
      values_.resize(static_cast<std::size_t>(num_elems));
    }
    next_ = values_.data();
  }
  [[nodiscard]] float* take(std::int64_t num_elems) {
    float* taken = next_;
    next_ += num_elems;
    return taken;
  }

 private:
  std::vector<float> values_;
  float* next_ = nullptr;
};

struct SequencePlan {
  Sequence sequence;
  std::int64_t first_task = 0;
  std::int64_t tasks_per_head = 0;  // splits if streamed, blocks of query rows if tiled
  bool streamed = false;
  KeyRange keys;                    // that any query sees
  std::int64_t partial_offset = 0;  // of this sequence's partial rows, if it has several splits
};

class BlockedAttention {
 public:
  explicit BlockedAttention(const AttentionProblem& problem) : layout_(problem), problem_(problem) {
    padded_qk_ = padded(layout_.dim_qk());
    padded_vo_ = padded(layout_.dim_vo());
    // A partial row is O, unnormalised, then its largest score and its sum.
    partial_stride_ = padded_vo_ + 2;
    cap_ = static_cast<float>(problem.softcap * std::numbers::log2e);
    plan();
  }

  void run(int num_threads) {
    static thread_local std::vector<float> partials;
    if (static_cast<std::int64_t>(partials.size()) < num_partial_elems_) {
      partials.resize(static_cast<std::size_t>(num_partial_elems_));
    }
    partials_ = partials.data();
    if (num_products_ < kMinThreadedProducts) num_threads = 1;
    for_each_task(num_tasks_, num_threads, [this](std::int64_t task_idx) { run_task(task_idx); });
    if (num_partial_elems_ == 0) return;
    const std::int64_t num_heads = layout_.num_kv_heads();
    for_each_task(static_cast<std::int64_t>(plans_.size()) * num_heads, num_threads,
                  [&](std::int64_t task_idx) {
                    merge(plans_[static_cast<std::size_t>(task_idx / num_heads)],
                          task_idx % num_heads);
                  });
  }

 private:
  void plan() {
    plans_.reserve(static_cast<std::size_t>(layout_.num_sequences()));
    for (std::int64_t i = 0; i < layout_.num_sequences(); ++i) {
      SequencePlan plan;
      plan.sequence = layout_.sequence(i);
      const std::int64_t num_queries = plan.sequence.num_queries;
      if (num_queries == 0) continue;
      // Both ends of the visible range rise with the query.
      plan.keys.begin = visible_keys(problem_, plan.sequence, 0).begin;
      plan.keys.end = visible_keys(problem_, plan.sequence, num_queries - 1).end;
      const std::int64_t num_rows = num_queries * layout_.group_size();
      plan.streamed = num_rows <= kMaxStreamedRows;
      plan.first_task = num_tasks_;
      if (plan.streamed) {
        plan.tasks_per_head = 1;
        if (!plan.keys.empty()) {
          plan.tasks_per_head =
              (plan.keys.end - 1) / kMaxTileKeys - plan.keys.begin / kMaxTileKeys + 1;
        }
        if (plan.tasks_per_head > 1) {
          plan.partial_offset = num_partial_elems_;
          const double wanted = static_cast<double>(layout_.num_kv_heads()) *
                                static_cast<double>(plan.tasks_per_head * num_rows) *
                                static_cast<double>(partial_stride_);
          if (static_cast<double>(num_partial_elems_) + wanted > kMaxPartialElems) {
            throw std::bad_alloc();
          }
          num_partial_elems_ += static_cast<std::int64_t>(wanted);
        }
      } else {
        plan.tasks_per_head = (num_rows + kTileRows - 1) / kTileRows;
      }
      num_tasks_ += plan.tasks_per_head * layout_.num_kv_heads();
      num_products_ +=
          static_cast<double>(num_queries * layout_.num_q_heads()) *
          static_cast<double>(std::max<std::int64_t>(0, plan.keys.end - plan.keys.begin)) *
          static_cast<double>(layout_.dim_qk() + layout_.dim_vo());
      plans_.push_back(plan);
    }
  }

  void run_task(std::int64_t task_idx) {
    const auto after = std::upper_bound(
        plans_.begin(), plans_.end(), task_idx,
        [](std::int64_t idx, const SequencePlan& plan) { return idx < plan.first_task; });
    const SequencePlan& plan = *std::prev(after);
    const std::int64_t idx = task_idx - plan.first_task;
    static thread_local Scratch scratch;
    if (plan.streamed) {
      run_split(plan, idx / plan.tasks_per_head, idx % plan.tasks_per_head, scratch);
    } else {
      run_tile_rows(plan, idx / plan.tasks_per_head, idx % plan.tasks_per_head, scratch);
    }
  }

  // Row `row` of a KV head's query rows: queries in order, each with its heads in order.
  [[nodiscard]] std::int64_t query_of(std::int64_t row) const { return row / layout_.group_size(); }
  [[nodiscard]] std::int64_t head_of(std::int64_t kv_head, std::int64_t row) const {
    return kv_head * layout_.group_size() + row % layout_.group_size();
  }

  // The query row in FP32, with its scale.
  void load_query(const Sequence& sequence, std::int64_t kv_head, std::int64_t row,
                  float* out) const {
    const std::int64_t head = head_of(kv_head, row);
    load_row(problem_.q, layout_.row_offset(problem_.q, sequence, query_of(row), head),
             layout_.dim_qk(), out);
    std::fill(out + layout_.dim_qk(), out + padded_qk_, 0.0F);
    if (problem_.q_scale_kind != AttentionScale::kNone) {
      scale_values(out, layout_.dim_qk(), layout_.q_scale(sequence, head));
    }
  }

  void finish_row(const Sequence& sequence, std::int64_t kv_head, std::int64_t row,
                  const SoftmaxSums& sums, float* o) const {
    const std::int64_t head = head_of(kv_head, row);
    const std::int64_t query_idx = query_of(row);
    float factor = 0;
    if (sums.sum != 0) {
      const bool in_pages = problem_.v_scale_kind == AttentionScale::kPageHead;
      factor = (in_pages ? 1.0F : layout_.v_scale(sequence, kv_head, -1)) / sums.sum;
      if (problem_.o_scale.present()) factor *= 1.0F / layout_.o_scale();
    }
    scale_values(o, layout_.dim_vo(), factor);
    store_row(problem_.o, layout_.row_offset(problem_.o, sequence, query_idx, head),
              layout_.dim_vo(), o);
    if (problem_.lse.present()) {
      static_cast<float*>(problem_.lse.data)[layout_.lse_offset(sequence, query_idx, head)] =
          sums.sum == 0 ? kMinusInfinity
                        : (sums.largest + std::log2(sums.sum)) * std::numbers::ln2_v<float>;
    }
  }

  [[nodiscard]] float* partial(const SequencePlan& plan, std::int64_t kv_head,
                               std::int64_t split_idx, std::int64_t row) const {
    const std::int64_t num_rows = plan.sequence.num_queries * layout_.group_size();
    return partials_ + plan.partial_offset +
           ((kv_head * plan.tasks_per_head + split_idx) * num_rows + row) * partial_stride_;
  }

  // ---- Streamed ----

  void run_split(const SequencePlan& plan, std::int64_t kv_head, std::int64_t split_idx,
                 Scratch& scratch) const {
    const Sequence& sequence = plan.sequence;
    const std::int64_t split_begin = (plan.keys.begin / kMaxTileKeys + split_idx) * kMaxTileKeys;
    const KeyRange split{std::max(plan.keys.begin, split_begin),
                         std::min(plan.keys.end, split_begin + kMaxTileKeys)};
    scratch.reserve(TileKeys::packed_elems(layout_) +
                    kMaxSharedRows * (padded_qk_ + kMaxTileKeys + kRowPadding + padded_vo_));
    TileKeys keys(layout_, scratch.take(TileKeys::packed_elems(layout_)));
    keys.locate(sequence, kv_head, split);
    FloatRows q{scratch.take(kMaxSharedRows * padded_qk_), padded_qk_, 0};
    FloatRows scores{scratch.take(kMaxSharedRows * (kMaxTileKeys + kRowPadding)),
                     kMaxTileKeys + kRowPadding, 0};
    FloatRows o{scratch.take(kMaxSharedRows * padded_vo_), padded_vo_, 0};

    for (std::int64_t query_idx = 0; query_idx < sequence.num_queries; ++query_idx) {
      const KeyRange visible = visible_keys(problem_, sequence, query_idx);
      const std::int64_t begin = std::max(visible.begin, split.begin);
      const std::int64_t num_keys =
          std::max<std::int64_t>(0, std::min(visible.end, split.end) - begin);
      const std::int64_t first = begin - split.begin;
      // Rows that share a pass belong to one query, so that all of them see the same keys.
      for (std::int64_t member = 0; member < layout_.group_size(); member += kMaxSharedRows) {
        const std::int64_t num_rows =
            std::min<std::int64_t>(kMaxSharedRows, layout_.group_size() - member);
        const std::int64_t first_row = query_idx * layout_.group_size() + member;
        q.num_rows = scores.num_rows = o.num_rows = num_rows;
        std::fill(o.values, o.values + num_rows * o.stride, 0.0F);
        SoftmaxSums sums[kMaxSharedRows];
        for (SoftmaxSums& row_sums : sums) row_sums = {kMinusInfinity, 0};
        if (num_keys > 0) {
          for (std::int64_t r = 0; r < num_rows; ++r) {
            load_query(sequence, kv_head, first_row + r, q.values + r * q.stride);
          }
          score_keys(q, keys.k_rows(first, num_keys), scores);
          for (std::int64_t r = 0; r < num_rows; ++r) {
            sums[r] = softmax_tile({.scores = scores.values + r * scores.stride,
                                    .begin = 0,
                                    .end = num_keys,
                                    .factors = keys.factors(first),
                                    .cap = cap_,
                                    .value_scales = keys.value_scales(first),
                                    .largest = kMinusInfinity});
          }
          accumulate_values(scores, keys.v_rows(first, num_keys), o);
        }
        for (std::int64_t r = 0; r < num_rows; ++r) {
          float* o_row = o.values + r * o.stride;
          if (plan.tasks_per_head == 1) {
            finish_row(sequence, kv_head, first_row + r, sums[r], o_row);
          } else {
            float* part = partial(plan, kv_head, split_idx, first_row + r);
            std::copy(o_row, o_row + padded_vo_, part);
            part[padded_vo_] = sums[r].largest;
            part[padded_vo_ + 1] = sums[r].sum;
          }
        }
      }
    }
  }

  // Adds the splits of one KV head in ascending order.
  void merge(const SequencePlan& plan, std::int64_t kv_head) const {
    if (!plan.streamed || plan.tasks_per_head == 1) return;
    const std::int64_t num_rows = plan.sequence.num_queries * layout_.group_size();
    for (std::int64_t row = 0; row < num_rows; ++row) {
      SoftmaxSums total{kMinusInfinity, 0};
      for (std::int64_t i = 0; i < plan.tasks_per_head; ++i) {
        // NOTE: a NaN must not be lost here; it comes back through its own split's weight.
        total.largest = std::max(total.largest, partial(plan, kv_head, i, row)[padded_vo_]);
      }
      float* sum = partial(plan, kv_head, 0, row);
      for (std::int64_t i = 0; i < plan.tasks_per_head; ++i) {
        const float* part = partial(plan, kv_head, i, row);
        const float part_sum = part[padded_vo_ + 1];
        const float weight = part_sum == 0 ? 0.0F : std::exp2(part[padded_vo_] - total.largest);
        total.sum += part_sum * weight;
        if (i == 0) {
          scale_values(sum, layout_.dim_vo(), weight);
        } else {
          add_scaled(part, layout_.dim_vo(), weight, sum);
        }
      }
      finish_row(plan.sequence, kv_head, row, total, sum);
    }
  }

  // ---- Tiled ----

  struct RowState {
    KeyRange visible;  // of the whole sequence
    KeyRange in_tile;  // positions in the tile
    SoftmaxSums sums{kMinusInfinity, 0};
  };

  void run_tile_rows(const SequencePlan& plan, std::int64_t kv_head, std::int64_t block_idx,
                     Scratch& scratch) const {
    const Sequence& sequence = plan.sequence;
    const std::int64_t first_row = block_idx * kTileRows;
    const std::int64_t num_rows =
        std::min(kTileRows, sequence.num_queries * layout_.group_size() - first_row);
    const std::int64_t decoded_stride = std::max(padded_qk_, padded_vo_);
    scratch.reserve(TileKeys::packed_elems(layout_) + kTileRows * (padded_qk_ + padded_vo_) +
                    kTileKeys * (decoded_stride + padded_qk_) + kTileRows * kTileKeys);
    TileKeys keys(layout_, scratch.take(TileKeys::packed_elems(layout_)));
    const FloatRows q{scratch.take(kTileRows * padded_qk_), padded_qk_, num_rows};
    const FloatRows o{scratch.take(kTileRows * padded_vo_), padded_vo_, num_rows};
    // K's rows, then V's.
    FloatRows decoded{scratch.take(kTileKeys * decoded_stride), decoded_stride, 0};
    const FloatRows k_columns{scratch.take(kTileKeys * padded_qk_), kTileKeys, layout_.dim_qk()};
    const FloatRows scores{scratch.take(kTileRows * kTileKeys), kTileKeys, num_rows};

    RowState rows[kTileRows];
    for (std::int64_t r = 0; r < num_rows; ++r) {
      rows[r].visible = visible_keys(problem_, sequence, query_of(first_row + r));
      load_query(sequence, kv_head, first_row + r, q.values + r * q.stride);
    }
    std::fill(o.values, o.values + num_rows * o.stride, 0.0F);

    const KeyRange block{rows[0].visible.begin, rows[num_rows - 1].visible.end};
    for (std::int64_t tile = block.begin / kTileKeys * kTileKeys; tile < block.end;
         tile += kTileKeys) {
      const KeyRange range{std::max(tile, block.begin), std::min(tile + kTileKeys, block.end)};
      const std::int64_t num_keys = range.end - range.begin;
      keys.locate(sequence, kv_head, range);
      decoded.num_rows = num_keys;
      decode_rows(keys.k_rows(0, num_keys), decoded);
      transpose_rows(decoded, layout_.dim_qk(), k_columns);
      multiply_rows(q, k_columns, num_keys, ProductStart::kZero, scores);
      for (std::int64_t r = 0; r < num_rows; ++r) {
        soften_row(rows[r], range, keys, scores.values + r * scores.stride,
                   o.values + r * o.stride);
      }
      decode_rows(keys.v_rows(0, num_keys), decoded);
      for (std::int64_t r = 0; r < num_rows; r += kProductRows) {
        const std::int64_t rows_here = std::min(kProductRows, num_rows - r);
        add_values(rows + r, {scores.values + r * scores.stride, scores.stride, rows_here}, decoded,
                   {o.values + r * o.stride, o.stride, rows_here});
      }
    }
    for (std::int64_t r = 0; r < num_rows; ++r) {
      finish_row(sequence, kv_head, first_row + r, rows[r].sums, o.values + r * o.stride);
    }
  }

  // One row's scores in a tile become probabilities; O is rescaled to the new largest score.
  void soften_row(RowState& row, const KeyRange& range, const TileKeys& keys, float* scores,
                  float* o) const {
    row.in_tile = {std::max(row.visible.begin, range.begin) - range.begin,
                   std::min(row.visible.end, range.end) - range.begin};
    if (row.in_tile.empty()) return;
    const float before = row.sums.largest;
    const SoftmaxSums sums = softmax_tile({.scores = scores,
                                           .begin = row.in_tile.begin,
                                           .end = row.in_tile.end,
                                           .factors = keys.factors(0),
                                           .cap = cap_,
                                           .value_scales = keys.value_scales(0),
                                           .largest = before});
    row.sums.largest = sums.largest;
    if (sums.largest == before || row.sums.sum == 0) {
      row.sums.sum += sums.sum;
      return;
    }
    const float rescale = std::exp2(before - sums.largest);
    row.sums.sum = row.sums.sum * rescale + sums.sum;
    scale_values(o, layout_.dim_vo(), rescale);
  }

  // O += P V for a few rows. A key that a row does not see takes no part: 0 * NaN would be NaN.
  void add_values(const RowState* rows, const FloatRows& p, const FloatRows& v,
                  const FloatRows& o) const {
    KeyRange common = rows[0].in_tile;
    for (std::int64_t r = 1; r < p.num_rows; ++r) {
      common.begin = std::max(common.begin, rows[r].in_tile.begin);
      common.end = std::min(common.end, rows[r].in_tile.end);
    }
    if (!common.empty()) add_keys(p, common, v, o);
    for (std::int64_t r = 0; r < p.num_rows; ++r) {
      const FloatRows p_row{p.values + r * p.stride, p.stride, 1};
      const FloatRows o_row{o.values + r * o.stride, o.stride, 1};
      const KeyRange& own = rows[r].in_tile;
      if (common.empty()) {
        add_keys(p_row, own, v, o_row);
      } else {
        add_keys(p_row, {own.begin, common.begin}, v, o_row);
        add_keys(p_row, {common.end, own.end}, v, o_row);
      }
    }
  }

  void add_keys(const FloatRows& p, const KeyRange& keys, const FloatRows& v,
                const FloatRows& o) const {
    if (keys.empty()) return;
    multiply_rows({p.values + keys.begin, p.stride, p.num_rows},
                  {v.values + keys.begin * v.stride, v.stride, keys.end - keys.begin},
                  layout_.dim_vo(), ProductStart::kFromOutput, o);
  }

  AttentionLayout layout_;
  const AttentionProblem& problem_;
  std::int64_t padded_qk_ = 0;
  std::int64_t padded_vo_ = 0;
  std::int64_t partial_stride_ = 0;
  float cap_ = 0;
  std::vector<SequencePlan> plans_;
  std::int64_t num_tasks_ = 0;
  double num_products_ = 0;  // may pass 2^63 with broadcast keys
  std::int64_t num_partial_elems_ = 0;
  float* partials_ = nullptr;
};

}  // namespace

Status blocked_attention(const AttentionProblem& problem, int num_threads) {
  BlockedAttention(problem).run(num_threads);
  return Ok{};
}

}  // namespace octavo::cpu
