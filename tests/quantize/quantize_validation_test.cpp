// SPDX-License-Identifier: Apache-2.0
// Every rule about the arguments of quantize(), dequantize() and requantize(), with its message.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "quantize/quantized_matrix.hpp"

namespace octavo {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr std::int64_t kRows = 300;
constexpr std::int64_t kCols = 200;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Room for every view below, whatever its strides.
struct Buffers {
  std::vector<float> x = std::vector<float>(2 * kRows * kCols, 1.0F);
  std::vector<float> q = std::vector<float>(2 * kRows * kCols);
  std::vector<float> scale = std::vector<float>(2 * kRows, 1.0F);
  std::vector<float> new_q = std::vector<float>(kRows * kCols);
  std::vector<float> new_scale = std::vector<float>(2 * kRows);
};

QuantizeProblem good_quantize(Buffers& buffers) {
  QuantizeProblem problem;
  problem.x = make_view(buffers.x.data(), DType::kF32, {kRows, kCols});
  problem.q = make_view(buffers.q.data(), DType::kE4M3, {kRows, kCols});
  problem.granularity = ScaleGranularity::kBlock128x128;
  problem.scale = make_view(buffers.scale.data(), DType::kF32, {3, 2});
  return problem;
}

DequantizeProblem good_dequantize(Buffers& buffers) {
  DequantizeProblem problem;
  problem.q = make_view(buffers.q.data(), DType::kE4M3, {kRows, kCols});
  problem.granularity = ScaleGranularity::kBlock128x128;
  problem.scale = make_view(buffers.scale.data(), DType::kF32, {3, 2});
  problem.x = make_view(buffers.x.data(), DType::kBF16, {kRows, kCols});
  return problem;
}

RequantizeProblem good_requantize(Buffers& buffers) {
  RequantizeProblem problem;
  problem.q = make_view(buffers.q.data(), DType::kE4M3, {kRows, kCols});
  problem.scale = make_view(buffers.scale.data(), DType::kF32, {3, 2});
  problem.new_q = make_view(buffers.new_q.data(), DType::kE4M3, {kRows, kCols});
  problem.new_scale = make_view(buffers.new_scale.data(), DType::kUE8M0, {3, 2});
  return problem;
}

template <typename Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
    return error.what();
  }
  return "accepted";
}

std::string quantize_refusal(const std::function<void(QuantizeProblem&)>& spoil) {
  Buffers buffers;
  QuantizeProblem problem = good_quantize(buffers);
  spoil(problem);
  return refusal([&] { quantize(problem); });
}

std::string dequantize_refusal(const std::function<void(DequantizeProblem&)>& spoil) {
  Buffers buffers;
  DequantizeProblem problem = good_dequantize(buffers);
  spoil(problem);
  return refusal([&] { dequantize(problem); });
}

std::string requantize_refusal(const std::function<void(RequantizeProblem&)>& spoil) {
  Buffers buffers;
  RequantizeProblem problem = good_requantize(buffers);
  spoil(problem);
  return refusal([&] { requantize(problem); });
}

TEST(QuantizeRules, sound_problems_are_accepted) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem&) {}), "accepted");
  EXPECT_EQ(dequantize_refusal([](DequantizeProblem&) {}), "accepted");
  EXPECT_EQ(requantize_refusal([](RequantizeProblem&) {}), "accepted");
}

TEST(QuantizeRules, absent_arguments) {
  EXPECT_EQ(
      quantize_refusal([](QuantizeProblem& p) { p.x = {}; }),
      "quantize: x is absent; it is required, as bf16, f16 or f32 values. Pass a view of it.");
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.q = {}; }),
            "quantize: q is absent; it is required, as e4m3 or e5m2 values. Pass a view of it.");
  EXPECT_EQ(
      quantize_refusal([](QuantizeProblem& p) { p.scale = {}; }),
      "quantize: scale is absent; it is required, as f32 or ue8m0 values. Pass a view of it.");
  EXPECT_THAT(dequantize_refusal([](DequantizeProblem& p) { p.scale = {}; }),
              StartsWith("dequantize: scale is absent"));
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) { p.new_scale = {}; }),
              StartsWith("requantize: new_scale is absent"));
}

TEST(QuantizeRules, dtypes) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.x.dtype = DType::kI32; }),
            "quantize: x has dtype i32; it must be bf16, f16 or f32. Convert it, or set the view's "
            "dtype to what the memory holds.");
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.x.dtype = DType::kE4M3; }),
              StartsWith("quantize: x has dtype e4m3; it must be bf16, f16 or f32."));
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.q.dtype = DType::kBF16; }),
              StartsWith("quantize: q has dtype bf16; it must be e4m3 or e5m2."));
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.scale.dtype = DType::kBF16; }),
              StartsWith("quantize: scale has dtype bf16; it must be f32 or ue8m0."));
  EXPECT_THAT(dequantize_refusal([](DequantizeProblem& p) { p.x.dtype = DType::kE5M2; }),
              StartsWith("dequantize: x has dtype e5m2; it must be bf16, f16 or f32."));
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) { p.new_q.dtype = DType::kF32; }),
              StartsWith("requantize: new_q has dtype f32; it must be e4m3 or e5m2."));
}

TEST(QuantizeRules, shapes) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) {
              p.x.rank = 3;
              p.x.shape = {3, 100, 200};
            }),
            "quantize: x has shape [3, 100, 200]; it must have two dimensions, [rows, cols]. Merge "
            "leading dimensions into rows, or call once for each matrix.");
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) {
              p.q.shape = {200, 300};
            }),
            "quantize: q has shape [200, 300]; x has shape [300, 200], and both must be the same. "
            "Give q the shape [300, 200].");
  EXPECT_THAT(dequantize_refusal([](DequantizeProblem& p) {
                p.x.shape = {300, 199};
              }),
              StartsWith("dequantize: x has shape [300, 199]; q has shape [300, 200]"));
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) { p.new_q.shape[0] = 1; }),
              StartsWith("requantize: new_q has shape [1, 200]; q has shape [300, 200]"));
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.x.rank = 5; }),
            "quantize: x has rank 5; a view has 0 to 4 dimensions. Set rank to the number of "
            "extents in shape.");
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.x.rank = -1; }),
              StartsWith("quantize: x has rank -1;"));
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.x.shape[0] = -1; }),
            "quantize: x has shape [-1, 200]; no extent may be negative. Pass 0 for an empty "
            "dimension.");
  EXPECT_EQ(
      quantize_refusal([](QuantizeProblem& p) {
        p.x.shape[0] = std::int64_t{1} << 62;
        p.x.strides[0] = 0;
      }),
      "quantize: x has shape [4611686018427387904, 200] and strides [0, 1]; its elements must "
      "fit in 2^63 bytes. Check for an overflow where the shape was computed.");
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.x.strides[0] = std::int64_t{1} << 61; }),
              HasSubstr("its elements must fit in 2^63 bytes."));
}

TEST(QuantizeRules, memory) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.x.data = nullptr; }),
            "quantize: x has shape [300, 200] and no memory (data is null); a view with elements "
            "needs memory. Pass its address.");
  EXPECT_EQ(
      quantize_refusal(
          [](QuantizeProblem& p) { p.x.data = static_cast<const char*>(p.x.data) + 1; }),
      "quantize: x begins 1 bytes past a multiple of 4; f32 elements must be aligned to their "
      "size. Move the data, or correct the dtype.");
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.q.strides[0] = 0; }),
            "quantize: q has shape [300, 200] and strides [0, 1]; no element may be written twice. "
            "Give every dimension longer than 1 a stride beyond the reach of the smaller ones.");
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.q.strides[0] = 199; }),
              StartsWith("quantize: q has shape [300, 200] and strides [199, 1]; no element may be "
                         "written twice."));
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) {
                p.scale.strides = {0, 0};
              }),
              StartsWith("quantize: scale has shape [3, 2] and strides [0, 0]; no element"));
  EXPECT_THAT(dequantize_refusal([](DequantizeProblem& p) { p.x.strides[1] = 0; }),
              StartsWith("dequantize: x has shape [300, 200] and strides [200, 0]; no element"));
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) { p.new_q.strides[0] = 0; }),
              StartsWith("requantize: new_q has shape [300, 200] and strides [0, 1]; no element"));
}

TEST(QuantizeRules, overlap) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.q.data = const_cast<void*>(p.x.data); }),
            "quantize: q overlaps x in memory; what both would hold then depends on the order of "
            "writing. Give q memory of its own.");
  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) { p.scale.data = p.q.data; }),
              StartsWith("quantize: q overlaps scale in memory;"));
  EXPECT_THAT(
      quantize_refusal([](QuantizeProblem& p) { p.scale.data = const_cast<void*>(p.x.data); }),
      StartsWith("quantize: scale overlaps x in memory;"));
  EXPECT_THAT(
      dequantize_refusal([](DequantizeProblem& p) { p.x.data = const_cast<void*>(p.q.data); }),
      StartsWith("dequantize: x overlaps q in memory;"));
  EXPECT_THAT(
      dequantize_refusal([](DequantizeProblem& p) { p.x.data = const_cast<void*>(p.scale.data); }),
      StartsWith("dequantize: x overlaps scale in memory;"));
  // In place is element by element; one row further is not.
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) {
                p.new_q.data = const_cast<char*>(static_cast<const char*>(p.q.data) + kCols);
              }),
              StartsWith("requantize: new_q overlaps q in memory;"));
  EXPECT_THAT(requantize_refusal(
                  [](RequantizeProblem& p) { p.new_scale.data = const_cast<void*>(p.scale.data); }),
              StartsWith("requantize: new_scale overlaps scale in memory;"));
  EXPECT_THAT(requantize_refusal(
                  [](RequantizeProblem& p) { p.new_q.data = const_cast<void*>(p.scale.data); }),
              StartsWith("requantize: new_q overlaps scale in memory;"));
  EXPECT_THAT(requantize_refusal(
                  [](RequantizeProblem& p) { p.new_scale.data = const_cast<void*>(p.q.data); }),
              StartsWith("requantize: new_scale overlaps q in memory;"));
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) { p.new_scale.data = p.new_q.data; }),
              StartsWith("requantize: new_q overlaps new_scale in memory;"));
}

TEST(QuantizeRules, devices) {
  EXPECT_EQ(
      quantize_refusal([](QuantizeProblem& p) {
        p.q.device = {DeviceKind::kCuda, 1};
      }),
      "quantize: x is on cpu and q is on cuda:1; all tensors of a call must be on one device. "
      "Copy one of them.");
  EXPECT_THAT(dequantize_refusal([](DequantizeProblem& p) {
                p.scale.device = {DeviceKind::kCuda, 0};
              }),
              StartsWith("dequantize: q is on cpu and scale is on cuda:0;"));
}

TEST(QuantizeRules, granularity) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.granularity = ScaleGranularity::kNone; }),
            "quantize: granularity is none; it must be tensor, row, 1x128 or 128x128. For scale 1 "
            "throughout use tensor and a given scale of 1.");
  EXPECT_THAT(
      requantize_refusal([](RequantizeProblem& p) { p.granularity = ScaleGranularity::kNone; }),
      StartsWith("requantize: granularity is none;"));
  EXPECT_THAT(quantize_refusal(
                  [](QuantizeProblem& p) { p.granularity = static_cast<ScaleGranularity>(77); }),
              StartsWith("quantize: granularity is ?;"));
  EXPECT_EQ(
      dequantize_refusal([](DequantizeProblem& p) { p.granularity = ScaleGranularity::kNone; }),
      "dequantize: scale has shape [3, 2] and granularity is none; granularity none takes no "
      "scales. Name the granularity that the scales follow: it is never guessed from their shape.");
}

TEST(QuantizeRules, scale_shapes) {
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) {
              p.scale.shape = {2, 2};
            }),
            "quantize: scale has shape [2, 2]; rows=300, cols=200 of x with 128x128 scales needs "
            "[3, 2] (ceil(rows/128), ceil(cols/128)). See docs/scale_recipes.md.");
  EXPECT_EQ(
      quantize_refusal([](QuantizeProblem& p) { p.granularity = ScaleGranularity::kBlock1x128; }),
      "quantize: scale has shape [3, 2]; rows=300, cols=200 of x with 1x128 scales needs "
      "[300, 2] (rows, ceil(cols/128)). See docs/scale_recipes.md.");
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.granularity = ScaleGranularity::kRow; }),
            "quantize: scale has shape [3, 2]; rows=300, cols=200 of x with row scales needs [300] "
            "or [300, 1]. See docs/scale_recipes.md.");
  EXPECT_EQ(quantize_refusal([](QuantizeProblem& p) { p.granularity = ScaleGranularity::kTensor; }),
            "quantize: scale has shape [3, 2]; rows=300, cols=200 of x with tensor scales needs "
            "[1]. See docs/scale_recipes.md.");
  EXPECT_THAT(dequantize_refusal([](DequantizeProblem& p) { p.scale.rank = 1; }),
              StartsWith("dequantize: scale has shape [3]; rows=300, cols=200 of q with 128x128"));
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) { p.new_scale.shape[1] = 3; }),
              StartsWith("requantize: new_scale has shape [3, 3]; rows=300, cols=200 of q"));
  for (const int rank : {1, 2}) {
    EXPECT_EQ(quantize_refusal([&](QuantizeProblem& p) {
                p.granularity = ScaleGranularity::kRow;
                p.scale.rank = rank;
                p.scale.shape = {300, 1};
                p.scale.strides = {1, 1};
              }),
              "accepted");
  }
}

TEST(QuantizeRules, amax_floor) {
  EXPECT_EQ(
      quantize_refusal([](QuantizeProblem& p) { p.amax_floor = 0; }),
      "quantize: amax_floor is 0; it must be finite and at least 2^-100, so that every scale "
      "stays normal. Leave the default, 0.0001, unless a format's definition says otherwise.");
  for (const float floor : {-1.0F, kNan, kInfinity, 0x1p-101F}) {
    EXPECT_THAT(quantize_refusal([&](QuantizeProblem& p) { p.amax_floor = floor; }),
                StartsWith("quantize: amax_floor is "))
        << floor;
  }
  for (const float floor : {0x1p-100F, 1e-10F, 1.0F, std::numeric_limits<float>::max()}) {
    EXPECT_EQ(quantize_refusal([&](QuantizeProblem& p) { p.amax_floor = floor; }), "accepted");
  }
}

// A scale at fault is named with its value and place, whatever the strides.
TEST(QuantizeRules, C62_bad_scale_values) {
  const auto given = [](float value) {
    return quantize_refusal([&](QuantizeProblem& p) {
      p.scale_source = ScaleSource::kGiven;
      static_cast<float*>(p.scale.data)[3] = value;
    });
  };
  const std::string rule =
      "; scales to quantize with must be finite, positive and from 2^-126 to 2^126, so that their "
      "reciprocals are normal too. Correct it, or let quantize() compute the scales.";
  EXPECT_EQ(given(0.0F), "quantize: scale[1, 1] is 0" + rule);
  EXPECT_EQ(given(-1.0F), "quantize: scale[1, 1] is -1" + rule);
  EXPECT_EQ(given(kNan), "quantize: scale[1, 1] is nan" + rule);
  EXPECT_EQ(given(kInfinity), "quantize: scale[1, 1] is inf" + rule);
  EXPECT_THAT(given(1e-45F), StartsWith("quantize: scale[1, 1] is 1e-45;"));
  EXPECT_EQ(given(3e38F), "quantize: scale[1, 1] is 3e+38" + rule);
  EXPECT_EQ(given(0x1p-126F), "accepted");
  EXPECT_EQ(given(0x1p126F), "accepted");

  EXPECT_THAT(quantize_refusal([](QuantizeProblem& p) {
                p.scale_source = ScaleSource::kGiven;
                p.granularity = ScaleGranularity::kRow;
                p.scale.rank = 1;
                p.scale.shape = {300};
                p.scale.strides = {2};
                static_cast<float*>(p.scale.data)[2 * 299] = kNan;
              }),
              StartsWith("quantize: scale[299] is nan;"));
  for (const std::uint8_t code : {0x00, 0xFE, 0xFF}) {
    EXPECT_THAT(quantize_refusal([&](QuantizeProblem& p) {
                  p.scale_source = ScaleSource::kGiven;
                  p.scale.dtype = DType::kUE8M0;
                  auto* codes = static_cast<std::uint8_t*>(p.scale.data);
                  std::fill_n(codes, 6, std::uint8_t{127});
                  codes[4] = code;
                }),
                StartsWith("quantize: scale[2, 0] is "))
        << int{code};
  }

  const auto read = [](float value) {
    return dequantize_refusal([&](DequantizeProblem& p) {
      const_cast<float*>(static_cast<const float*>(p.scale.data))[1] = value;
    });
  };
  for (const float value : {0.0F, -1.0F, kNan, kInfinity}) {
    EXPECT_THAT(read(value),
                AllOf(StartsWith("dequantize: scale[0, 1] is "),
                      HasSubstr("; scales must be finite and above 0. An all-zero group needs a "
                                "small positive scale (quantize() floors it).")));
  }
  EXPECT_EQ(read(1e-45F), "accepted");
  EXPECT_THAT(requantize_refusal([](RequantizeProblem& p) {
                const_cast<float*>(static_cast<const float*>(p.scale.data))[5] = -0.5F;
              }),
              StartsWith("requantize: scale[2, 1] is -0.5;"));
}

}  // namespace
}  // namespace octavo
