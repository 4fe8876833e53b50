// SPDX-License-Identifier: Apache-2.0
// The algorithm of docs/numerics.md, one dot product at a time, in integers. The vectorised form
// is in tensor_core_products.cpp and is tested against this one.
#include "numerics/tensor_core.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "numerics/codec.hpp"

namespace octavo {
namespace {

constexpr int kF32FractionBits = 23;
constexpr int kF32Bias = 127;
constexpr int kF32MinExponent = -126;
constexpr int kMaxShift = 62;  // a larger shift of the int64 terms here gives 0 as well

// (-1)^negative * significand / 2^fraction_bits * 2^exponent. Subnormals keep the least exponent
// and are not normalised.
struct Split {
  bool negative;
  std::int64_t significand;
  int exponent;
};

struct FormatFields {
  int fraction_bits;
  int bias;
};

FormatFields fields_of(DType format) {
  return format == DType::kE4M3 ? FormatFields{3, 7} : FormatFields{2, 15};
}

Split split_fp8(std::uint8_t code, DType format) {
  const FormatFields fields = fields_of(format);
  const int biased = (code & 0x7F) >> fields.fraction_bits;
  const int fraction = code & ((1 << fields.fraction_bits) - 1);
  const int hidden = biased != 0 ? 1 << fields.fraction_bits : 0;
  return {(code & 0x80) != 0, hidden + fraction, std::max(biased, 1) - fields.bias};
}

Split split_f32(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const auto biased = static_cast<int>((bits >> kF32FractionBits) & 0xFFU);
  const std::int64_t fraction = bits & ((1U << kF32FractionBits) - 1);
  const std::int64_t hidden = biased != 0 ? 1 << kF32FractionBits : 0;
  return {(bits & kF32SignBit) != 0, hidden + fraction, std::max(biased, 1) - kF32Bias};
}

float decode(std::uint8_t code, DType format) {
  return format == DType::kE4M3 ? kFp8Values<E4M3>[code] : kFp8Values<E5M2>[code];
}

// What NaN and Inf among the inputs do, exactly as IEEE on the exact sum.
class Specials {
 public:
  void add(float value) {
    nan_ = nan_ || std::isnan(value);
    if (std::isinf(value)) (value > 0 ? plus_ : minus_) = true;
  }
  [[nodiscard]] bool any() const { return nan_ || plus_ || minus_; }
  [[nodiscard]] float result() const {
    if (nan_ || (plus_ && minus_)) return std::bit_cast<float>(kCanonicalNan);
    const float infinity = std::numeric_limits<float>::infinity();
    return plus_ ? infinity : -infinity;
  }

 private:
  bool nan_ = false;
  bool plus_ = false;
  bool minus_ = false;
};

std::int64_t shift_left(std::int64_t value, int places) {
  return places >= 0 ? value << places : value >> std::min(-places, kMaxShift);
}

// The nonzero sum * 2^(exponent - model.fraction_bits), normalised and cut towards zero.
float normalized(const TensorCoreModel& model, std::int64_t sum, int exponent) {
  const std::int64_t magnitude = sum < 0 ? -sum : sum;
  const int top = std::bit_width(static_cast<std::uint64_t>(magnitude)) - 1;
  const int result_exponent = exponent + top - model.fraction_bits;
  std::int64_t significand = shift_left(magnitude, model.result_fraction_bits - top);
  // FP32 subnormals keep multiples of 2^(-126 - result_fraction_bits) only.
  const int below_normal = std::max(0, kF32MinExponent - result_exponent);
  significand >>= std::min(below_normal, kMaxShift);
  const float value = std::ldexp(static_cast<float>(significand),
                                 result_exponent + below_normal - model.result_fraction_bits);
  return sum < 0 ? -value : value;
}

}  // namespace

float tensor_core_step(const TensorCoreModel& model, const std::uint8_t* a, std::int64_t a_stride,
                       DType a_format, const std::uint8_t* b, std::int64_t b_stride, DType b_format,
                       int count, const float* c) noexcept {
  Specials specials;
  // The largest exponent of a nonzero term; below every possible one if there is none.
  constexpr int kNone = std::numeric_limits<int>::min();
  int largest = kNone;
  for (int i = 0; i < count; ++i) {
    specials.add(decode(a[i * a_stride], a_format) * decode(b[i * b_stride], b_format));
    const Split x = split_fp8(a[i * a_stride], a_format);
    const Split y = split_fp8(b[i * b_stride], b_format);
    if (x.significand * y.significand != 0) largest = std::max(largest, x.exponent + y.exponent);
  }
  const Split accumulator = split_f32(c != nullptr ? *c : 0.0F);
  if (c != nullptr) specials.add(*c);
  if (specials.any()) return specials.result();
  if (accumulator.significand != 0) largest = std::max(largest, accumulator.exponent);
  if (largest == kNone) return 0.0F;

  const int product_bits = fields_of(a_format).fraction_bits + fields_of(b_format).fraction_bits;
  std::int64_t sum = 0;
  for (int i = 0; i < count; ++i) {
    const Split x = split_fp8(a[i * a_stride], a_format);
    const Split y = split_fp8(b[i * b_stride], b_format);
    const std::int64_t product = x.significand * y.significand;
    if (product == 0) continue;  // its exponent may be above the largest
    const int below = std::min(largest - (x.exponent + y.exponent), kMaxShift);
    const std::int64_t term = shift_left(product, model.fraction_bits - product_bits) >> below;
    sum += x.negative != y.negative ? -term : term;
  }
  if (accumulator.significand != 0) {
    const int below = std::min(largest - accumulator.exponent, kMaxShift);
    const std::int64_t term =
        shift_left(accumulator.significand, model.fraction_bits - kF32FractionBits) >> below;
    sum += accumulator.negative ? -term : term;
  }
  return sum == 0 ? 0.0F : normalized(model, sum, largest);
}

float tensor_core_dot(const TensorCoreModel& model, const CodeMatrix& a, std::int64_t a_row,
                      const CodeMatrix& b, std::int64_t b_row, std::int64_t k,
                      const float* c) noexcept {
  float accumulator = c != nullptr ? *c : 0.0F;
  const float* carried = c;
  const std::uint8_t* a_codes = a.codes + a_row * a.row_stride;
  const std::uint8_t* b_codes = b.codes + b_row * b.row_stride;
  for (std::int64_t begin = 0; begin < k; begin += model.group) {
    const auto count = static_cast<int>(std::min<std::int64_t>(model.group, k - begin));
    accumulator =
        tensor_core_step(model, a_codes + begin * a.k_stride, a.k_stride, a.format,
                         b_codes + begin * b.k_stride, b.k_stride, b.format, count, carried);
    carried = &accumulator;
  }
  return accumulator;
}

}  // namespace octavo
