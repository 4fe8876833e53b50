// SPDX-License-Identifier: Apache-2.0
// Every rule about attention's arguments, in the order they are checked: reading this file is
// reading the contract. Nothing here allocates unless a rule is broken. Contents of index and scale
// tensors are checked where the host can read them; those in device memory cannot be.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "api/validate.hpp"
#include "api/view_memory.hpp"
#include "api/view_text.hpp"

namespace octavo {
namespace {

constexpr std::int64_t kMaxHeadDim = 1024;
// Lengths are 32-bit wherever they are given in a tensor, and so everywhere.
constexpr std::int64_t kMaxLength = std::numeric_limits<std::int32_t>::max();
// As for quantize(): inside these bounds both a scale and its reciprocal are normal, so that the
// scale that a cache was written with is one that it can be read with.
constexpr float kMinScale = 0x1p-126F;
constexpr float kMaxScale = 0x1p126F;

template <typename... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kInvalidArgument,
          "attention: " + fmt::format(format, std::forward<Args>(args)...)};
}

struct Argument {
  const char* name;
  TensorView view;
  ByteSpan span;
};

// Every view of a problem, by its name.
using Arguments = std::array<Argument, 13>;
constexpr std::size_t kOutput = 3;  // positions of o and lse in Arguments
constexpr std::size_t kLse = 4;

Arguments arguments_of(const AttentionProblem& p) {
  return {Argument{"q", p.q, {}},
          Argument{"k", p.k, {}},
          Argument{"v", p.v, {}},
          Argument{"o", p.o, {}},
          Argument{"lse", p.lse, {}},
          Argument{"q_offsets", p.q_offsets, {}},
          Argument{"k_offsets", p.k_offsets, {}},
          Argument{"kv_lengths", p.kv_lengths, {}},
          Argument{"page_table", p.page_table, {}},
          Argument{"q_scale", p.q_scale, {}},
          Argument{"k_scale", p.k_scale, {}},
          Argument{"v_scale", p.v_scale, {}},
          Argument{"o_scale", p.o_scale, {}}};
}

// The extents all tensors agree on.
struct Extents {
  std::int64_t batch = 0;
  std::int64_t q_heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t dim_qk = 0;
  std::int64_t dim_vo = 0;
  std::int64_t max_keys = 0;  // of one sequence, by the shapes
};

bool on_host(const TensorView& view) { return view.device.kind == DeviceKind::kCpu; }

std::int64_t int32_at(const TensorView& view, std::int64_t idx) {
  return static_cast<const std::int32_t*>(view.data)[idx * view.strides[0]];
}

std::int64_t page_at(const TensorView& table, std::int64_t sequence_idx, std::int64_t slot) {
  return static_cast<const std::int32_t*>(
      table.data)[sequence_idx * table.strides[0] + slot * table.strides[1]];
}

Status check_each_view(Arguments& arguments) {
  for (Argument& argument : arguments) {
    const TensorView& view = argument.view;
    if (view.absent()) continue;
    switch (examine(view, &argument.span)) {
      case ViewFault::kNone: break;
      case ViewFault::kRank:
        return refuse(
            "{} has rank {}; a view has 0 to {} dimensions. Set rank to the number of extents in "
            "shape.",
            argument.name, view.rank, kMaxRank);
      case ViewFault::kNegativeExtent:
        return refuse("{} has shape {}; no extent may be negative. Pass 0 for an empty dimension.",
                      argument.name, shape_text(view));
      case ViewFault::kTooLarge:
        return refuse(
            "{} has shape {}; its elements must fit in 2^63 bytes. Check for an overflow where the "
            "shape or the strides were computed.",
            argument.name, shape_text(view));
      case ViewFault::kNullData:
        return refuse(
            "{} has shape {} and no memory (data is null); a view with elements needs memory. Pass "
            "its address, or leave the whole view empty for an absent argument.",
            argument.name, shape_text(view));
    }
    const auto address = reinterpret_cast<std::uintptr_t>(view.data);
    const auto alignment = static_cast<std::uintptr_t>(size_bytes(view.dtype));
    if (argument.span.begin != argument.span.end && alignment > 1 && address % alignment != 0) {
      return refuse(
          "{} begins {} bytes past a multiple of {}; {} elements must be aligned to their size. "
          "Move the data, or correct the dtype.",
          argument.name, address % alignment, alignment, to_string(view.dtype));
    }
  }
  return Ok{};
}

// The two ways that Q and O, or K and V, may be laid out.
struct Layouts {
  const char* dense;
  const char* varlen;
  const char* offsets;  // the argument that tells them apart
};
constexpr Layouts kQueryLayouts{"[batch, Sq, heads, dim]", "[total_q, heads, dim]", "q_offsets"};
constexpr Layouts kKeyLayouts{"[batch, Sk, heads, dim] or [num_pages, page_size, heads, dim]",
                              "[total_k, heads, dim]", "k_offsets"};

Status check_value_tensor(const Argument& argument, const Layouts& layouts, bool is_varlen) {
  const TensorView& view = argument.view;
  if (view.absent()) {
    return refuse("{} is absent; it is required, as {}, or {} with {}. Pass it.", argument.name,
                  layouts.dense, layouts.varlen, layouts.offsets);
  }
  if (!is_value_type(view.dtype)) {
    return refuse(
        "{} has dtype {}; values are e4m3, e5m2, bf16, f16 or f32. Convert them, or set the view's "
        "dtype to what the memory holds.",
        argument.name, to_string(view.dtype));
  }
  if (view.rank == (is_varlen ? 3 : 4)) return Ok{};
  return refuse(
      "{} has shape {}; {} {} it needs {}. {} for {}.", argument.name, shape_text(view),
      is_varlen ? "with" : "without", layouts.offsets, is_varlen ? layouts.varlen : layouts.dense,
      is_varlen ? "Leave them out" : "Pass them", is_varlen ? layouts.dense : layouts.varlen);
}

Status check_devices(const Arguments& arguments) {
  const Argument& q = arguments[0];
  for (const Argument& argument : arguments) {
    if (argument.view.absent() || argument.view.device == q.view.device) continue;
    return refuse("q is on {} and {} is on {}; all must be on one device. Copy one of them.",
                  to_string(q.view.device), argument.name, to_string(argument.view.device));
  }
  return Ok{};
}

// Which layouts go together.
Status check_layout(const AttentionProblem& p) {
  if (p.k_offsets.present() && p.page_table.present()) {
    return refuse(
        "k_offsets and page_table are both given; k is either one row of tokens after another or "
        "in pages. Leave one of them out.");
  }
  if (p.k_offsets.present() && p.kv_lengths.present()) {
    return refuse(
        "k_offsets and kv_lengths are both given; k_offsets already say where each sequence ends. "
        "Leave kv_lengths out.");
  }
  if (p.page_table.present() && p.kv_lengths.absent()) {
    return refuse(
        "kv_lengths is absent and page_table is given; pages need the number of keys in use, I32 "
        "[batch]. Pass it.");
  }
  return Ok{};
}

// ---- Extents -----------------------------------------------------------------------------------

Result<Extents> agreed_extents(const AttentionProblem& p) {
  const auto q_heads_at = static_cast<std::size_t>(p.q.rank - 2);
  const auto k_heads_at = static_cast<std::size_t>(p.k.rank - 2);
  Extents extents;
  extents.q_heads = p.q.shape[q_heads_at];
  extents.kv_heads = p.k.shape[k_heads_at];
  extents.dim_qk = p.q.shape[q_heads_at + 1];
  extents.dim_vo = p.v.shape[k_heads_at + 1];

  for (std::size_t i = 0; i <= k_heads_at; ++i) {
    if (p.k.shape[i] == p.v.shape[i]) continue;
    return refuse(
        "k has shape {} and v {}; all but their last extents must be equal. Pass one cache's both.",
        shape_text(p.k), shape_text(p.v));
  }
  if (p.k.shape[k_heads_at + 1] != extents.dim_qk) {
    return refuse(
        "q has shape {} and k {}; their last extents, the head dim, must be equal. "
        "Pass views of the real extents.",
        shape_text(p.q), shape_text(p.k));
  }
  for (const auto& [name, dim] : {std::pair{"q and k", extents.dim_qk}, {"v", extents.dim_vo}}) {
    if (dim >= 1 && dim <= kMaxHeadDim) continue;
    return refuse("the head dim of {} is {}; head dims are 1 to {}. Split the head.", name, dim,
                  kMaxHeadDim);
  }
  if (extents.kv_heads < 1 || extents.q_heads < 1 || extents.q_heads % extents.kv_heads != 0) {
    return refuse(
        "q has {} heads and k {}; q's must be a multiple of k's, and above 0. Check which "
        "dimension of the shapes is heads.",
        extents.q_heads, extents.kv_heads);
  }

  if (p.q_offsets.present()) {
    if (p.q_offsets.rank != 1 || p.q_offsets.shape[0] < 1) {
      return refuse(
          "q_offsets has shape {}; it needs [batch + 1], ascending from 0. Pass [0] for "
          "no sequences.",
          shape_text(p.q_offsets));
    }
    extents.batch = p.q_offsets.shape[0] - 1;
  } else {
    extents.batch = p.q.shape[0];
    if (p.q.shape[1] > kMaxLength) {
      return refuse("q has {} queries a sequence; at most {} are served. Split the call.",
                    p.q.shape[1], kMaxLength);
    }
  }
  const auto o_last = static_cast<std::size_t>(p.q.rank - 1);
  bool o_agrees = p.o.shape[o_last] == extents.dim_vo;
  for (std::size_t i = 0; i < o_last; ++i) o_agrees = o_agrees && p.o.shape[i] == p.q.shape[i];
  if (!o_agrees) {
    return refuse(
        "o has shape {}; with q {} and v {} it must have q's extents but the last, which is v's. "
        "Allocate it so.",
        shape_text(p.o), shape_text(p.q), shape_text(p.v));
  }
  return extents;
}

// How many sequences K and V hold, and how long each may be.
Status check_key_extents(const AttentionProblem& p, Extents& extents) {
  if (p.k_offsets.present()) {
    extents.max_keys = p.k.shape[0];
  } else if (p.page_table.present()) {
    if (p.page_table.rank != 2 || p.page_table.shape[0] != extents.batch) {
      return refuse(
          "page_table has shape {}; with {} sequences it needs [{}, max_pages]. Pass one row for "
          "each.",
          shape_text(p.page_table), extents.batch, extents.batch);
    }
    if (p.k.shape[1] < 1) {
      return refuse(
          "k has shape {}, pages of 0 keys; a page holds at least 1. Pass k as [num_pages, "
          "page_size, heads, dim].",
          shape_text(p.k));
    }
    const Int128 capacity = static_cast<Int128>(p.page_table.shape[1]) * p.k.shape[1];
    extents.max_keys = capacity > kMaxLength ? kMaxLength : static_cast<std::int64_t>(capacity);
  } else {
    if (p.k.shape[0] != extents.batch) {
      return refuse(
          "q holds {} sequences and k has shape {}; dense k and v need one for each, [{}, Sk, "
          "heads, dim]. For keys shared by all pass batch stride 0.",
          extents.batch, shape_text(p.k), extents.batch);
    }
    extents.max_keys = p.k.shape[1];
    if (extents.max_keys > kMaxLength) {
      return refuse("k has {} keys a sequence; at most {} are served. Use fewer.", extents.max_keys,
                    kMaxLength);
    }
  }
  return Ok{};
}

// ---- Index tensors -----------------------------------------------------------------------------

Status check_index_dtype(const char* name, const TensorView& view) {
  if (view.dtype == DType::kI32) return Ok{};
  return refuse("{} has dtype {}; lengths, offsets and page numbers are i32. Convert them.", name,
                to_string(view.dtype));
}

Status check_offsets(const char* name, const TensorView& offsets, const char* rows_name,
                     std::int64_t num_rows, std::int64_t batch) {
  if (offsets.absent()) return Ok{};
  if (Status s = check_index_dtype(name, offsets); !s.ok()) return s;
  if (offsets.rank != 1 || offsets.shape[0] != batch + 1) {
    return refuse(
        "{} has shape {}; with {} sequences it needs [{}] (batch + 1). Pass the last end too.",
        name, shape_text(offsets), batch, batch + 1);
  }
  if (!on_host(offsets)) return Ok{};
  if (int32_at(offsets, 0) != 0) {
    return refuse("{}[0] is {}; offsets start at 0. Pass a view of the first sequence's rows on.",
                  name, int32_at(offsets, 0));
  }
  for (std::int64_t i = 1; i <= batch; ++i) {
    const std::int64_t value = int32_at(offsets, i);
    if (value < int32_at(offsets, i - 1)) {
      return refuse(
          "{}[{}] is {} after {}; offsets must not descend. They are the running sum of "
          "the lengths.",
          name, i, value, int32_at(offsets, i - 1));
    }
    if (value > num_rows) {
      return refuse("{}[{}] is {}; {} has only {} rows. Pass the running sum of the lengths.", name,
                    i, value, rows_name, num_rows);
    }
  }
  return Ok{};
}

Status check_kv_lengths(const AttentionProblem& p, const Extents& extents) {
  const TensorView& lengths = p.kv_lengths;
  if (lengths.absent()) return Ok{};
  if (Status s = check_index_dtype("kv_lengths", lengths); !s.ok()) return s;
  if (lengths.rank != 1 || lengths.shape[0] != extents.batch) {
    return refuse("kv_lengths has shape {}; with {} sequences it needs [{}]. Pass one for each.",
                  shape_text(lengths), extents.batch, extents.batch);
  }
  if (!on_host(lengths)) return Ok{};
  for (std::int64_t i = 0; i < extents.batch; ++i) {
    const std::int64_t length = int32_at(lengths, i);
    if (length >= 0 && length <= extents.max_keys) continue;
    return refuse("kv_lengths[{}] is {}; it must be 0 to {} ({}). Pass the keys in use.", i, length,
                  extents.max_keys, p.page_table.present() ? "max_pages * page_size" : "Sk");
  }
  return Ok{};
}

Status check_page_table(const AttentionProblem& p, const Extents& extents) {
  const TensorView& table = p.page_table;
  if (table.absent()) return Ok{};
  if (Status s = check_index_dtype("page_table", table); !s.ok()) return s;
  if (!on_host(table)) return Ok{};
  const std::int64_t num_pages = p.k.shape[0];
  const std::int64_t page_size = p.k.shape[1];
  for (std::int64_t i = 0; i < extents.batch; ++i) {
    const std::int64_t length = int32_at(p.kv_lengths, i);
    for (std::int64_t slot = 0; slot * page_size < length; ++slot) {
      const std::int64_t page = page_at(table, i, slot);
      if (page >= 0 && page < num_pages) continue;
      return refuse(
          "page_table[{}, {}] is {}; sequence {} has {} keys, so this entry is in use and must be "
          "0 "
          "to {}. Check the length or the table.",
          i, slot, page, i, length, num_pages - 1);
    }
  }
  return Ok{};
}

Status check_numbers(const AttentionProblem& p) {
  if (!std::isfinite(p.softmax_scale)) {
    return refuse("softmax_scale is {}; it must be finite. Pass 0 for 1/sqrt(head dim).",
                  p.softmax_scale);
  }
  if (!std::isfinite(p.softcap) || p.softcap < 0) {
    return refuse(
        "softcap is {}; it must be finite and above 0, or 0 for none. Pass 0 if in doubt.",
        p.softcap);
  }
  for (const auto& [name, window] :
       {std::pair{"window_left", p.window_left}, {"window_right", p.window_right}}) {
    if (window >= -1) continue;
    return refuse("{} is {}; it counts keys and is 0 or above, or -1 for no limit. Pass -1.", name,
                  window);
  }
  return Ok{};
}

// ---- Scales ------------------------------------------------------------------------------------

struct ScaleRule {
  const char* name;  // "k_scale"
  AttentionScale kind;
  const char* heads_name;  // "KV heads"
  std::int64_t num_heads;
  bool is_key_side;
};

std::string needed_shape(const ScaleRule& rule, const AttentionProblem& p, const Extents& extents) {
  switch (rule.kind) {
    case AttentionScale::kNone: return "none";
    case AttentionScale::kTensor: return "[1]";
    case AttentionScale::kHead: return fmt::format("[{}] ({})", rule.num_heads, rule.heads_name);
    case AttentionScale::kBatchHead:
      return fmt::format("[{}, {}] (sequences, {})", extents.batch, rule.num_heads,
                         rule.heads_name);
    case AttentionScale::kPageHead:
      return fmt::format("[{}, {}] (pages, {})", p.k.shape[0], rule.num_heads, rule.heads_name);
  }
  return "";
}

bool shape_matches(const ScaleRule& rule, const TensorView& scale, const AttentionProblem& p,
                   const Extents& extents) {
  const auto is_matrix = [&](std::int64_t rows) {
    return scale.rank == 2 && scale.shape[0] == rows && scale.shape[1] == rule.num_heads;
  };
  switch (rule.kind) {
    case AttentionScale::kNone: return false;
    case AttentionScale::kTensor: return scale.rank == 1 && scale.shape[0] == 1;
    case AttentionScale::kHead: return scale.rank == 1 && scale.shape[0] == rule.num_heads;
    case AttentionScale::kBatchHead: return is_matrix(extents.batch);
    case AttentionScale::kPageHead: return is_matrix(p.k.shape[0]);
  }
  return false;
}

bool is_scale(float value) { return value >= kMinScale && value <= kMaxScale; }

constexpr const char* kScaleValueRule =
    "scales must be finite, positive and from 2^-126 to 2^126. An all-zero group needs a small "
    "positive scale (quantize() floors it).";

std::int64_t num_keys(const AttentionProblem& p, std::int64_t sequence_idx) {
  if (p.k_offsets.present()) {
    return int32_at(p.k_offsets, sequence_idx + 1) - int32_at(p.k_offsets, sequence_idx);
  }
  return p.kv_lengths.present() ? int32_at(p.kv_lengths, sequence_idx) : p.k.shape[1];
}

// One row of a scale tensor: all its heads.
Status check_scale_row(const ScaleRule& rule, const TensorView& scale, std::int64_t row) {
  for (std::int64_t head = 0; head < rule.num_heads; ++head) {
    const float value =
        static_cast<const float*>(scale.data)[row * scale.strides[0] + head * scale.strides[1]];
    if (is_scale(value)) continue;
    return refuse("{}[{}, {}] ({} {}, head {}) is {}; {}", rule.name, row, head,
                  rule.kind == AttentionScale::kPageHead ? "page" : "sequence", row, head, value,
                  kScaleValueRule);
  }
  return Ok{};
}

// Only scales of slots in use: a sequence without keys and an unused page may hold anything.
Status check_scale_values(const ScaleRule& rule, const TensorView& scale, const AttentionProblem& p,
                          const Extents& extents) {
  if (!on_host(scale)) return Ok{};
  if (rule.kind == AttentionScale::kTensor || rule.kind == AttentionScale::kHead) {
    for (std::int64_t i = 0; i < scale.shape[0]; ++i) {
      const float value = static_cast<const float*>(scale.data)[i * scale.strides[0]];
      if (!is_scale(value)) return refuse("{}[{}] is {}; {}", rule.name, i, value, kScaleValueRule);
    }
    return Ok{};
  }
  for (std::int64_t i = 0; i < extents.batch; ++i) {
    if (rule.kind == AttentionScale::kBatchHead) {
      if (rule.is_key_side && num_keys(p, i) == 0) continue;
      if (Status s = check_scale_row(rule, scale, i); !s.ok()) return s;
      continue;
    }
    const std::int64_t length = num_keys(p, i);
    for (std::int64_t slot = 0; slot * p.k.shape[1] < length; ++slot) {
      if (Status s = check_scale_row(rule, scale, page_at(p.page_table, i, slot)); !s.ok())
        return s;
    }
  }
  return Ok{};
}

Status check_scale(const ScaleRule& rule, const TensorView& scale, const AttentionProblem& p,
                   const Extents& extents) {
  if (rule.kind == AttentionScale::kPageHead && !rule.is_key_side) {
    return refuse("{}_kind is page_head; queries are not in pages. Use batch_head.", rule.name);
  }
  if (rule.kind == AttentionScale::kPageHead && p.page_table.absent()) {
    return refuse(
        "{}_kind is page_head and page_table is absent; there are no pages. Use batch_head.",
        rule.name);
  }
  if (rule.kind == AttentionScale::kNone) {
    if (scale.absent()) return Ok{};
    return refuse(
        "{} has shape {} and {}_kind is none; none takes no scale. Name the kind: it is never "
        "guessed from the shape.",
        rule.name, shape_text(scale), rule.name);
  }
  if (scale.absent()) {
    return refuse("{} is absent; {}_kind {} needs {}. Pass it, or use none for scale 1.", rule.name,
                  rule.name, to_string(rule.kind), needed_shape(rule, p, extents));
  }
  if (scale.dtype != DType::kF32) {
    return refuse("{} has dtype {}; attention's scales are f32. Convert it.", rule.name,
                  to_string(scale.dtype));
  }
  if (!shape_matches(rule, scale, p, extents)) {
    return refuse("{} has shape {}; {} scales need {}. See docs/attention.md.", rule.name,
                  shape_text(scale), to_string(rule.kind), needed_shape(rule, p, extents));
  }
  return check_scale_values(rule, scale, p, extents);
}

Status check_o_scale(const AttentionProblem& p) {
  const TensorView& scale = p.o_scale;
  if (scale.absent()) return Ok{};
  if (!is_fp8(p.o.dtype)) {
    return refuse(
        "o_scale is given and o has dtype {}; only an e4m3 or e5m2 o is divided by a scale. Leave "
        "o_scale out.",
        to_string(p.o.dtype));
  }
  if (scale.dtype != DType::kF32 || scale.rank > 1 || scale.num_elements() != 1) {
    return refuse(
        "o_scale has dtype {} and shape {}; it must be one f32 value, shape [1]. Pass one "
        "value for the whole of o.",
        to_string(scale.dtype), shape_text(scale));
  }
  if (!on_host(scale)) return Ok{};
  const float value = *static_cast<const float*>(scale.data);
  if (is_scale(value)) return Ok{};
  return refuse("o_scale is {}; {}", value, kScaleValueRule);
}

Status check_lse(const AttentionProblem& p, const Extents& extents) {
  const MutableTensorView& lse = p.lse;
  if (lse.absent()) return Ok{};
  if (lse.dtype != DType::kF32) {
    return refuse("lse has dtype {}; it is f32. Allocate it so.", to_string(lse.dtype));
  }
  const bool is_varlen = p.q_offsets.present();
  const std::array<std::int64_t, 3> needed{is_varlen ? extents.q_heads : extents.batch,
                                           is_varlen ? p.q.shape[0] : extents.q_heads,
                                           p.q.shape[1]};
  const int rank = is_varlen ? 2 : 3;
  if (lse.rank == rank && std::equal(needed.begin(), needed.begin() + rank, lse.shape.begin())) {
    return Ok{};
  }
  return refuse("lse has shape {}; it needs [{}] ({}). Allocate it so.", shape_text(lse),
                fmt::join(needed.begin(), needed.begin() + rank, ", "),
                is_varlen ? "q heads, total_q with q_offsets" : "batch, q heads, Sq");
}

Status check_output_memory(const Arguments& arguments) {
  for (const std::size_t output_at : {kOutput, kLse}) {
    const Argument& output = arguments[output_at];
    if (output.span.begin == output.span.end) continue;  // absent or empty
    if (!elements_distinct(output.view)) {
      return refuse(
          "{} has shape {} and strides by which some element would be written twice. Give every "
          "dimension longer than 1 a stride beyond the reach of the smaller ones.",
          output.name, shape_text(output.view));
    }
    for (const Argument& argument : arguments) {
      if (&argument == &output || argument.view.absent()) continue;
      if (!may_overlap(output.view, output.span, argument.view, argument.span)) continue;
      return refuse(
          "{} overlaps {} in memory; what {} would hold then depends on the order of writing. Give "
          "{} memory of its own.",
          output.name, argument.name, output.name, output.name);
    }
  }
  return Ok{};
}

}  // namespace

Status validate(const AttentionProblem& p) {
  Arguments arguments = arguments_of(p);
  if (Status s = check_each_view(arguments); !s.ok()) return s;
  for (std::size_t i = 0; i <= kOutput; ++i) {
    const bool holds_keys = i == 1 || i == 2;
    const bool is_varlen = holds_keys ? p.k_offsets.present() : p.q_offsets.present();
    const Layouts& layouts = holds_keys ? kKeyLayouts : kQueryLayouts;
    if (Status s = check_value_tensor(arguments[i], layouts, is_varlen); !s.ok()) return s;
  }
  if (Status s = check_devices(arguments); !s.ok()) return s;
  if (Status s = check_layout(p); !s.ok()) return s;
  Result<Extents> agreed = agreed_extents(p);
  if (!agreed.ok()) return agreed.error();
  Extents& extents = agreed.value();
  if (Status s = check_key_extents(p, extents); !s.ok()) return s;
  if (Status s = check_offsets("q_offsets", p.q_offsets, "q", p.q.shape[0], extents.batch);
      !s.ok()) {
    return s;
  }
  if (Status s = check_offsets("k_offsets", p.k_offsets, "k", p.k.shape[0], extents.batch);
      !s.ok()) {
    return s;
  }
  if (Status s = check_kv_lengths(p, extents); !s.ok()) return s;
  if (Status s = check_page_table(p, extents); !s.ok()) return s;
  if (Status s = check_numbers(p); !s.ok()) return s;
  const std::array<ScaleRule, 3> rules{
      ScaleRule{"q_scale", p.q_scale_kind, "q heads", extents.q_heads, false},
      ScaleRule{"k_scale", p.k_scale_kind, "KV heads", extents.kv_heads, true},
      ScaleRule{"v_scale", p.v_scale_kind, "KV heads", extents.kv_heads, true}};
  if (Status s = check_scale(rules[0], p.q_scale, p, extents); !s.ok()) return s;
  if (Status s = check_scale(rules[1], p.k_scale, p, extents); !s.ok()) return s;
  if (Status s = check_scale(rules[2], p.v_scale, p, extents); !s.ok()) return s;
  if (Status s = check_o_scale(p); !s.ok()) return s;
  if (Status s = check_lse(p, extents); !s.ok()) return s;
  return check_output_memory(arguments);
}

}  // namespace octavo
