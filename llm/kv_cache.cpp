// SPDX-License-Identifier: Apache-2.0
#include "llm/kv_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "llm/elementwise.hpp"
#include "octavo/error.hpp"
#include "octavo/quantize.hpp"

namespace octavo::llm {
namespace {

// The smallest power of two with which `magnitude` stays within E4M3; never below that of the
// quantizer's own floor, so that a page of zeros has a normal scale.
float covering_scale(float magnitude) {
  const float wanted = std::max(magnitude, kDefaultAmaxFloor) / max_finite_fp8(DType::kE4M3);
  int exponent = 0;
  const float mantissa = std::frexp(wanted, &exponent);  // wanted = mantissa * 2^exponent
  constexpr float kPowerOfTwoMantissa = 0.5F;
  return std::ldexp(1.0F, mantissa == kPowerOfTwoMantissa ? exponent - 1 : exponent);
}

}  // namespace

KvCache::KvCache(const Shape& shape, NumberFormat format)
    : shape_(shape), format_(format), layers_(static_cast<std::size_t>(shape.num_layers)) {
  shift_scratch_.resize(static_cast<std::size_t>(kPageSize * shape.head_dim));
  key_shift_.resize(static_cast<std::size_t>(shape.num_layers * token_elems()));
  turned_key_.resize(static_cast<std::size_t>(token_elems()));
}

std::int64_t KvCache::bytes_in_use() const noexcept {
  const std::int64_t value_bytes = octavo::size_bytes(dtype_of(format_)) * token_elems() * length_;
  const std::int64_t pages = (length_ + kPageSize - 1) / kPageSize;
  const std::int64_t scale_bytes =
      format_ == NumberFormat::kFp8
          ? pages * shape_.num_kv_heads * static_cast<std::int64_t>(sizeof(float))
          : 0;
  return 2 * shape_.num_layers * (value_bytes + scale_bytes);
}

void KvCache::reserve(std::int64_t length) {
  if (length > shape_.max_positions) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("kv_cache: {} tokens were asked for ({} are in the cache); the model's "
                            "context is {} tokens. Shorten the prompt or generate fewer tokens.",
                            length, length_, shape_.max_positions));
  }
  const std::int64_t num_pages = (length + kPageSize - 1) / kPageSize;
  if (num_pages <= num_pages_) return;
  for (std::array<Store, 2>& layer : layers_) {
    for (Store& store : layer) grow(store, num_pages);
  }
  page_table_.resize(static_cast<std::size_t>(num_pages));
  std::iota(page_table_.begin(), page_table_.end(), 0);
  num_pages_ = num_pages;
}

void KvCache::grow(Store& store, std::int64_t num_pages) const {
  const auto page_bytes =
      static_cast<std::size_t>(kPageSize * token_elems() * octavo::size_bytes(dtype_of(format_)));
  WeightBuffer larger(page_bytes * static_cast<std::size_t>(num_pages));
  if (num_pages_ > 0) {
    std::memcpy(larger.as<std::byte>(), store.values.as<std::byte>(), store.values.size_bytes());
  }
  store.values = std::move(larger);
  if (format_ == NumberFormat::kFp8) {
    store.scales.resize(static_cast<std::size_t>(num_pages * shape_.num_kv_heads), 1.0F);
  }
}

void KvCache::begin(std::int64_t num_tokens) {
  const std::int64_t end = length_ + num_tokens;
  // The last page may have more room than the context.
  if (end > capacity() || end > shape_.max_positions) {
    // Twice as much each time, so that a long generation copies the cache a few times only.
    reserve(std::max(end, std::min(2 * capacity(), shape_.max_positions)));
  }
  end_ = end;
  end_as_length_ = static_cast<std::int32_t>(end);
}

void KvCache::write(std::int64_t layer, const float* k, const float* v, std::int64_t row_stride,
                    const Execution& execution) {
  std::array<Store, 2>& stores = layers_[static_cast<std::size_t>(layer)];
  const bool shifts = format_ == NumberFormat::kFp8;
  if (shifts && length_ == 0) set_key_shift(layer, k, row_stride);
  const std::span<const float> shift = key_shift(layer);
  for (std::int64_t position = length_; position < end_; ++position) {
    const std::int64_t offset = (position - length_) * row_stride;
    const float* key = k + offset;
    if (shifts) {
      for (std::size_t i = 0; i < shift.size(); ++i) turned_key_[i] = key[i] - shift[i];
      rotate_heads({.x = turned_key_.data(),
                    .rows = 1,
                    .row_stride = token_elems(),
                    .heads = shape_.num_kv_heads,
                    .head_dim = shape_.head_dim});
      key = turned_key_.data();
    }
    write_token(stores[0], position, key, execution);
    write_token(stores[1], position, v + offset, execution);
  }
}

void KvCache::rotate_queries(const HeadRows& queries) const noexcept {
  if (format_ == NumberFormat::kFp8) rotate_heads(queries);
}

std::span<const float> KvCache::key_shift(std::int64_t layer) const noexcept {
  return std::span(key_shift_)
      .subspan(static_cast<std::size_t>(layer * token_elems()),
               static_cast<std::size_t>(token_elems()));
}

void KvCache::set_key_shift(std::int64_t layer, const float* k, std::int64_t row_stride) {
  float* shift = key_shift_.data() + layer * token_elems();
  for (std::int64_t i = 0; i < token_elems(); ++i) {
    float mean = 0;
    if (end_ >= kMinTokensForShift) {
      for (std::int64_t token = 0; token < end_; ++token) mean += k[token * row_stride + i];
      mean /= static_cast<float>(end_);
    }
    // One bad key must not spoil the others.
    shift[i] = std::isfinite(mean) ? mean : 0.0F;
  }
}

void KvCache::write_token(Store& store, std::int64_t position, const float* x,
                          const Execution& execution) {
  const auto first = static_cast<std::size_t>(position * token_elems());
  const auto count = static_cast<std::size_t>(token_elems());
  switch (format_) {
    case NumberFormat::kF32:
      std::memcpy(store.values.as<float>() + first, x, count * sizeof(float));
      return;
    case NumberFormat::kBf16: to_bf16({x, count}, store.values.as<std::uint16_t>() + first); return;
    case NumberFormat::kFp8: break;
  }
  const std::int64_t page = position / kPageSize;
  const std::int64_t slot = position % kPageSize;
  for (std::int64_t head = 0; head < shape_.num_kv_heads; ++head) {
    const std::span<const float> values(x + head * shape_.head_dim,
                                        static_cast<std::size_t>(shape_.head_dim));
    fit_scale(store, page, slot, head, max_finite_magnitude(values), execution);
  }
  QuantizeProblem problem;
  problem.x = make_view(x, DType::kF32, {shape_.num_kv_heads, shape_.head_dim});
  problem.q = make_view(store.values.as<std::uint8_t>() + first, DType::kE4M3,
                        {shape_.num_kv_heads, shape_.head_dim});
  problem.granularity = octavo::ScaleGranularity::kRow;
  problem.scale = make_view(store.scales.data() + page * shape_.num_kv_heads, DType::kF32,
                            {shape_.num_kv_heads});
  problem.scale_source = ScaleSource::kGiven;
  (void)quantize(problem, execution);
}

void KvCache::fit_scale(Store& store, std::int64_t page, std::int64_t slot, std::int64_t head,
                        float magnitude, const Execution& execution) {
  float& scale = store.scales[static_cast<std::size_t>(page * shape_.num_kv_heads + head)];
  if (slot == 0) {
    scale = covering_scale(std::min(magnitude, std::numeric_limits<float>::max() / kHeadroom) *
                           kHeadroom);
    return;
  }
  if (magnitude <= scale * max_finite_fp8(DType::kE4M3)) return;
  const float raised = covering_scale(magnitude);
  MutableTensorView codes =
      make_view(store.values.as<std::uint8_t>() +
                    (page * kPageSize * shape_.num_kv_heads + head) * shape_.head_dim,
                DType::kE4M3, {slot, shape_.head_dim});
  codes.strides[0] = token_elems();
  DequantizeProblem reading;
  reading.q = codes;
  reading.granularity = octavo::ScaleGranularity::kTensor;
  reading.scale = make_view(&scale, DType::kF32, {1});
  reading.x = make_view(shift_scratch_.data(), DType::kF32, {slot, shape_.head_dim});
  (void)dequantize(reading, execution);
  scale = raised;
  QuantizeProblem writing;
  writing.x = reading.x;
  writing.q = codes;
  writing.granularity = octavo::ScaleGranularity::kTensor;
  writing.scale = make_view(&scale, DType::kF32, {1});
  writing.scale_source = ScaleSource::kGiven;
  (void)quantize(writing, execution);
}

TensorView KvCache::pages_view(const Store& store) const {
  return make_view(store.values.as<std::byte>(), dtype_of(format_),
                   {num_pages_, kPageSize, shape_.num_kv_heads, shape_.head_dim});
}

void KvCache::set_keys_and_values(std::int64_t layer, AttentionProblem& problem) const {
  const std::array<Store, 2>& stores = layers_[static_cast<std::size_t>(layer)];
  problem.k = pages_view(stores[0]);
  problem.v = pages_view(stores[1]);
  problem.page_table = make_view(page_table_.data(), DType::kI32, {1, num_pages_});
  problem.kv_lengths = make_view(&end_as_length_, DType::kI32, {1});
  if (format_ != NumberFormat::kFp8) return;
  problem.k_scale_kind = AttentionScale::kPageHead;
  problem.v_scale_kind = AttentionScale::kPageHead;
  problem.k_scale =
      make_view(stores[0].scales.data(), DType::kF32, {num_pages_, shape_.num_kv_heads});
  problem.v_scale =
      make_view(stores[1].scales.data(), DType::kF32, {num_pages_, shape_.num_kv_heads});
}

}  // namespace octavo::llm
