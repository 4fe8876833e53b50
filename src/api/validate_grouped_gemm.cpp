// SPDX-License-Identifier: Apache-2.0
// Every rule about a grouped product's arguments beside those of a product, which it is checked
// against with a stand-in for the other side: `a` and `d` once, `b` once.
#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <string>

#include "api/validate.hpp"
#include "api/view_memory.hpp"
#include "api/view_text.hpp"
#include "backend/group_problem.hpp"
#include "octavo/grouped_gemm.hpp"
#include "octavo/scale.hpp"

namespace octavo {
namespace {

template <typename... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kInvalidArgument,
          "grouped_gemm: " + fmt::format(format, std::forward<Args>(args)...)};
}

// The rules of a product, in its words but for the name of the call.
Status validate_as_product(const GemmProblem& problem) {
  const Status status = validate(problem);
  if (!status.ok()) return in_words_of("grouped_gemm: ", status.error());
  return Ok{};
}

// One element in the place of a tensor of any shape, which nothing reads but a check of scales.
alignas(16) constexpr std::array<float, 4> kStandInMemory{1, 1, 1, 1};

TensorView stand_in(DType dtype, Device device, bool batched, std::int64_t batch, std::int64_t rows,
                    std::int64_t cols) {
  TensorView view;
  view.data = kStandInMemory.data();
  view.dtype = dtype;
  view.device = device;
  view.rank = batched ? 3 : 2;
  view.shape = batched ? std::array<std::int64_t, kMaxRank>{batch, rows, cols}
                       : std::array<std::int64_t, kMaxRank>{rows, cols};
  return view;
}

TensorView stand_in_scale(ScaleGranularity granularity, const TensorView& operand) {
  if (granularity == ScaleGranularity::kNone || !is_fp8(operand.dtype)) return {};
  const bool batched = operand.rank == 3;
  const auto row = static_cast<std::size_t>(operand.rank - 2);
  const ScaleShape shape = scale_shape(granularity, operand.shape[row], operand.shape[row + 1]);
  TensorView view =
      stand_in(DType::kF32, operand.device, batched, operand.shape[0], shape.rows, shape.cols);
  if (granularity == ScaleGranularity::kTensor) --view.rank;
  return view;
}

Status check_ranks(const GroupedGemmProblem& problem) {
  const TensorView& a = problem.a;
  const TensorView& b = problem.b;
  if (a.rank != 2 && a.rank != 3) {
    return refuse(
        "a has shape {}; it is [rows, K], all groups one after another, or [groups, capacity, K].",
        shape_text(a));
  }
  if (b.rank != 3) {
    return refuse("b has shape {}; it is [groups, N, K], one matrix for each group.",
                  shape_text(b));
  }
  if (a.rank == 3 && a.shape[0] != b.shape[0]) {
    return refuse(
        "a has shape {} and b {}; with a matrix for each group their first extents must be equal. "
        "For groups one after another pass a as [rows, K], with group_ends.",
        shape_text(a), shape_text(b));
  }
  return Ok{};
}

Status check_bias(const GroupedGemmProblem& problem) {
  const TensorView& bias = problem.bias;
  if (bias.absent()) return Ok{};
  if (!is_16bit(bias.dtype) && bias.dtype != DType::kF32) {
    return refuse("bias has dtype {}; it may be bf16, f16 or f32. Convert it.",
                  to_string(bias.dtype));
  }
  if (bias.rank != 2 || bias.shape[0] != problem.b.shape[0] ||
      bias.shape[1] != problem.b.shape[1]) {
    return refuse("bias has shape {}; with b {} it needs [{}, {}], one row for each group.",
                  shape_text(bias), shape_text(problem.b), problem.b.shape[0], problem.b.shape[1]);
  }
  return Ok{};
}

Status check_list(const char* name, const TensorView& list, std::int64_t groups) {
  if (list.absent()) return Ok{};
  if (list.dtype != DType::kI32) {
    return refuse("{} has dtype {}; rows are counted in i32. Convert it.", name,
                  to_string(list.dtype));
  }
  if (list.rank != 1 || list.shape[0] != groups || !list.contiguous()) {
    return refuse(
        "{} has shape {} and strides {}; with {} groups it needs [{}], its values adjacent.", name,
        shape_text(list), strides_text(list), groups, groups);
  }
  return Ok{};
}

// Which lists there must be, and their values where they can be looked at.
Status check_lists(const GroupedGemmProblem& problem) {
  const std::int64_t groups = problem.b.shape[0];
  if (Status s = check_list("group_ends", problem.group_ends, groups); !s.ok()) return s;
  if (Status s = check_list("group_rows", problem.group_rows, groups); !s.ok()) return s;
  if (is_masked(problem)) {
    if (problem.group_ends.present()) {
      return refuse(
          "group_ends is given and a has shape {}; groups with a matrix each have no ends. Pass "
          "their numbers of rows as group_rows.",
          shape_text(problem.a));
    }
    if (problem.group_rows.absent()) {
      return refuse(
          "group_rows is absent and a has shape {}; say how many of each group's rows are in use. "
          "If all are, gemm() multiplies such a batch.",
          shape_text(problem.a));
    }
  } else if (problem.group_ends.absent()) {
    return refuse(
        "group_ends is absent and a has shape {}; say where each group's rows end. For a matrix "
        "for each group pass a as [groups, capacity, K].",
        shape_text(problem.a));
  }
  if (problem.expected_rows < 0) {
    return refuse("expected_rows is {}; it is a number of rows, or 0 for no guess.",
                  problem.expected_rows);
  }
  if (problem.a.device.kind != DeviceKind::kCpu) return Ok{};
  const std::int64_t all = problem.a.shape[static_cast<std::size_t>(problem.a.rank - 2)];
  std::int64_t begin = 0;
  for (std::int64_t group = 0; group < groups; ++group) {
    std::int64_t room = all;
    if (!is_masked(problem)) {
      const std::int64_t end = static_cast<const std::int32_t*>(problem.group_ends.data)[group];
      if (end < begin || end > all) {
        return refuse(
            "group_ends[{}] is {}; with {} rows and the group before it ending at {} it must be "
            "from {} to {}. An empty group ends where it begins.",
            group, end, all, begin, begin, all);
      }
      room = end - begin;
      begin = end;
    }
    if (problem.group_rows.absent()) continue;
    const std::int64_t rows = static_cast<const std::int32_t*>(problem.group_rows.data)[group];
    if (rows < 0 || rows > room) {
      return refuse(
          "group_rows[{}] is {}; the group has room for {} rows, so it must be from 0 to {}.",
          group, rows, room, room);
    }
  }
  return Ok{};
}

Status check_memory(const GroupedGemmProblem& problem) {
  struct Argument {
    const char* name;
    TensorView view;
  };
  const std::array others{Argument{"b", problem.b}, Argument{"b_scale", problem.b_scale},
                          Argument{"bias", problem.bias},
                          Argument{"group_ends", problem.group_ends},
                          Argument{"group_rows", problem.group_rows}};
  ByteSpan d_span;
  (void)examine(problem.d, &d_span);  // found sound as a product's
  for (const Argument& other : others) {
    if (other.view.absent()) continue;
    if (other.view.device != problem.a.device) {
      return refuse(
          "a is on {} and {} is on {}; all tensors of a call must be on one device. Copy one of "
          "them.",
          to_string(problem.a.device), other.name, to_string(other.view.device));
    }
    ByteSpan span;
    if (examine(other.view, &span) != ViewFault::kNone) {
      return refuse(
          "{} has shape {} and strides {}; it needs memory for its elements, within 2^63 bytes.",
          other.name, shape_text(other.view), strides_text(other.view));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(other.view.data);
    const auto alignment = static_cast<std::uintptr_t>(size_bytes(other.view.dtype));
    if (span.begin != span.end && address % alignment != 0) {
      return refuse(
          "{} begins {} bytes past a multiple of {}; {} elements must be aligned to "
          "their size. Move the data, or correct the dtype.",
          other.name, address % alignment, alignment, to_string(other.view.dtype));
    }
    if (may_overlap(problem.d, d_span, other.view, span)) {
      return refuse(
          "d overlaps {} in memory; what d would hold then depends on the order of writing. Give d "
          "memory of its own.",
          other.name);
    }
  }
  return Ok{};
}

}  // namespace

Status validate(const GroupedGemmProblem& problem) {
  if (Status s = check_ranks(problem); !s.ok()) return s;
  const bool masked = is_masked(problem);
  const TensorView& b = problem.b;
  GemmProblem rows;
  rows.a = problem.a;
  rows.d = problem.d;
  rows.a_scale = problem.a_scale;
  rows.b = stand_in(b.dtype, problem.a.device, masked, problem.a.shape[0], b.shape[1], b.shape[2]);
  rows.recipe = problem.recipe;
  rows.b_scale = stand_in_scale(b_granularity(problem.recipe), rows.b);
  rows.accumulation = problem.accumulation;
  rows.output_mode = problem.output_mode;
  rows.num_splits = 1;
  if (Status s = validate_as_product(rows); !s.ok()) return s;
  GemmProblem weights = rows;
  weights.a = stand_in(problem.a.dtype, b.device, true, b.shape[0], 0, b.shape[2]);
  weights.a_scale = stand_in_scale(a_granularity(problem.recipe), weights.a);
  weights.b = b;
  weights.b_scale = problem.b_scale;
  weights.d = {};
  weights.d.dtype = problem.d.dtype;
  weights.d.device = b.device;
  weights.d.rank = 3;
  weights.d.shape = {b.shape[0], 0, b.shape[1]};
  if (Status s = validate_as_product(weights); !s.ok()) return s;
  if (Status s = check_bias(problem); !s.ok()) return s;
  if (Status s = check_memory(problem); !s.ok()) return s;
  return check_lists(problem);
}

}  // namespace octavo
