// SPDX-License-Identifier: Apache-2.0
// A grouped product with random operands that owns its memory, and its groups as products by
// themselves, cut out by hand.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "octavo/grouped_gemm.hpp"
#include "support/gemm_data.hpp"
#include "support/host_tensor.hpp"

namespace octavo::test {

struct GroupedSpec {
  std::vector<std::int64_t> rows;  // of each group
  std::int64_t n = 1;
  std::int64_t k = 1;
  std::int64_t capacity = 0;  // above 0: masked
  std::int64_t gap = 0;       // rows behind each group that are skipped
  std::int64_t rest = 0;      // rows behind the last group that belong to none
  DType d = DType::kF32;
  ScaleRecipe recipe = ScaleRecipe::kBlock;
  DType scale = DType::kF32;
  Accumulation accumulation = Accumulation::kPromoted;
  OutputMode output_mode = OutputMode::kOverwrite;
  bool bias = false;
  bool scales_by_k_block = false;  // neighbouring rows of a_scale adjacent
  Data data = Data::kGaussian;
  std::int64_t expected_rows = 0;
  std::uint64_t seed = 1;
};

[[nodiscard]] inline std::string to_string(const GroupedSpec& spec) {
  std::ostringstream text;
  text << "rows";
  for (const std::int64_t rows : spec.rows) text << ' ' << rows;
  text << ", N " << spec.n << ", K " << spec.k << ", capacity " << spec.capacity << ", gap "
       << spec.gap << ", rest " << spec.rest << ", " << to_string(spec.recipe) << ", "
       << to_string(spec.accumulation) << ", scales " << to_string(spec.scale)
       << (spec.scales_by_k_block ? " by K-block" : "") << ", D " << to_string(spec.d)
       << (spec.bias ? ", bias" : "")
       << (spec.output_mode == OutputMode::kAccumulate ? ", accumulate" : "") << ", expected "
       << spec.expected_rows << ", seed " << spec.seed;
  return text.str();
}

struct GroupedData {
  GroupedSpec spec;
  HostTensor a, b, d, a_scale, b_scale, bias, ends, counts;
  std::vector<std::int64_t> begins;  // contiguous: of each group

  explicit GroupedData(const GroupedSpec& given) : spec(given) {
    std::mt19937_64 random(spec.seed);
    const auto groups = static_cast<std::int64_t>(spec.rows.size());
    ends = HostTensor(DType::kI32, {groups});
    counts = HostTensor(DType::kI32, {groups});
    std::int64_t all = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
      const std::int64_t rows = spec.rows[static_cast<std::size_t>(g)];
      begins.push_back(all);
      all += rows + spec.gap;
      set_list(ends, g, all);
      set_list(counts, g, rows);
    }
    all += spec.rest;
    a = HostTensor(DType::kE4M3, stacked(all, spec.k));
    d = HostTensor(spec.d, stacked(all, spec.n));
    b = HostTensor(DType::kE4M3, {groups, spec.n, spec.k});
    randomize(a, spec.data, random);
    randomize(b, spec.data, random);
    if (spec.output_mode == OutputMode::kAccumulate) {
      randomize(d, Data::kGaussian, random);
    } else {
      d.fill_bytes(0xFF);
    }
    a_scale = scales(a_granularity(spec.recipe), spec.capacity > 0 ? groups : -1,
                     spec.capacity > 0 ? spec.capacity : all, spec.scales_by_k_block, random);
    b_scale = scales(b_granularity(spec.recipe), groups, spec.n, false, random);
    if (spec.bias) {
      bias = HostTensor(DType::kF32, {groups, spec.n});
      randomize(bias, Data::kGaussian, random);
    }
  }

  [[nodiscard]] GroupedGemmProblem problem() {
    GroupedGemmProblem p;
    p.a = a.view();
    p.b = b.view();
    p.d = d.view();
    p.recipe = spec.recipe;
    p.a_scale = a_scale.view();
    if (is_transposed()) {
      const int last = p.a_scale.rank - 1;
      p.a_scale = transposed(p.a_scale, last - 1, last);
    }
    p.b_scale = b_scale.view();
    p.accumulation = spec.accumulation;
    p.output_mode = spec.output_mode;
    p.bias = bias.view();
    if (spec.capacity == 0) p.group_ends = ends.view();
    if (spec.capacity > 0 || spec.gap > 0) p.group_rows = counts.view();
    p.expected_rows = spec.expected_rows;
    return p;
  }

  // Group g of problem(), as a product on the same memory.
  [[nodiscard]] GemmProblem group(std::int64_t g) {
    const GroupedGemmProblem all = problem();
    const bool masked = spec.capacity > 0;
    const std::int64_t rows = spec.rows[static_cast<std::size_t>(g)];
    const std::int64_t first = masked ? g * spec.capacity : begins[static_cast<std::size_t>(g)];
    GemmProblem p;
    p.a = make_view(static_cast<const std::uint8_t*>(all.a.data) + first * spec.k, DType::kE4M3,
                    {rows, spec.k});
    p.b = make_view(static_cast<const std::uint8_t*>(all.b.data) + g * spec.n * spec.k,
                    DType::kE4M3, {spec.n, spec.k});
    p.d = make_view(static_cast<std::uint8_t*>(all.d.data) + first * spec.n * size_bytes(spec.d),
                    spec.d, {rows, spec.n});
    p.recipe = spec.recipe;
    p.accumulation = spec.accumulation;
    p.output_mode = spec.output_mode;
    if (all.bias.present()) {
      p.bias =
          make_view(static_cast<const float*>(all.bias.data) + g * spec.n, DType::kF32, {spec.n});
    }
    p.num_splits = 1;
    const std::int64_t scale_bytes = size_bytes(spec.scale);
    if (all.a_scale.present()) {
      p.a_scale = all.a_scale;
      const auto* data = static_cast<const std::uint8_t*>(p.a_scale.data);
      const bool per_tensor = a_granularity(spec.recipe) == ScaleGranularity::kTensor;
      if (masked) {
        data += g * p.a_scale.strides[0] * scale_bytes;
        for (std::size_t i = 0; i + 1 < kMaxRank; ++i) {
          p.a_scale.shape[i] = p.a_scale.shape[i + 1];
          p.a_scale.strides[i] = p.a_scale.strides[i + 1];
        }
        --p.a_scale.rank;
      } else if (!per_tensor) {
        data += first * p.a_scale.strides[0] * scale_bytes;
      }
      p.a_scale.data = data;
      if (!per_tensor) p.a_scale.shape[0] = rows;
    }
    if (all.b_scale.present()) {
      p.b_scale = all.b_scale;
      p.b_scale.data =
          static_cast<const std::uint8_t*>(p.b_scale.data) + g * p.b_scale.strides[0] * scale_bytes;
      for (std::size_t i = 0; i + 1 < kMaxRank; ++i) {
        p.b_scale.shape[i] = p.b_scale.shape[i + 1];
        p.b_scale.strides[i] = p.b_scale.strides[i + 1];
      }
      --p.b_scale.rank;
    }
    return p;
  }

  static void set_list(HostTensor& list, std::int64_t position, std::int64_t value) {
    const auto word = static_cast<std::int32_t>(value);
    std::memcpy(list.bytes().data() + position * static_cast<std::int64_t>(sizeof(word)), &word,
                sizeof(word));
  }

 private:
  [[nodiscard]] bool is_transposed() const {
    return spec.scales_by_k_block && is_block_scaled(spec.recipe);
  }
  [[nodiscard]] std::vector<std::int64_t> stacked(std::int64_t all, std::int64_t columns) const {
    if (spec.capacity == 0) return {all, columns};
    return {static_cast<std::int64_t>(spec.rows.size()), spec.capacity, columns};
  }

  // `groups`: -1 for none of that dimension.
  [[nodiscard]] HostTensor scales(ScaleGranularity granularity, std::int64_t groups,
                                  std::int64_t rows, bool by_k_block,
                                  std::mt19937_64& random) const {
    if (granularity == ScaleGranularity::kNone) return {};
    const ScaleShape extents = scale_shape(granularity, rows, spec.k);
    std::vector<std::int64_t> shape;
    if (groups >= 0) shape.push_back(groups);
    if (by_k_block && is_block_scaled(spec.recipe)) {
      shape.insert(shape.end(), {extents.cols, extents.rows});
    } else {
      shape.push_back(extents.rows);
      if (is_block_scaled(spec.recipe)) shape.push_back(extents.cols);
    }
    HostTensor scale(spec.scale, shape);
    std::uniform_real_distribution<float> exponent(-2.0F, 2.0F);
    for (std::int64_t i = 0; i < scale.size(); ++i) scale.set(i, std::exp2(exponent(random)));
    return scale;
  }
};

}  // namespace octavo::test
