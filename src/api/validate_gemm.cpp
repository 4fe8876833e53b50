// SPDX-License-Identifier: Apache-2.0
// Every rule about a product's arguments, in the order they are checked: reading this file is
// reading the contract. Nothing here allocates unless a rule is broken.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

#include "api/validate.hpp"
#include "api/view_memory.hpp"
#include "api/view_text.hpp"
#include "octavo/scale.hpp"

namespace octavo {
namespace {

// As for quantize(): inside these bounds both the scale and its reciprocal are normal.
constexpr float kLeastOutputScale = 0x1p-126F;
constexpr float kLargestOutputScale = 0x1p126F;

template <typename... Args>
Error refuse(fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kInvalidArgument, "gemm: " + fmt::format(format, std::forward<Args>(args)...)};
}

struct Argument {
  const char* name;
  TensorView view;
  ByteSpan span;
};

// Every view of a problem, by its name.
class Arguments {
 public:
  explicit Arguments(const GemmProblem& problem)
      : all_{Argument{"a", problem.a, {}},
             Argument{"b", problem.b, {}},
             Argument{"d", problem.d, {}},
             Argument{"a_scale", problem.a_scale, {}},
             Argument{"b_scale", problem.b_scale, {}},
             Argument{"bias", problem.bias, {}},
             Argument{"d_scale", problem.d_scale, {}}} {}

  [[nodiscard]] auto begin() { return all_.begin(); }
  [[nodiscard]] auto end() { return all_.end(); }
  [[nodiscard]] const Argument& a() const { return all_[0]; }
  [[nodiscard]] const Argument& d() const { return all_[2]; }

 private:
  std::array<Argument, 7> all_;
};

struct Extents {
  bool batched;
  std::int64_t batch;
  std::int64_t m;
  std::int64_t n;
  std::int64_t k;
};

Status check_each_view(Arguments& arguments) {
  for (Argument& argument : arguments) {
    const TensorView& view = argument.view;
    if (view.absent()) continue;
    switch (examine(view, &argument.span)) {
      case ViewFault::kNone: break;
      case ViewFault::kRank:
        return refuse(
            "{} has rank {}; a view has 0 to {} dimensions. Set rank to the number of "
            "extents in shape.",
            argument.name, view.rank, kMaxRank);
      case ViewFault::kNegativeExtent:
        return refuse("{} has shape {}; no extent may be negative. Pass 0 for an empty dimension.",
                      argument.name, shape_text(view));
      case ViewFault::kTooLarge:
        return refuse(
            "{} has shape {} and strides {}; its elements must fit in 2^63 bytes. Check "
            "for an overflow where the shape was computed.",
            argument.name, shape_text(view), strides_text(view));
      case ViewFault::kNullData:
        return refuse(
            "{} has shape {} and no memory (data is null); a view with elements needs "
            "memory. Pass its address, or leave the whole view empty for an absent "
            "argument.",
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

template <typename Pointer>
Status check_value_tensor(const char* name, const BasicTensorView<Pointer>& view,
                          const char* shape_rule) {
  if (view.absent()) return refuse("{} is absent; it is required, as {}.", name, shape_rule);
  if (!is_value_type(view.dtype)) {
    return refuse(
        "{} has dtype {}; values are e4m3, e5m2, bf16, f16 or f32. Convert them, or set "
        "the view's dtype to what the memory holds.",
        name, to_string(view.dtype));
  }
  if (view.rank != 2 && view.rank != 3) {
    return refuse("{} has shape {}; it needs two dimensions, or three for a batch: {}.", name,
                  shape_text(view), shape_rule);
  }
  return Ok{};
}

// The extents, if a, b and d agree on them.
Result<Extents> agreed_extents(const GemmProblem& problem) {
  const TensorView& a = problem.a;
  const TensorView& b = problem.b;
  const MutableTensorView& d = problem.d;
  if (a.rank != b.rank || a.rank != d.rank) {
    return refuse(
        "a has shape {}, b {}, d {}; all three need the same number of dimensions. For a "
        "tensor shared by the whole batch pass batch stride 0.",
        shape_text(a), shape_text(b), shape_text(d));
  }
  const auto row = static_cast<std::size_t>(a.rank - 2);
  const std::size_t col = row + 1;
  const Extents extents{a.rank == 3, a.rank == 3 ? a.shape[0] : 1, a.shape[row], b.shape[row],
                        a.shape[col]};
  if (b.shape[col] != extents.k) {
    return refuse(
        "a has shape {} and b {}; a is [M, K] and b [N, K], so their last extents must "
        "be equal. A weight stored as [K, N] needs transposed(view, {}, {}).",
        shape_text(a), shape_text(b), row, col);
  }
  if (extents.batched && (b.shape[0] != extents.batch || d.shape[0] != extents.batch)) {
    return refuse(
        "a has shape {}, b {}, d {}; their first extents, the batch, must be equal. For "
        "a tensor shared by the whole batch pass batch stride 0.",
        shape_text(a), shape_text(b), shape_text(d));
  }
  if (d.shape[row] != extents.m || d.shape[col] != extents.n) {
    return refuse("d has shape {}; with M={} and N={} its last two extents must be [{}, {}].",
                  shape_text(d), extents.m, extents.n, extents.m, extents.n);
  }
  // NOTE: M * N * batch cannot overflow now: d has these extents and examine() passed it.
  return extents;
}

Status check_modes(const GemmProblem& problem, const Extents& extents) {
  if (problem.recipe != ScaleRecipe::kNone && !is_fp8(problem.a.dtype) &&
      !is_fp8(problem.b.dtype)) {
    return refuse(
        "recipe is {}, a has dtype {} and b {}; a recipe scales e4m3 and e5m2 operands, and there "
        "is none. Use recipe none.",
        to_string(problem.recipe), to_string(problem.a.dtype), to_string(problem.b.dtype));
  }
  if (is_block_scaled(problem.recipe) && problem.accumulation == Accumulation::kFast) {
    return refuse(
        "accumulation is fast and recipe is {}; block scales are applied every {} of K, "
        "so the sum cannot stay in the tensor core. Use promoted accumulation, or recipe "
        "tensor or row.",
        to_string(problem.recipe), kScaleBlock);
  }
  if (problem.output_mode == OutputMode::kAccumulate && is_fp8(problem.d.dtype)) {
    return refuse(
        "output_mode is accumulate and d has dtype {}; sums cannot be kept in FP8. Use "
        "an f32, bf16 or f16 d.",
        to_string(problem.d.dtype));
  }
  const long long num_blocks = num_scale_blocks(extents.k);
  const long long most_splits = num_blocks > 1 ? num_blocks : 1;
  if (problem.num_splits != kAutomaticSplits &&
      (problem.num_splits < 1 || problem.num_splits > most_splits)) {
    return refuse(
        "num_splits is {}; with K={} it must be from 1 to {} (ceil(K/{})), or {} to leave "
        "it to the back end.",
        problem.num_splits, extents.k, most_splits, kScaleBlock, kAutomaticSplits);
  }
  return Ok{};
}

Status check_output_memory(Arguments& arguments) {
  const Argument& d = arguments.d();
  if (!elements_distinct(d.view)) {
    return refuse(
        "d has shape {} and strides {}; no element may be written twice. Give every "
        "dimension longer than 1 a stride beyond the reach of the smaller ones.",
        shape_text(d.view), strides_text(d.view));
  }
  for (const Argument& argument : arguments) {
    if (&argument == &d || argument.view.absent()) continue;
    if (may_overlap(d.view, d.span, argument.view, argument.span)) {
      return refuse(
          "d overlaps {} in memory; what d would hold then depends on the order of "
          "writing. Give d memory of its own.",
          argument.name);
    }
  }
  return Ok{};
}

Status check_devices(Arguments& arguments) {
  const Argument& a = arguments.a();
  for (const Argument& argument : arguments) {
    if (argument.view.absent() || argument.view.device == a.view.device) continue;
    return refuse(
        "a is on {} and {} is on {}; all tensors of a call must be on one device. Copy "
        "one of them.",
        to_string(a.view.device), argument.name, to_string(argument.view.device));
  }
  return Ok{};
}

// What an operand's scale tensor must look like.
struct ScaleRule {
  const char* name;          // "a_scale"
  const char* operand_name;  // "a"
  DType operand_dtype;
  ScaleGranularity granularity;
  const char* rows_name;  // "M"
  std::int64_t rows;
};

std::string needed_shape(const ScaleRule& rule, const Extents& extents) {
  const ScaleShape shape = scale_shape(rule.granularity, rule.rows, extents.k);
  const std::string batch = extents.batched ? fmt::format("{}, ", extents.batch) : "";
  switch (rule.granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kTensor: return fmt::format("[{}1]", batch);
    case ScaleGranularity::kRow:
      return fmt::format("[{}{}] or [{}{}, 1]", batch, shape.rows, batch, shape.rows);
    case ScaleGranularity::kBlock1x128:
      return fmt::format("[{}{}, {}] ({}, ceil(K/{}))", batch, shape.rows, shape.cols,
                         rule.rows_name, kScaleBlock);
    case ScaleGranularity::kBlock128x128:
      return fmt::format("[{}{}, {}] (ceil({}/{}), ceil(K/{}))", batch, shape.rows, shape.cols,
                         rule.rows_name, kScaleBlock, kScaleBlock);
  }
  return "";
}

bool shape_matches(const ScaleRule& rule, const Extents& extents, const TensorView& scale) {
  const ScaleShape shape = scale_shape(rule.granularity, rule.rows, extents.k);
  const int first = extents.batched ? 1 : 0;
  if (extents.batched && (scale.rank < 1 || scale.shape[0] != extents.batch)) return false;
  const bool one_extent = scale.rank == first + 1;
  const bool two_extents = scale.rank == first + 2;
  if (!one_extent && !two_extents) return false;
  const auto row = static_cast<std::size_t>(first);
  if (scale.shape[row] != shape.rows) return false;
  switch (rule.granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kTensor: return one_extent;
    case ScaleGranularity::kRow: return one_extent || scale.shape[row + 1] == 1;
    case ScaleGranularity::kBlock1x128:
    case ScaleGranularity::kBlock128x128: return two_extents && scale.shape[row + 1] == shape.cols;
  }
  return false;
}

float scale_value(const TensorView& scale, std::int64_t offset) {
  if (scale.dtype == DType::kF32) return static_cast<const float*>(scale.data)[offset];
  return decode(DType::kUE8M0, static_cast<const std::uint8_t*>(scale.data)[offset]);
}

// Finite and above zero. The one comparison is what keeps a decode step's check short.
bool is_scale(const TensorView& scale, std::int64_t offset) {
  if (scale.dtype == DType::kUE8M0) {
    return static_cast<const std::uint8_t*>(scale.data)[offset] != 0xFF;
  }
  constexpr std::uint32_t kNumPositiveFinite = 0x7F7FFFFF;
  const float value = static_cast<const float*>(scale.data)[offset];
  return std::bit_cast<std::uint32_t>(value) - 1 < kNumPositiveFinite;
}

// PERF: a decode step checks one scale for each row of every weight, 155,000 a token in SmolLM2,
// and signed comparisons of whole runs vectorise.
bool all_are_scales(const float* values, std::int64_t count) {
  constexpr std::int32_t kInfinity = 0x7F800000;
  constexpr std::int64_t kRun = 16;
  std::int32_t bad = 0;
  std::int64_t i = 0;
  for (; i + kRun <= count; i += kRun) {
    for (std::int64_t lane = 0; lane < kRun; ++lane) {
      const auto bits = std::bit_cast<std::int32_t>(values[i + lane]);
      bad |= static_cast<std::int32_t>(bits <= 0) | static_cast<std::int32_t>(bits >= kInfinity);
    }
  }
  for (; i < count; ++i) {
    const auto bits = std::bit_cast<std::int32_t>(values[i]);
    bad |= static_cast<std::int32_t>(bits <= 0) | static_cast<std::int32_t>(bits >= kInfinity);
  }
  return bad == 0;
}

// Values in device memory cannot be read here; those in host memory are.
Status check_scale_values(const char* name, const TensorView& scale) {
  if (scale.device.kind != DeviceKind::kCpu) return Ok{};
  if (scale.dtype == DType::kF32 && scale.contiguous() &&
      all_are_scales(static_cast<const float*>(scale.data), scale.num_elements())) {
    return Ok{};
  }
  std::array<std::int64_t, kMaxRank> shape{1, 1, 1, 1};
  std::array<std::int64_t, kMaxRank> strides{};
  for (std::size_t i = 0; i < static_cast<std::size_t>(scale.rank); ++i) {
    if (scale.shape[i] == 0) return Ok{};
    // A broadcast dimension holds one value.
    shape[i] = scale.strides[i] == 0 ? 1 : scale.shape[i];
    strides[i] = scale.strides[i];
  }
  for (std::int64_t i = 0; i < shape[0]; ++i) {
    for (std::int64_t j = 0; j < shape[1]; ++j) {
      for (std::int64_t k = 0; k < shape[2]; ++k) {
        const std::int64_t offset = i * strides[0] + j * strides[1] + k * strides[2];
        if (is_scale(scale, offset)) continue;
        const std::array<std::int64_t, 3> position{i, j, k};
        std::string text;
        for (int dim = 0; dim < scale.rank; ++dim) {
          text +=
              fmt::format("{}{}", dim == 0 ? "" : ", ", position[static_cast<std::size_t>(dim)]);
        }
        return refuse(
            "{}[{}] is {}; scales must be finite and above 0. An all-zero group needs "
            "a small positive scale (quantize() floors it).",
            name, text, scale_value(scale, offset));
      }
    }
  }
  return Ok{};
}

Status check_scale(const ScaleRule& rule, const TensorView& scale, ScaleRecipe recipe,
                   const Extents& extents) {
  if (scale.absent()) {
    if (recipe == ScaleRecipe::kNone || !is_fp8(rule.operand_dtype)) return Ok{};
    return refuse(
        "{} is absent; an {} {} with recipe {} needs one of shape {}. Pass it, or use "
        "recipe none for scale 1.",
        rule.name, to_string(rule.operand_dtype), rule.operand_name, to_string(recipe),
        needed_shape(rule, extents));
  }
  if (recipe == ScaleRecipe::kNone) {
    return refuse(
        "{} has shape {} and recipe is none; recipe none takes no scales. Name the "
        "recipe that the scales follow: it is never guessed from their shape.",
        rule.name, shape_text(scale));
  }
  if (!is_fp8(rule.operand_dtype)) {
    return refuse(
        "{} is given and {} has dtype {}; only e4m3 and e5m2 operands have scales. Leave "
        "{} out.",
        rule.name, rule.operand_name, to_string(rule.operand_dtype), rule.name);
  }
  if (scale.dtype != DType::kF32 && scale.dtype != DType::kUE8M0) {
    return refuse("{} has dtype {}; scales are f32 or ue8m0. Convert it.", rule.name,
                  to_string(scale.dtype));
  }
  if (!shape_matches(rule, extents, scale)) {
    return refuse(
        "{} has shape {}; {}={}, K={} with {} scales needs {}. See "
        "docs/scale_recipes.md.",
        rule.name, shape_text(scale), rule.rows_name, rule.rows, extents.k,
        to_string(rule.granularity), needed_shape(rule, extents));
  }
  return check_scale_values(rule.name, scale);
}

Status check_bias(const TensorView& bias, const Extents& extents) {
  if (bias.absent()) return Ok{};
  if (!is_16bit(bias.dtype) && bias.dtype != DType::kF32) {
    return refuse("bias has dtype {}; it may be bf16, f16 or f32. Convert it.",
                  to_string(bias.dtype));
  }
  if (bias.rank != 1 || bias.shape[0] != extents.n) {
    return refuse("bias has shape {}; with N={} it needs [{}], one value for each column of d.",
                  shape_text(bias), extents.n, extents.n);
  }
  return Ok{};
}

Status check_d_scale(const GemmProblem& problem) {
  const TensorView& scale = problem.d_scale;
  if (scale.absent()) return Ok{};
  if (!is_fp8(problem.d.dtype)) {
    return refuse(
        "d_scale is given and d has dtype {}; only an e4m3 or e5m2 d is divided by a "
        "scale. Leave d_scale out.",
        to_string(problem.d.dtype));
  }
  if (scale.dtype != DType::kF32 || scale.num_elements() != 1) {
    return refuse("d_scale has dtype {} and shape {}; it must be one f32 value, shape [1].",
                  to_string(scale.dtype), shape_text(scale));
  }
  if (scale.device.kind != DeviceKind::kCpu) return Ok{};
  const float value = *static_cast<const float*>(scale.data);
  if (!(value >= kLeastOutputScale && value <= kLargestOutputScale)) {
    return refuse(
        "d_scale is {}; it must be finite, positive and from 2^-126 to 2^126, so that 1 / d_scale "
        "is normal too. Compute it as the largest magnitude of d / {}.",
        value, max_finite_fp8(problem.d.dtype));
  }
  return Ok{};
}

}  // namespace

Status validate(const GemmProblem& problem) {
  Arguments arguments(problem);
  if (Status s = check_each_view(arguments); !s.ok()) return s;
  if (Status s = check_value_tensor("a", problem.a, "[M, K] or [batch, M, K]"); !s.ok()) return s;
  if (Status s = check_value_tensor("b", problem.b, "[N, K] or [batch, N, K]"); !s.ok()) return s;
  if (Status s = check_value_tensor("d", problem.d, "[M, N] or [batch, M, N]"); !s.ok()) return s;
  if (Status s = check_devices(arguments); !s.ok()) return s;
  const Result<Extents> extents = agreed_extents(problem);
  if (!extents.ok()) return extents.error();
  if (Status s = check_modes(problem, extents.value()); !s.ok()) return s;
  const ScaleRule a_rule{"a_scale",        "a", problem.a.dtype, a_granularity(problem.recipe), "M",
                         extents.value().m};
  const ScaleRule b_rule{"b_scale",        "b", problem.b.dtype, b_granularity(problem.recipe), "N",
                         extents.value().n};
  if (Status s = check_scale(a_rule, problem.a_scale, problem.recipe, extents.value()); !s.ok()) {
    return s;
  }
  if (Status s = check_scale(b_rule, problem.b_scale, problem.recipe, extents.value()); !s.ok()) {
    return s;
  }
  if (Status s = check_bias(problem.bias, extents.value()); !s.ok()) return s;
  if (Status s = check_d_scale(problem); !s.ok()) return s;
  return check_output_memory(arguments);
}

Error in_words_of(std::string_view prefix, const Error& error) {
  constexpr std::string_view kPrefix = "gemm: ";
  std::string_view text = error.what();
  if (text.starts_with(kPrefix)) text.remove_prefix(kPrefix.size());
  return {error.code(), std::string(prefix) + std::string(text)};
}

}  // namespace octavo
