// SPDX-License-Identifier: Apache-2.0
// What several products of one call must agree on, beside the rules of each.
#include <fmt/format.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "api/validate.hpp"
#include "api/view_memory.hpp"

namespace octavo {
namespace {

// A tensor of a problem and the addresses of its memory.
struct Placed {
  std::size_t problem;
  const char* name;
  TensorView view;
  ByteSpan span;
  std::uintptr_t begin;
  std::uintptr_t end;
};

void place(std::size_t index, const GemmProblem& problem, std::vector<Placed>& tensors) {
  const std::array<std::pair<const char*, TensorView>, 7> views{{{"d", problem.d},
                                                                 {"a", problem.a},
                                                                 {"b", problem.b},
                                                                 {"a_scale", problem.a_scale},
                                                                 {"b_scale", problem.b_scale},
                                                                 {"bias", problem.bias},
                                                                 {"d_scale", problem.d_scale}}};
  for (const auto& [name, view] : views) {
    if (view.absent()) continue;
    Placed placed{index, name, view, {}, 0, 0};
    (void)examine(view, &placed.span);
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    placed.begin = address + static_cast<std::uintptr_t>(placed.span.begin);
    placed.end = address + static_cast<std::uintptr_t>(placed.span.end);
    tensors.push_back(placed);
  }
}

}  // namespace

Status validate(std::span<const GemmProblem> problems) {
  std::vector<Placed> tensors;
  for (std::size_t i = 0; i < problems.size(); ++i) {
    if (const Status status = validate(problems[i]); !status.ok()) {
      return in_words_of(fmt::format("fused_gemm: problems[{}]: ", i), status.error());
    }
    if (problems[i].a.device != problems[0].a.device) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("fused_gemm: problems[0] is on {} and problems[{}] on {}; all of a "
                      "call must be on one device. Make a call for each device.",
                      to_string(problems[0].a.device), i, to_string(problems[i].a.device)));
    }
    place(i, problems[i], tensors);
  }
  for (const Placed& d : tensors) {
    if (d.name != tensors.front().name) continue;  // every problem's first is its d
    for (const Placed& other : tensors) {
      if (other.problem == d.problem || other.begin >= d.end || d.begin >= other.end) continue;
      if (!may_overlap(d.view, d.span, other.view, other.span)) continue;
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("fused_gemm: problems[{}].d overlaps problems[{}].{} in memory; products of "
                      "a call are computed in any order. Give d memory of its own, or make two "
                      "calls.",
                      d.problem, other.problem, other.name));
    }
  }
  return Ok{};
}

}  // namespace octavo
