// SPDX-License-Identifier: Apache-2.0
// Every rule about the arguments of quantize(), dequantize() and requantize(), in the order they
// are checked. Nothing here allocates unless a rule is broken.
#include <fmt/format.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <string>

#include "api/validate.hpp"
#include "api/view_memory.hpp"
#include "api/view_text.hpp"
#include "octavo/scale.hpp"

namespace octavo {
namespace {

// With the least floor an E5M2 scale, floor / 57344, is above 2^-116: it and its reciprocal stay
// normal.
constexpr float kLeastAmaxFloor = 0x1p-100F;

// Scales to quantize with: inside these bounds both the scale and its reciprocal are normal.
constexpr float kLeastGivenScale = 0x1p-126F;
constexpr float kLargestGivenScale = 0x1p126F;

template <typename... Args>
Error refuse(const char* operation, fmt::format_string<Args...> format, Args&&... args) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("{}: {}", operation, fmt::format(format, std::forward<Args>(args)...))};
}

enum class Role : unsigned char { kWide, kFp8, kScale };
enum class Access : unsigned char { kRead, kWritten };

struct Argument {
  const char* name;
  TensorView view;
  Role role;
  Access access;
  ByteSpan span = {};
};

struct Call {
  const char* operation;
  std::span<Argument> arguments;
};

const char* needed_dtypes(Role role) {
  switch (role) {
    case Role::kWide: return "bf16, f16 or f32";
    case Role::kFp8: return "e4m3 or e5m2";
    case Role::kScale: return "f32 or ue8m0";
  }
  return "";
}

bool dtype_matches(Role role, DType dtype) {
  switch (role) {
    case Role::kWide: return is_16bit(dtype) || dtype == DType::kF32;
    case Role::kFp8: return is_fp8(dtype);
    case Role::kScale: return dtype == DType::kF32 || dtype == DType::kUE8M0;
  }
  return false;
}

Status check_memory(const char* operation, Argument& argument) {
  const TensorView& view = argument.view;
  switch (examine(view, &argument.span)) {
    case ViewFault::kNone: break;
    case ViewFault::kRank:
      return refuse(operation,
                    "{} has rank {}; a view has 0 to {} dimensions. Set rank to the number of "
                    "extents in shape.",
                    argument.name, view.rank, kMaxRank);
    case ViewFault::kNegativeExtent:
      return refuse(operation,
                    "{} has shape {}; no extent may be negative. Pass 0 for an empty dimension.",
                    argument.name, shape_text(view));
    case ViewFault::kTooLarge:
      return refuse(operation,
                    "{} has shape {} and strides {}; its elements must fit in 2^63 bytes. Check "
                    "for an overflow where the shape was computed.",
                    argument.name, shape_text(view), strides_text(view));
    case ViewFault::kNullData:
      return refuse(operation,
                    "{} has shape {} and no memory (data is null); a view with elements needs "
                    "memory. Pass its address.",
                    argument.name, shape_text(view));
  }
  const auto address = reinterpret_cast<std::uintptr_t>(view.data);
  const auto alignment = static_cast<std::uintptr_t>(size_bytes(view.dtype));
  if (argument.span.begin != argument.span.end && address % alignment != 0) {
    return refuse(operation,
                  "{} begins {} bytes past a multiple of {}; {} elements must be aligned to their "
                  "size. Move the data, or correct the dtype.",
                  argument.name, address % alignment, alignment, to_string(view.dtype));
  }
  return Ok{};
}

Status check_each(const Call& call) {
  for (Argument& argument : call.arguments) {
    const TensorView& view = argument.view;
    if (view.absent()) {
      return refuse(call.operation,
                    "{} is absent; it is required, as {} values. Pass a view of it.", argument.name,
                    needed_dtypes(argument.role));
    }
    if (!dtype_matches(argument.role, view.dtype)) {
      return refuse(call.operation,
                    "{} has dtype {}; it must be {}. Convert it, or set the view's dtype to what "
                    "the memory holds.",
                    argument.name, to_string(view.dtype), needed_dtypes(argument.role));
    }
    if (Status s = check_memory(call.operation, argument); !s.ok()) return s;
    if (argument.role != Role::kScale && view.rank != 2) {
      return refuse(call.operation,
                    "{} has shape {}; it must have two dimensions, [rows, cols]. Merge leading "
                    "dimensions into rows, or call once for each matrix.",
                    argument.name, shape_text(view));
    }
  }
  return Ok{};
}

Status check_devices(const Call& call) {
  const Argument& first = call.arguments.front();
  for (const Argument& argument : call.arguments) {
    if (argument.view.device == first.view.device) continue;
    return refuse(call.operation,
                  "{} is on {} and {} is on {}; all tensors of a call must be on one device. Copy "
                  "one of them.",
                  first.name, to_string(first.view.device), argument.name,
                  to_string(argument.view.device));
  }
  return Ok{};
}

Status check_same_shape(const char* operation, const Argument& argument, const Argument& model) {
  if (argument.view.shape == model.view.shape) return Ok{};
  return refuse(operation,
                "{} has shape {}; {} has shape {}, and both must be the same. Give {} the shape "
                "[{}, {}].",
                argument.name, shape_text(argument.view), model.name, shape_text(model.view),
                argument.name, model.view.shape[0], model.view.shape[1]);
}

std::string needed_shape(ScaleGranularity granularity, std::int64_t rows, std::int64_t cols) {
  const ScaleShape shape = scale_shape(granularity, rows, cols);
  switch (granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kTensor: return "[1]";
    case ScaleGranularity::kRow: return fmt::format("[{}] or [{}, 1]", shape.rows, shape.rows);
    case ScaleGranularity::kBlock1x128:
      return fmt::format("[{}, {}] (rows, ceil(cols/{}))", shape.rows, shape.cols, kScaleBlock);
    case ScaleGranularity::kBlock128x128:
      return fmt::format("[{}, {}] (ceil(rows/{}), ceil(cols/{}))", shape.rows, shape.cols,
                         kScaleBlock, kScaleBlock);
  }
  return "";
}

bool scale_shape_matches(ScaleGranularity granularity, const TensorView& scale, std::int64_t rows,
                         std::int64_t cols) {
  const ScaleShape shape = scale_shape(granularity, rows, cols);
  if (scale.rank < 1 || scale.shape[0] != shape.rows) return false;
  const bool shaped_as_matrix = scale.rank == 2 && scale.shape[1] == shape.cols;
  switch (granularity) {
    case ScaleGranularity::kNone:
    case ScaleGranularity::kTensor: return scale.rank == 1;
    case ScaleGranularity::kRow: return scale.rank == 1 || shaped_as_matrix;
    case ScaleGranularity::kBlock1x128:
    case ScaleGranularity::kBlock128x128: return shaped_as_matrix;
  }
  return false;
}

Status check_scale_shape(const char* operation, ScaleGranularity granularity, const Argument& scale,
                         const Argument& scaled) {
  const std::int64_t rows = scaled.view.shape[0];
  const std::int64_t cols = scaled.view.shape[1];
  if (scale_shape_matches(granularity, scale.view, rows, cols)) return Ok{};
  return refuse(operation,
                "{} has shape {}; rows={}, cols={} of {} with {} scales needs {}. See "
                "docs/scale_recipes.md.",
                scale.name, shape_text(scale.view), rows, cols, scaled.name, to_string(granularity),
                needed_shape(granularity, rows, cols));
}

Status check_granularity(const char* operation, ScaleGranularity granularity) {
  switch (granularity) {
    case ScaleGranularity::kTensor:
    case ScaleGranularity::kRow:
    case ScaleGranularity::kBlock1x128:
    case ScaleGranularity::kBlock128x128: return Ok{};
    case ScaleGranularity::kNone: break;
  }
  return refuse(operation,
                "granularity is {}; it must be tensor, row, 1x128 or 128x128. For scale 1 "
                "throughout use tensor and a given scale of 1.",
                to_string(granularity));
}

Status check_written_memory(const Call& call) {
  for (const Argument& written : call.arguments) {
    if (written.access != Access::kWritten) continue;
    if (!elements_distinct(written.view)) {
      return refuse(call.operation,
                    "{} has shape {} and strides {}; no element may be written twice. Give every "
                    "dimension longer than 1 a stride beyond the reach of the smaller ones.",
                    written.name, shape_text(written.view), strides_text(written.view));
    }
  }
  return Ok{};
}

Status check_overlap(const char* operation, const Argument& written, const Argument& other) {
  if (!may_overlap(written.view, written.span, other.view, other.span)) return Ok{};
  return refuse(operation,
                "{} overlaps {} in memory; what both would hold then depends on the order of "
                "writing. Give {} memory of its own.",
                written.name, other.name, written.name);
}

float scale_value(const TensorView& scale, std::int64_t offset) {
  if (scale.dtype == DType::kF32) return static_cast<const float*>(scale.data)[offset];
  return decode(DType::kUE8M0, static_cast<const std::uint8_t*>(scale.data)[offset]);
}

// Calls accept(value) for every scale in host memory until one is refused; its position then is
// *position. Scales in device memory cannot be read here.
template <typename Accept>
bool all_scales(const TensorView& scale, std::string* position, const Accept& accept) {
  if (scale.device.kind != DeviceKind::kCpu) return true;
  const std::int64_t rows = scale.shape[0];
  const std::int64_t cols = scale.rank > 1 ? scale.shape[1] : 1;
  const std::int64_t col_stride = scale.rank > 1 ? scale.strides[1] : 0;
  // A broadcast dimension holds one value.
  const std::int64_t distinct_rows = scale.strides[0] == 0 ? (rows > 0 ? 1 : 0) : rows;
  const std::int64_t distinct_cols = col_stride == 0 ? (cols > 0 ? 1 : 0) : cols;
  for (std::int64_t row = 0; row < distinct_rows; ++row) {
    for (std::int64_t col = 0; col < distinct_cols; ++col) {
      if (accept(scale_value(scale, row * scale.strides[0] + col * col_stride))) continue;
      *position = scale.rank > 1 ? fmt::format("{}, {}", row, col) : fmt::format("{}", row);
      return false;
    }
  }
  return true;
}

Status check_given_scales(const char* operation, const Argument& scale) {
  std::string position;
  float refused = 0;
  const bool good = all_scales(scale.view, &position, [&](float value) {
    refused = value;
    return value >= kLeastGivenScale && value <= kLargestGivenScale;
  });
  if (good) return Ok{};
  return refuse(operation,
                "{}[{}] is {}; scales to quantize with must be finite, positive and from 2^-126 to "
                "2^126, so that their reciprocals are normal too. Correct it, or let quantize() "
                "compute the scales.",
                scale.name, position, refused);
}

Status check_read_scales(const char* operation, const Argument& scale) {
  std::string position;
  float refused = 0;
  const bool good = all_scales(scale.view, &position, [&](float value) {
    refused = value;
    // By its bits: a caller that flushes subnormals would see them as 0 (UE8M0's least scale is
    // one).
    constexpr std::uint32_t kNumPositiveFinite = 0x7F7FFFFF;
    return std::bit_cast<std::uint32_t>(value) - 1 < kNumPositiveFinite;
  });
  if (good) return Ok{};
  return refuse(operation,
                "{}[{}] is {}; scales must be finite and above 0. An all-zero group needs a small "
                "positive scale (quantize() floors it).",
                scale.name, position, refused);
}

}  // namespace

Status validate(const QuantizeProblem& problem) {
  constexpr const char* kOperation = "quantize";
  const bool given = problem.scale_source == ScaleSource::kGiven;
  std::array arguments{
      Argument{"x", problem.x, Role::kWide, Access::kRead},
      Argument{"q", problem.q, Role::kFp8, Access::kWritten},
      Argument{"scale", problem.scale, Role::kScale, given ? Access::kRead : Access::kWritten}};
  const auto& [x, q, scale] = arguments;
  const Call call{kOperation, arguments};
  if (Status s = check_granularity(kOperation, problem.granularity); !s.ok()) return s;
  if (Status s = check_each(call); !s.ok()) return s;
  if (Status s = check_devices(call); !s.ok()) return s;
  if (Status s = check_same_shape(kOperation, q, x); !s.ok()) return s;
  if (Status s = check_scale_shape(kOperation, problem.granularity, scale, x); !s.ok()) return s;
  if (!(problem.amax_floor >= kLeastAmaxFloor) || !std::isfinite(problem.amax_floor)) {
    return refuse(kOperation,
                  "amax_floor is {}; it must be finite and at least 2^-100, so that every scale "
                  "stays normal. Leave the default, {}, unless a format's definition says "
                  "otherwise.",
                  problem.amax_floor, kDefaultAmaxFloor);
  }
  if (Status s = check_written_memory(call); !s.ok()) return s;
  if (Status s = check_overlap(kOperation, q, x); !s.ok()) return s;
  if (Status s = check_overlap(kOperation, q, scale); !s.ok()) return s;
  if (given) return check_given_scales(kOperation, scale);
  return check_overlap(kOperation, scale, x);
}

Status validate(const DequantizeProblem& problem) {
  constexpr const char* kOperation = "dequantize";
  std::array arguments{Argument{"q", problem.q, Role::kFp8, Access::kRead},
                       Argument{"x", problem.x, Role::kWide, Access::kWritten},
                       Argument{"scale", problem.scale, Role::kScale, Access::kRead}};
  const auto& [q, x, scale] = arguments;
  const bool has_scale = problem.granularity != ScaleGranularity::kNone;
  const Call call{kOperation,
                  std::span(arguments).first(has_scale ? arguments.size() : arguments.size() - 1)};
  if (!has_scale && problem.scale.present()) {
    return refuse(kOperation,
                  "scale has shape {} and granularity is none; granularity none takes no scales. "
                  "Name the granularity that the scales follow: it is never guessed from their "
                  "shape.",
                  shape_text(problem.scale));
  }
  if (has_scale) {
    if (Status s = check_granularity(kOperation, problem.granularity); !s.ok()) return s;
  }
  if (Status s = check_each(call); !s.ok()) return s;
  if (Status s = check_devices(call); !s.ok()) return s;
  if (Status s = check_same_shape(kOperation, x, q); !s.ok()) return s;
  if (has_scale) {
    if (Status s = check_scale_shape(kOperation, problem.granularity, scale, q); !s.ok()) return s;
  }
  if (Status s = check_written_memory(call); !s.ok()) return s;
  if (Status s = check_overlap(kOperation, x, q); !s.ok()) return s;
  if (!has_scale) return Ok{};
  if (Status s = check_overlap(kOperation, x, scale); !s.ok()) return s;
  return check_read_scales(kOperation, scale);
}

Status validate(const RequantizeProblem& problem) {
  constexpr const char* kOperation = "requantize";
  std::array arguments{Argument{"q", problem.q, Role::kFp8, Access::kRead},
                       Argument{"scale", problem.scale, Role::kScale, Access::kRead},
                       Argument{"new_q", problem.new_q, Role::kFp8, Access::kWritten},
                       Argument{"new_scale", problem.new_scale, Role::kScale, Access::kWritten}};
  const auto& [q, scale, new_q, new_scale] = arguments;
  const Call call{kOperation, arguments};
  if (Status s = check_granularity(kOperation, problem.granularity); !s.ok()) return s;
  if (Status s = check_each(call); !s.ok()) return s;
  if (Status s = check_devices(call); !s.ok()) return s;
  if (Status s = check_same_shape(kOperation, new_q, q); !s.ok()) return s;
  for (const Argument* argument : {&scale, &new_scale}) {
    if (Status s = check_scale_shape(kOperation, problem.granularity, *argument, q); !s.ok()) {
      return s;
    }
  }
  if (Status s = check_written_memory(call); !s.ok()) return s;
  // In place means element by element: the same address, strides and element size.
  const auto in_place = [](const TensorView& a, const TensorView& b) {
    return a.data == b.data && a.rank == b.rank && a.strides == b.strides &&
           size_bytes(a.dtype) == size_bytes(b.dtype);
  };
  if (!in_place(q.view, new_q.view)) {
    if (Status s = check_overlap(kOperation, new_q, q); !s.ok()) return s;
  }
  if (!in_place(scale.view, new_scale.view)) {
    if (Status s = check_overlap(kOperation, new_scale, scale); !s.ok()) return s;
  }
  if (Status s = check_overlap(kOperation, new_q, scale); !s.ok()) return s;
  if (Status s = check_overlap(kOperation, new_scale, q); !s.ok()) return s;
  if (Status s = check_overlap(kOperation, new_q, new_scale); !s.ok()) return s;
  return check_read_scales(kOperation, scale);
}

}  // namespace octavo
