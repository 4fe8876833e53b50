// SPDX-License-Identifier: Apache-2.0
// One group of a grouped product as a product by itself.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "octavo/grouped_gemm.hpp"

namespace octavo {

[[nodiscard]] inline bool is_masked(const GroupedGemmProblem& problem) {
  return problem.a.rank == 3;
}
[[nodiscard]] inline std::int64_t num_groups(const GroupedGemmProblem& problem) {
  return problem.b.shape[0];
}

// Rows [begin, begin + rows) of `a` and `d`, or of the group's matrices in them.
struct GroupRows {
  std::int64_t begin;
  std::int64_t rows;
};

// `begin`: where the group before this one ends. Lists in host memory; out of bounds they count as
// octavo/grouped_gemm.hpp says.
[[nodiscard]] inline GroupRows rows_of_group(const GroupedGemmProblem& problem, std::int64_t group,
                                             std::int64_t begin) {
  const auto at = [group](const TensorView& list) -> std::int64_t {
    return static_cast<const std::int32_t*>(list.data)[group];
  };
  const std::int64_t all = problem.a.shape[static_cast<std::size_t>(problem.a.rank - 2)];
  GroupRows result{0, all};
  if (!is_masked(problem)) {
    result = {begin, std::clamp(at(problem.group_ends), begin, all) - begin};
  }
  if (problem.group_rows.present()) {
    result.rows = std::clamp<std::int64_t>(at(problem.group_rows), 0, result.rows);
  }
  return result;
}

template <typename Pointer>
[[nodiscard]] BasicTensorView<Pointer> slice_of(BasicTensorView<Pointer> view,
                                                std::size_t dimension, std::int64_t begin,
                                                std::int64_t extent) {
  using Bytes = std::conditional_t<std::is_same_v<Pointer, void*>, std::byte*, const std::byte*>;
  view.data =
      static_cast<Bytes>(view.data) + begin * view.strides[dimension] * size_bytes(view.dtype);
  view.shape[dimension] = extent;
  return view;
}

// The tensor at `index` of the first dimension.
template <typename Pointer>
[[nodiscard]] BasicTensorView<Pointer> element_of(const BasicTensorView<Pointer>& view,
                                                  std::int64_t index) {
  if (view.absent()) return view;
  BasicTensorView<Pointer> one = slice_of(view, 0, index, 1);
  one.rank = view.rank - 1;
  for (std::size_t i = 0; i + 1 < view.shape.size(); ++i) {
    one.shape[i] = view.shape[i + 1];
    one.strides[i] = view.strides[i + 1];
  }
  return one;
}

// The product of a group that has these rows.
[[nodiscard]] inline GemmProblem problem_of_group(const GroupedGemmProblem& problem,
                                                  std::int64_t group, const GroupRows& rows) {
  GemmProblem one;
  one.a = problem.a;
  one.d = problem.d;
  one.a_scale = problem.a_scale;
  if (is_masked(problem)) {
    one.a = element_of(one.a, group);
    one.d = element_of(one.d, group);
    one.a_scale = element_of(one.a_scale, group);
  }
  one.a = slice_of(one.a, 0, rows.begin, rows.rows);
  one.d = slice_of(one.d, 0, rows.begin, rows.rows);
  const ScaleGranularity granularity = a_granularity(problem.recipe);
  if (one.a_scale.present() && granularity != ScaleGranularity::kTensor) {
    one.a_scale = slice_of(one.a_scale, 0, rows.begin, rows.rows);
  }
  one.b = element_of(problem.b, group);
  one.b_scale = element_of(problem.b_scale, group);
  one.bias = element_of(problem.bias, group);
  one.recipe = problem.recipe;
  one.accumulation = problem.accumulation;
  one.output_mode = problem.output_mode;
  one.num_splits = 1;
  return one;
}

}  // namespace octavo
