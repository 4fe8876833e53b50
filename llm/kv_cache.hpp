// SPDX-License-Identifier: Apache-2.0
// Keys and values of one sequence, all layers, in pages; F32, BF16 or E4M3 with one scale per page
// and head. The cache writes codes and scales and hands both to attention itself, so the scale
// that a value was written with is the one it is read with.
//
// FP8 scales need no calibration. They are powers of two: a page's first token sets its scale with
// room for kHeadroom times that token's largest magnitude, and a later token that needs more raises
// the scale and shifts the page's codes, which is exact but for codes that become subnormal. So
// nothing ever saturates, and E4M3, being floating point, loses nothing by the room.
//
// FP8 keys are stored less a constant vector of their layer and head, the mean of the first chunk's
// keys: it adds the same to all scores of a query, so softmax does not see it, and what keys have
// in common takes no bits. (Known from SageAttention, arXiv 2410.02367.) What is left is multiplied
// by a Hadamard matrix, and queries must be too (rotate_queries): scores stay as they are, but the
// few large elements of a key, which meet a query's few large ones, no longer carry most of the
// rounding error. (Known from QuaRot, arXiv 2404.00456, and FlashAttention-3, arXiv 2407.08608.)
// What both are worth on a real model: docs/experiments.md.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "llm/elementwise.hpp"
#include "llm/precision.hpp"
#include "llm/weight_buffer.hpp"
#include "octavo/attention.hpp"

namespace octavo::llm {

class KvCache {
 public:
  struct Shape {
    std::int64_t num_layers;
    std::int64_t num_kv_heads;
    std::int64_t head_dim;
    std::int64_t max_positions;
  };

  static constexpr std::int64_t kPageSize = 64;  // tokens
  static constexpr float kHeadroom = 4.0F;
  // The mean of fewer tokens says little about those to come.
  static constexpr std::int64_t kMinTokensForShift = 16;

  // Allocates nothing for tokens yet.
  KvCache(const Shape& shape, NumberFormat format);

  [[nodiscard]] std::int64_t length() const noexcept { return length_; }
  [[nodiscard]] std::int64_t capacity() const noexcept { return num_pages_ * kPageSize; }
  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] NumberFormat format() const noexcept { return format_; }
  // Codes and scales that attention reads for one query at the present length.
  [[nodiscard]] std::int64_t bytes_in_use() const noexcept;

  // Room for `length` tokens in all, so that none is allocated on the way there.
  // Throws Error (kInvalidArgument) if length > max_positions.
  void reserve(std::int64_t length);
  void clear() noexcept { length_ = 0; }

  // One step of a model: begin(), then write() and set_keys_and_values() for every layer, then
  // commit(). A step that is not committed leaves the cache as it was.
  void begin(std::int64_t num_tokens);
  // [num_tokens, num_kv_heads, head_dim] each; one token's heads are dense, tokens are row_stride
  // apart.
  void write(std::int64_t layer, const float* k, const float* v, std::int64_t row_stride,
             const Execution& execution);
  // What was subtracted from the layer's keys, [num_kv_heads, head_dim]; zeros unless FP8 and the
  // first chunk had kMinTokensForShift tokens.
  [[nodiscard]] std::span<const float> key_shift(std::int64_t layer) const noexcept;
  // Brings queries into the frame that the keys are stored in; changes nothing unless FP8.
  void rotate_queries(const HeadRows& queries) const noexcept;
  // The step's keys and values, those before it included.
  void set_keys_and_values(std::int64_t layer, AttentionProblem& problem) const;
  void commit() noexcept { length_ = end_; }

 private:
  struct Store {                // K or V of one layer
    WeightBuffer values;        // [num_pages, kPageSize, num_kv_heads, head_dim]
    std::vector<float> scales;  // [num_pages, num_kv_heads]; empty unless FP8
  };

  [[nodiscard]] std::int64_t token_elems() const noexcept {
    return shape_.num_kv_heads * shape_.head_dim;
  }
  void grow(Store& store, std::int64_t num_pages) const;
  void set_key_shift(std::int64_t layer, const float* k, std::int64_t row_stride);
  void write_token(Store& store, std::int64_t position, const float* x, const Execution& execution);
  void fit_scale(Store& store, std::int64_t page, std::int64_t slot, std::int64_t head,
                 float magnitude, const Execution& execution);
  [[nodiscard]] TensorView pages_view(const Store& store) const;

  Shape shape_;
  NumberFormat format_;
  std::int64_t num_pages_ = 0;
  std::int64_t length_ = 0;
  std::int64_t end_ = 0;                  // length_ after the step under way
  std::int32_t end_as_length_ = 0;        // the same, as attention reads it
  std::vector<std::int32_t> page_table_;  // page i holds tokens i * kPageSize and on
  std::vector<std::array<Store, 2>> layers_;
  std::vector<float> shift_scratch_;  // one head of one page
  std::vector<float> key_shift_;      // [num_layers, num_kv_heads, head_dim]
  std::vector<float> turned_key_;     // one token's, less the shift, rotated
};

}  // namespace octavo::llm
