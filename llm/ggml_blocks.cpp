// SPDX-License-Identifier: Apache-2.0
// Decoding of GGUF's quantized blocks. See ggml_blocks.hpp.
// Notation: d is a block's scale, m its minimum, q a stored integer; the value is d*q or d*q + m.
#include "llm/ggml_blocks.hpp"

#include <fmt/format.h>

#include <cstring>

#include "llm/element_decode.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

constexpr std::int64_t kBlockElems = 32;        // Q4_0 to Q8_0
constexpr std::int64_t kSuperBlockElems = 256;  // the K family
constexpr std::size_t kHalf = 16;               // a nibble block holds element j and element j + 16
constexpr std::size_t kF16Bytes = 2;
constexpr std::size_t kHighBitsBytes = 4;  // Q5: one fifth bit for each of 32 elements
constexpr unsigned kNibbleMask = 0xF;
constexpr int kNibbleBits = 4;
constexpr int kQ4Zero = 8;
constexpr int kQ5Zero = 16;
constexpr int kQ6Zero = 32;

// Q6_K: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, one f16.
constexpr std::size_t kQ6LowBytes = 128;
constexpr std::size_t kQ6HighBytes = 64;
constexpr std::size_t kQ6Scales = 16;
constexpr std::size_t kQ6Part = 128;  // a super-block is decoded in two parts of 128 elements
constexpr std::size_t kQ6Quarter = 32;
constexpr std::size_t kQ6Group = 16;  // elements that share one signed scale
constexpr unsigned kPairMask = 0x3;

struct TypeRow {
  std::uint32_t number;
  const char* name;
};
constexpr TypeRow kTypeNames[] = {
    {0, "F32"},     {1, "F16"},    {2, "Q4_0"},     {3, "Q4_1"},    {6, "Q5_0"},     {7, "Q5_1"},
    {8, "Q8_0"},    {9, "Q8_1"},   {10, "Q2_K"},    {11, "Q3_K"},   {12, "Q4_K"},    {13, "Q5_K"},
    {14, "Q6_K"},   {15, "Q8_K"},  {16, "IQ2_XXS"}, {17, "IQ2_XS"}, {18, "IQ3_XXS"}, {19, "IQ1_S"},
    {20, "IQ4_NL"}, {21, "IQ3_S"}, {22, "IQ2_S"},   {23, "IQ4_XS"}, {24, "I8"},      {25, "I16"},
    {26, "I32"},    {27, "I64"},   {28, "F64"},     {29, "IQ1_M"},  {30, "BF16"},    {34, "TQ1_0"},
    {35, "TQ2_0"},  {39, "MXFP4"},
};

float read_f16(const std::uint8_t* bytes) noexcept {
  std::uint16_t bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return f16_to_f32(bits);
}

int low_nibble(std::uint8_t byte) noexcept { return static_cast<int>(byte & kNibbleMask); }
int high_nibble(std::uint8_t byte) noexcept { return byte >> kNibbleBits; }

void decode_q4_0(const std::uint8_t* block, float* out) noexcept {
  const float d = read_f16(block);
  const std::uint8_t* q = block + kF16Bytes;
  for (std::size_t j = 0; j < kHalf; ++j) {
    out[j] = d * static_cast<float>(low_nibble(q[j]) - kQ4Zero);
    out[j + kHalf] = d * static_cast<float>(high_nibble(q[j]) - kQ4Zero);
  }
}

void decode_q4_1(const std::uint8_t* block, float* out) noexcept {
  const float d = read_f16(block);
  const float m = read_f16(block + kF16Bytes);
  const std::uint8_t* q = block + 2 * kF16Bytes;
  for (std::size_t j = 0; j < kHalf; ++j) {
    out[j] = d * static_cast<float>(low_nibble(q[j])) + m;
    out[j + kHalf] = d * static_cast<float>(high_nibble(q[j])) + m;
  }
}

// Element j of a Q5 block: its nibble with bit j of `high` above it.
int five_bits(int nibble, std::uint32_t high, std::size_t j) noexcept {
  return nibble | static_cast<int>(((high >> j) & 1U) << kNibbleBits);
}

void decode_q5_0(const std::uint8_t* block, float* out) noexcept {
  const float d = read_f16(block);
  std::uint32_t high;
  std::memcpy(&high, block + kF16Bytes, sizeof(high));
  const std::uint8_t* q = block + kF16Bytes + kHighBitsBytes;
  for (std::size_t j = 0; j < kHalf; ++j) {
    out[j] = d * static_cast<float>(five_bits(low_nibble(q[j]), high, j) - kQ5Zero);
    out[j + kHalf] =
        d * static_cast<float>(five_bits(high_nibble(q[j]), high, j + kHalf) - kQ5Zero);
  }
}

void decode_q5_1(const std::uint8_t* block, float* out) noexcept {
  const float d = read_f16(block);
  const float m = read_f16(block + kF16Bytes);
  std::uint32_t high;
  std::memcpy(&high, block + 2 * kF16Bytes, sizeof(high));
  const std::uint8_t* q = block + 2 * kF16Bytes + kHighBitsBytes;
  for (std::size_t j = 0; j < kHalf; ++j) {
    out[j] = d * static_cast<float>(five_bits(low_nibble(q[j]), high, j)) + m;
    out[j + kHalf] = d * static_cast<float>(five_bits(high_nibble(q[j]), high, j + kHalf)) + m;
  }
}

void decode_q8_0(const std::uint8_t* block, float* out) noexcept {
  const float d = read_f16(block);
  for (std::size_t j = 0; j < static_cast<std::size_t>(kBlockElems); ++j) {
    out[j] = d * static_cast<float>(static_cast<std::int8_t>(block[kF16Bytes + j]));
  }
}

// Within a part of 128 elements, quarter c (32 elements) takes the low or high nibbles of one of
// two runs of 32 bytes, and bits 2c, 2c+1 of one run of 32 bytes.
void decode_q6_k(const std::uint8_t* block, float* out) noexcept {
  const std::uint8_t* scales = block + kQ6LowBytes + kQ6HighBytes;
  const float d = read_f16(scales + kQ6Scales);
  for (std::size_t part = 0; part < static_cast<std::size_t>(kSuperBlockElems) / kQ6Part; ++part) {
    const std::uint8_t* low = block + part * 2 * kQ6Quarter;
    const std::uint8_t* high = block + kQ6LowBytes + part * kQ6Quarter;
    for (std::size_t j = 0; j < kQ6Part; ++j) {
      const std::size_t quarter = j / kQ6Quarter;
      const std::size_t lane = j % kQ6Quarter;
      const std::uint8_t low_byte = low[lane + (quarter % 2) * kQ6Quarter];
      const int nibble = quarter < 2 ? low_nibble(low_byte) : high_nibble(low_byte);
      const unsigned pair = (static_cast<unsigned>(high[lane]) >> (2 * quarter)) & kPairMask;
      const int q = (nibble | static_cast<int>(pair << kNibbleBits)) - kQ6Zero;
      const auto scale = static_cast<std::int8_t>(scales[(part * kQ6Part + j) / kQ6Group]);
      out[part * kQ6Part + j] = d * static_cast<float>(scale) * static_cast<float>(q);
    }
  }
}

template <typename DecodeBlock>
void decode_blocks(GgmlBlockSize size, std::span<const std::byte> bytes, std::span<float> out,
                   DecodeBlock decode_block) {
  const auto* block = reinterpret_cast<const std::uint8_t*>(bytes.data());
  const auto block_elems = static_cast<std::size_t>(size.elems);
  for (std::size_t first = 0; first < out.size(); first += block_elems) {
    decode_block(block, out.data() + first);
    block += size.bytes;
  }
}

}  // namespace

std::optional<GgmlBlockSize> ggml_block_size(GgmlType type) noexcept {
  constexpr std::int64_t kNibbles = kBlockElems / 2;
  constexpr auto kScale = static_cast<std::int64_t>(kF16Bytes);
  constexpr auto kHighBits = static_cast<std::int64_t>(kHighBitsBytes);
  switch (type) {
    case GgmlType::kF32: return GgmlBlockSize{1, sizeof(float)};
    case GgmlType::kF16:
    case GgmlType::kBF16: return GgmlBlockSize{1, sizeof(std::uint16_t)};
    case GgmlType::kQ4_0: return GgmlBlockSize{kBlockElems, kScale + kNibbles};
    case GgmlType::kQ4_1: return GgmlBlockSize{kBlockElems, 2 * kScale + kNibbles};
    case GgmlType::kQ5_0: return GgmlBlockSize{kBlockElems, kScale + kHighBits + kNibbles};
    case GgmlType::kQ5_1: return GgmlBlockSize{kBlockElems, 2 * kScale + kHighBits + kNibbles};
    case GgmlType::kQ8_0: return GgmlBlockSize{kBlockElems, kScale + kBlockElems};
    case GgmlType::kQ6_K:
      return GgmlBlockSize{kSuperBlockElems, static_cast<std::int64_t>(kQ6LowBytes + kQ6HighBytes +
                                                                       kQ6Scales + kF16Bytes)};
  }
  return std::nullopt;
}

std::string ggml_type_name(GgmlType type) {
  for (const TypeRow& row : kTypeNames) {
    if (row.number == static_cast<std::uint32_t>(type)) return row.name;
  }
  return fmt::format("type {}", static_cast<std::uint32_t>(type));
}

const char* ggml_decodable_types() noexcept {
  return "F32, F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0 and Q6_K";
}

void decode_ggml(GgmlType type, std::span<const std::byte> bytes, std::span<float> out) {
  const std::optional<GgmlBlockSize> size = ggml_block_size(type);
  const bool fits = size.has_value() && out.size() % static_cast<std::size_t>(size->elems) == 0 &&
                    bytes.size() == out.size() / static_cast<std::size_t>(size->elems) *
                                        static_cast<std::size_t>(size->bytes);
  if (!fits) {
    throw Error(
        ErrorCode::kInternal,
        fmt::format("decode_ggml: {} bytes of {} for {} elements; the caller must give whole "
                    "blocks of a decodable type. This is a defect of the reader; report it.",
                    bytes.size(), ggml_type_name(type), out.size()));
  }
  switch (type) {
    case GgmlType::kF32: decode_elements(DType::kF32, bytes, out); break;
    case GgmlType::kF16: decode_elements(DType::kF16, bytes, out); break;
    case GgmlType::kBF16: decode_elements(DType::kBF16, bytes, out); break;
    case GgmlType::kQ4_0: decode_blocks(*size, bytes, out, decode_q4_0); break;
    case GgmlType::kQ4_1: decode_blocks(*size, bytes, out, decode_q4_1); break;
    case GgmlType::kQ5_0: decode_blocks(*size, bytes, out, decode_q5_0); break;
    case GgmlType::kQ5_1: decode_blocks(*size, bytes, out, decode_q5_1); break;
    case GgmlType::kQ8_0: decode_blocks(*size, bytes, out, decode_q8_0); break;
    case GgmlType::kQ6_K: decode_blocks(*size, bytes, out, decode_q6_k); break;
  }
}

}  // namespace octavo::llm
