// SPDX-License-Identifier: Apache-2.0
// Public encode() and decode(): one value through codec.hpp.
#include <bit>
#include <cstdint>
#include <string>

#include "numerics/codec.hpp"
#include "octavo/error.hpp"
#include "octavo/quantize.hpp"

namespace octavo {
namespace {

Error not_a_float(const char* operation, DType dtype) {
  return {ErrorCode::kInvalidArgument, std::string(operation) + ": dtype is " + to_string(dtype) +
                                           "; the formats of single values are e4m3, e5m2, ue8m0, "
                                           "bf16, f16 and f32. Name one of these."};
}

// The largest code of a type of 8 or 16 bits.
std::uint32_t largest_code(DType dtype) {
  constexpr std::uint32_t kBitsPerByte = 8;
  return (1U << (kBitsPerByte * static_cast<std::uint32_t>(size_bytes(dtype)))) - 1;
}

Error code_too_large(DType dtype, std::uint32_t code) {
  return {ErrorCode::kInvalidArgument,
          "decode: code is " + std::to_string(code) + "; codes of " + to_string(dtype) +
              " are 0 to " + std::to_string(largest_code(dtype)) + ". Pass one code at a time."};
}

}  // namespace

std::uint32_t encode(DType dtype, float value) {
  switch (dtype) {
    case DType::kE4M3: return E4M3::encode(value);
    case DType::kE5M2: return E5M2::encode(value);
    case DType::kUE8M0: return encode_ue8m0(value);
    case DType::kBF16: return encode_bf16(value);
    case DType::kF16: return encode_f16(value);
    case DType::kF32: return std::bit_cast<std::uint32_t>(value);
    case DType::kI32: break;
  }
  throw not_a_float("encode", dtype);
}

float decode(DType dtype, std::uint32_t code) {
  if (dtype == DType::kF32) return std::bit_cast<float>(code);
  if (dtype == DType::kI32) throw not_a_float("decode", dtype);
  if (code > largest_code(dtype)) throw code_too_large(dtype, code);
  switch (dtype) {
    case DType::kE4M3: return E4M3::decode(static_cast<std::uint8_t>(code));
    case DType::kE5M2: return E5M2::decode(static_cast<std::uint8_t>(code));
    case DType::kUE8M0: return decode_ue8m0(static_cast<std::uint8_t>(code));
    case DType::kBF16: return decode_bf16(static_cast<std::uint16_t>(code));
    case DType::kF16: return decode_f16(static_cast<std::uint16_t>(code));
    default: break;
  }
  throw not_a_float("decode", dtype);
}

}  // namespace octavo
