// SPDX-License-Identifier: Apache-2.0
#include "attention/attention_case.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numbers>
#include <stdexcept>
#include <string>

namespace octavo::testing {
namespace {

std::uint64_t mix(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xBF58476D1CE4E5B9ULL;
  x ^= x >> 27;
  x *= 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

void store(std::vector<std::uint8_t>& bytes, DType dtype, std::int64_t offset, float value) {
  const std::uint32_t code = encode(dtype, value);
  for (int i = 0; i < size_bytes(dtype); ++i) {
    bytes.at(static_cast<std::size_t>(offset * size_bytes(dtype) + i)) =
        static_cast<std::uint8_t>(code >> (8 * i));
  }
}

float load(const std::vector<std::uint8_t>& bytes, DType dtype, std::int64_t offset) {
  std::uint32_t code = 0;
  for (int i = 0; i < size_bytes(dtype); ++i) {
    code |= std::uint32_t{bytes.at(static_cast<std::size_t>(offset * size_bytes(dtype) + i))}
            << (8 * i);
  }
  return decode(dtype, code);
}

std::vector<std::int32_t> offsets_of(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int32_t> offsets{0};
  for (const std::int64_t length : lengths) {
    offsets.push_back(offsets.back() + static_cast<std::int32_t>(length));
  }
  return offsets;
}

TensorView index_view(const std::vector<std::int32_t>& values,
                      std::initializer_list<std::int64_t> shape) {
  return make_view(values.data(), DType::kI32, shape);
}

}  // namespace

float normal_at(std::uint32_t seed, std::int64_t sequence, std::int64_t row, std::int64_t head,
                std::int64_t dim) {
  std::uint64_t key = mix(seed + 0x9E3779B97F4A7C15ULL);
  for (const std::int64_t part : {sequence, row, head, dim}) {
    key = mix(key + static_cast<std::uint64_t>(part) * 0xD1B54A32D192ED03ULL + 1);
  }
  const double u1 = (static_cast<double>(key >> 40) + 1) * 0x1p-24;
  const double u2 = static_cast<double>(mix(key) >> 40) * 0x1p-24;
  return static_cast<float>(std::sqrt(-2 * std::log(u1)) * std::cos(2 * std::numbers::pi * u2));
}

AttentionCase::AttentionCase(const AttentionSetup& setup) : setup_(setup) {
  const auto batch = static_cast<std::int64_t>(setup.q_lengths.size());
  if (setup.k_lengths.size() != setup.q_lengths.size()) {
    throw std::logic_error("AttentionCase: q_lengths and k_lengths differ in size");
  }
  const std::int64_t hq = setup.num_q_heads;
  const std::int64_t hkv = setup.num_kv_heads;
  for (const std::int64_t length : setup.k_lengths) max_keys_ = std::max(max_keys_, length);
  q_offsets_ = offsets_of(setup.q_lengths);
  k_offsets_ = offsets_of(setup.k_lengths);
  const std::int64_t total_q = q_offsets_.back();
  for (const std::int64_t length : setup.k_lengths) {
    kv_lengths_.push_back(static_cast<std::int32_t>(length));
  }

  std::int64_t key_rows = 0;
  std::int64_t num_pages = 0;
  switch (setup.key_layout) {
    case KeyLayout::kDense:
      max_keys_ += 3;  // unused slots
      key_rows = batch * max_keys_;
      break;
    case KeyLayout::kVarlen: key_rows = k_offsets_.back(); break;
    case KeyLayout::kPaged:
      max_pages_ = (max_keys_ + setup.page_size - 1) / setup.page_size + 1;
      for (const std::int64_t length : setup.k_lengths) {
        num_pages += (length + setup.page_size - 1) / setup.page_size;
      }
      num_pages += 2;  // unused pages
      key_rows = num_pages * setup.page_size;
      page_table_.assign(static_cast<std::size_t>(batch * max_pages_), setup.poison_page);
      // From the last page but one down: no order that a table could be mistaken for.
      std::int32_t next = static_cast<std::int32_t>(num_pages) - 2;
      for (std::int64_t b = 0; b < batch; ++b) {
        const std::int64_t length = setup.k_lengths[static_cast<std::size_t>(b)];
        for (std::int64_t i = 0; i * setup.page_size < length; ++i) {
          page_table_[static_cast<std::size_t>(b * max_pages_ + i)] = next--;
        }
      }
      break;
  }

  const auto bytes = [](std::int64_t num_elems, DType dtype, std::uint8_t poison) {
    return std::vector<std::uint8_t>(static_cast<std::size_t>(num_elems * size_bytes(dtype)),
                                     poison);
  };
  q_ = bytes(total_q * hq * setup.dim_qk, setup.q_dtype, setup.poison_byte);
  k_ = bytes(key_rows * hkv * setup.dim_qk, setup.k_dtype, setup.poison_byte);
  v_ = bytes(key_rows * hkv * setup.dim_vo, setup.v_dtype, setup.poison_byte);
  o_ = bytes(total_q * hq * setup.dim_vo, setup.o_dtype, 0);
  lse_.assign(static_cast<std::size_t>(total_q * hq), 0);

  if (setup.query_layout == QueryLayout::kVarlen) {
    problem_.q = make_view(q_.data(), setup.q_dtype, {total_q, hq, setup.dim_qk});
    problem_.o = make_view(o_.data(), setup.o_dtype, {total_q, hq, setup.dim_vo});
    problem_.lse = make_view(lse_.data(), DType::kF32, {hq, total_q});
    problem_.q_offsets = index_view(q_offsets_, {batch + 1});
  } else {
    const std::int64_t sq = setup.q_lengths.empty() ? 0 : setup.q_lengths.front();
    problem_.q = make_view(q_.data(), setup.q_dtype, {batch, sq, hq, setup.dim_qk});
    problem_.o = make_view(o_.data(), setup.o_dtype, {batch, sq, hq, setup.dim_vo});
    problem_.lse = make_view(lse_.data(), DType::kF32, {batch, hq, sq});
  }
  switch (setup.key_layout) {
    case KeyLayout::kDense:
      problem_.k = make_view(k_.data(), setup.k_dtype, {batch, max_keys_, hkv, setup.dim_qk});
      problem_.v = make_view(v_.data(), setup.v_dtype, {batch, max_keys_, hkv, setup.dim_vo});
      problem_.kv_lengths = index_view(kv_lengths_, {batch});
      break;
    case KeyLayout::kVarlen:
      problem_.k = make_view(k_.data(), setup.k_dtype, {key_rows, hkv, setup.dim_qk});
      problem_.v = make_view(v_.data(), setup.v_dtype, {key_rows, hkv, setup.dim_vo});
      problem_.k_offsets = index_view(k_offsets_, {batch + 1});
      break;
    case KeyLayout::kPaged:
      problem_.k =
          make_view(k_.data(), setup.k_dtype, {num_pages, setup.page_size, hkv, setup.dim_qk});
      problem_.v =
          make_view(v_.data(), setup.v_dtype, {num_pages, setup.page_size, hkv, setup.dim_vo});
      problem_.kv_lengths = index_view(kv_lengths_, {batch});
      problem_.page_table = index_view(page_table_, {batch, max_pages_});
      break;
  }

  const auto make_scales = [&](AttentionScale kind, std::int64_t heads, std::vector<float>& values,
                               AttentionScale& problem_kind, TensorView& view) {
    problem_kind = kind;
    const auto ones = [&](std::int64_t n) { values.assign(static_cast<std::size_t>(n), 1.0F); };
    switch (kind) {
      case AttentionScale::kNone: break;
      case AttentionScale::kTensor:
        ones(1);
        view = make_view(values.data(), DType::kF32, {1});
        break;
      case AttentionScale::kHead:
        ones(heads);
        view = make_view(values.data(), DType::kF32, {heads});
        break;
      case AttentionScale::kBatchHead:
        ones(batch * heads);
        view = make_view(values.data(), DType::kF32, {batch, heads});
        break;
      case AttentionScale::kPageHead: {
        // Scales of unused pages are NaN.
        values.assign(static_cast<std::size_t>(num_pages * heads),
                      std::numeric_limits<float>::quiet_NaN());
        for (std::int64_t i = 1; i + 1 < num_pages; ++i) {
          for (std::int64_t h = 0; h < heads; ++h) {
            values[static_cast<std::size_t>(i * heads + h)] = 1;
          }
        }
        view = make_view(values.data(), DType::kF32, {num_pages, heads});
        break;
      }
    }
  };
  make_scales(setup.q_scale, hq, q_scales_, problem_.q_scale_kind, problem_.q_scale);
  make_scales(setup.k_scale, hkv, k_scales_, problem_.k_scale_kind, problem_.k_scale);
  make_scales(setup.v_scale, hkv, v_scales_, problem_.v_scale_kind, problem_.v_scale);

  const auto normal = [&](std::uint32_t which) {
    return [this, which](std::int64_t b, std::int64_t row, std::int64_t head, std::int64_t dim) {
      return normal_at(3 * setup_.seed + which, b, row, head, dim);
    };
  };
  if (setup.seed == 0) return;
  fill_q(normal(0));
  fill_k(normal(1));
  fill_v(normal(2));
}

void AttentionCase::set_scales(const ScaleFn& q_scale, const ScaleFn& k_scale,
                               const ScaleFn& v_scale) {
  const auto set = [](std::vector<float>& values, AttentionScale kind, std::int64_t heads,
                      const ScaleFn& scale) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      if (std::isnan(values[i])) continue;  // an unused page
      const auto idx = static_cast<std::int64_t>(i);
      values[i] = kind == AttentionScale::kTensor ? scale(0, 0) : scale(idx / heads, idx % heads);
    }
  };
  if (q_scale) set(q_scales_, setup_.q_scale, setup_.num_q_heads, q_scale);
  if (k_scale) set(k_scales_, setup_.k_scale, setup_.num_kv_heads, k_scale);
  if (v_scale) set(v_scales_, setup_.v_scale, setup_.num_kv_heads, v_scale);
}

float AttentionCase::scale(const std::vector<float>& scales, AttentionScale kind,
                           std::int64_t num_heads, std::int64_t sequence, std::int64_t row,
                           std::int64_t head) const {
  const auto at = [&](std::int64_t i) { return scales.at(static_cast<std::size_t>(i)); };
  switch (kind) {
    case AttentionScale::kNone: return 1;
    case AttentionScale::kTensor: return at(0);
    case AttentionScale::kHead: return at(head);
    case AttentionScale::kBatchHead: return at(sequence * num_heads + head);
    case AttentionScale::kPageHead:
      return at(key_row(sequence, row) / setup_.page_size * num_heads + head);
  }
  return 1;
}

std::int64_t AttentionCase::key_row(std::int64_t sequence, std::int64_t row) const {
  switch (setup_.key_layout) {
    case KeyLayout::kDense: return sequence * max_keys_ + row;
    case KeyLayout::kVarlen: return k_offsets_.at(static_cast<std::size_t>(sequence)) + row;
    case KeyLayout::kPaged: break;
  }
  const std::int64_t page =
      page_table_.at(static_cast<std::size_t>(sequence * max_pages_ + row / setup_.page_size));
  return page * setup_.page_size + row % setup_.page_size;
}

std::int64_t AttentionCase::q_row(std::int64_t sequence, std::int64_t row,
                                  std::int64_t head) const {
  const std::int64_t first = q_offsets_.at(static_cast<std::size_t>(sequence));
  return ((first + row) * setup_.num_q_heads + head) * setup_.dim_qk;
}

std::int64_t AttentionCase::k_row(std::int64_t sequence, std::int64_t row,
                                  std::int64_t head) const {
  return (key_row(sequence, row) * setup_.num_kv_heads + head) * setup_.dim_qk;
}

std::int64_t AttentionCase::v_row(std::int64_t sequence, std::int64_t row,
                                  std::int64_t head) const {
  return (key_row(sequence, row) * setup_.num_kv_heads + head) * setup_.dim_vo;
}

void AttentionCase::fill_q(const ElementFn& value) {
  for (std::size_t b = 0; b < setup_.q_lengths.size(); ++b) {
    const auto seq = static_cast<std::int64_t>(b);
    for (std::int64_t row = 0; row < setup_.q_lengths[b]; ++row) {
      for (std::int64_t head = 0; head < setup_.num_q_heads; ++head) {
        const float scale_here =
            scale(q_scales_, setup_.q_scale, setup_.num_q_heads, seq, row, head);
        for (std::int64_t dim = 0; dim < setup_.dim_qk; ++dim) {
          store(q_, setup_.q_dtype, q_row(seq, row, head) + dim,
                value(seq, row, head, dim) / scale_here);
        }
      }
    }
  }
}

void AttentionCase::fill_k(const ElementFn& value) {
  for (std::size_t b = 0; b < setup_.k_lengths.size(); ++b) {
    const auto seq = static_cast<std::int64_t>(b);
    for (std::int64_t row = 0; row < setup_.k_lengths[b]; ++row) {
      for (std::int64_t head = 0; head < setup_.num_kv_heads; ++head) {
        const float scale_here =
            scale(k_scales_, setup_.k_scale, setup_.num_kv_heads, seq, row, head);
        for (std::int64_t dim = 0; dim < setup_.dim_qk; ++dim) {
          store(k_, setup_.k_dtype, k_row(seq, row, head) + dim,
                value(seq, row, head, dim) / scale_here);
        }
      }
    }
  }
}

void AttentionCase::fill_v(const ElementFn& value) {
  for (std::size_t b = 0; b < setup_.k_lengths.size(); ++b) {
    const auto seq = static_cast<std::int64_t>(b);
    for (std::int64_t row = 0; row < setup_.k_lengths[b]; ++row) {
      for (std::int64_t head = 0; head < setup_.num_kv_heads; ++head) {
        const float scale_here =
            scale(v_scales_, setup_.v_scale, setup_.num_kv_heads, seq, row, head);
        for (std::int64_t dim = 0; dim < setup_.dim_vo; ++dim) {
          store(v_, setup_.v_dtype, v_row(seq, row, head) + dim,
                value(seq, row, head, dim) / scale_here);
        }
      }
    }
  }
}

AttentionResult AttentionCase::run(Numerics numerics, int num_threads) {
  std::fill(o_.begin(), o_.end(), 0x7F);
  std::fill(lse_.begin(), lse_.end(), std::numeric_limits<float>::quiet_NaN());
  Execution execution;
  execution.backend = "cpu";
  execution.numerics = numerics;
  execution.num_threads = num_threads;
  attention(problem_, execution);

  const std::int64_t hq = setup_.num_q_heads;
  const std::int64_t total_q = q_offsets_.back();
  AttentionResult result;
  for (std::int64_t i = 0; i < total_q * hq * setup_.dim_vo; ++i) {
    result.o.push_back(load(o_, setup_.o_dtype, i));
  }
  for (std::size_t b = 0; b < setup_.q_lengths.size(); ++b) {
    for (std::int64_t row = 0; row < setup_.q_lengths[b]; ++row) {
      for (std::int64_t head = 0; head < hq; ++head) {
        const std::int64_t offset =
            setup_.query_layout == QueryLayout::kVarlen
                ? head * total_q + q_offsets_[b] + row
                : (static_cast<std::int64_t>(b) * hq + head) * setup_.q_lengths[b] + row;
        result.lse.push_back(lse_.at(static_cast<std::size_t>(offset)));
      }
    }
  }
  return result;
}

AttentionResult AttentionCase::by_definition() {
  const double softmax_scale = problem_.softmax_scale != 0
                                   ? problem_.softmax_scale
                                   : 1 / std::sqrt(static_cast<double>(setup_.dim_qk));
  const double o_scale =
      problem_.o_scale.absent() ? 1.0 : *static_cast<const float*>(problem_.o_scale.data);
  const std::int64_t group = setup_.num_q_heads / setup_.num_kv_heads;
  const auto decoded = [](const std::vector<std::uint8_t>& bytes, DType dtype) {
    std::vector<double> values;
    const auto num_elems = static_cast<std::int64_t>(bytes.size()) / size_bytes(dtype);
    for (std::int64_t i = 0; i < num_elems; ++i) values.push_back(load(bytes, dtype, i));
    return values;
  };
  const std::vector<double> q = decoded(q_, setup_.q_dtype);
  const std::vector<double> k = decoded(k_, setup_.k_dtype);
  const std::vector<double> v = decoded(v_, setup_.v_dtype);
  const auto row_at = [](const std::vector<double>& values, std::int64_t offset) {
    return values.data() + offset;
  };
  AttentionResult result;
  for (std::int64_t b = 0; b < static_cast<std::int64_t>(setup_.q_lengths.size()); ++b) {
    const std::int64_t sq = setup_.q_lengths[static_cast<std::size_t>(b)];
    const std::int64_t sk = setup_.k_lengths[static_cast<std::size_t>(b)];
    for (std::int64_t i = 0; i < sq; ++i) {
      for (std::int64_t h = 0; h < setup_.num_q_heads; ++h) {
        std::vector<double> weights;
        std::vector<std::int64_t> seen;
        const std::int64_t own = i + sk - sq;
        for (std::int64_t j = 0; j < sk; ++j) {
          if (problem_.mask == AttentionMask::kCausal && j > own) continue;
          if (problem_.window_left >= 0 && own - j > problem_.window_left) continue;
          if (problem_.window_right >= 0 && j - own > problem_.window_right) continue;
          double score = 0;
          const double* q_values = row_at(q, q_row(b, i, h));
          const double* k_values = row_at(k, k_row(b, j, h / group));
          for (std::int64_t d = 0; d < setup_.dim_qk; ++d) score += q_values[d] * k_values[d];
          score *= softmax_scale * scale(q_scales_, setup_.q_scale, setup_.num_q_heads, b, i, h) *
                   scale(k_scales_, setup_.k_scale, setup_.num_kv_heads, b, j, h / group);
          if (problem_.softcap > 0) score = problem_.softcap * std::tanh(score / problem_.softcap);
          weights.push_back(score);
          seen.push_back(j);
        }
        std::vector<double> o(static_cast<std::size_t>(setup_.dim_vo), 0.0);
        if (seen.empty()) {
          result.o.insert(result.o.end(), o.begin(), o.end());
          result.lse.push_back(-std::numeric_limits<float>::infinity());
          continue;
        }
        const double largest = *std::max_element(weights.begin(), weights.end());
        double sum = 0;
        for (double& weight : weights) sum += weight = std::exp(weight - largest);
        for (std::size_t n = 0; n < seen.size(); ++n) {
          const double v_scale =
              scale(v_scales_, setup_.v_scale, setup_.num_kv_heads, b, seen[n], h / group);
          const double* v_values = row_at(v, v_row(b, seen[n], h / group));
          for (std::int64_t d = 0; d < setup_.dim_vo; ++d) {
            o[static_cast<std::size_t>(d)] += weights[n] / sum * v_scale * v_values[d];
          }
        }
        for (const double value : o) result.o.push_back(static_cast<float>(value / o_scale));
        result.lse.push_back(static_cast<float>(largest + std::log(sum)));
      }
    }
  }
  return result;
}

INSTANTIATE_TEST_SUITE_P(Cpu, Attention,
                         ::testing::Values(Numerics::kReference, Numerics::kEmulated,
                                           Numerics::kBlocked),
                         [](const auto& tested) { return std::string(to_string(tested.param)); });

bool full_level() {
  const char* level = std::getenv("OCTAVO_TEST_LEVEL");
  return level != nullptr && std::string(level) == "full";
}

double relative_error(const std::vector<float>& result, const std::vector<float>& reference) {
  if (result.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double difference = 0;
  double size = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (!std::isfinite(reference[i])) {
      if (result[i] == reference[i]) continue;  // the same infinity
      return std::numeric_limits<double>::infinity();
    }
    if (!std::isfinite(result[i])) return std::numeric_limits<double>::infinity();
    const double delta = static_cast<double>(result[i]) - reference[i];
    difference += delta * delta;
    size += static_cast<double>(reference[i]) * reference[i];
  }
  return size == 0 ? std::sqrt(difference) : std::sqrt(difference / size);
}

double largest_difference(const std::vector<float>& result, const std::vector<float>& reference) {
  if (result.size() != reference.size()) return std::numeric_limits<double>::infinity();
  double largest = 0;
  for (std::size_t i = 0; i < result.size(); ++i) {
    if (result[i] == reference[i]) continue;
    const double delta = std::abs(static_cast<double>(result[i]) - reference[i]);
    if (!(delta <= largest)) largest = delta;
    if (std::isnan(largest)) return std::numeric_limits<double>::infinity();
  }
  return largest;
}

bool same_bits(const std::vector<float>& result, const std::vector<float>& reference) {
  return result.size() == reference.size() &&
         std::equal(result.begin(), result.end(), reference.begin(), [](float a, float b) {
           return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
         });
}

}  // namespace octavo::testing
