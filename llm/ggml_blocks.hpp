// SPDX-License-Identifier: Apache-2.0
// The block formats of GGUF tensors: names, sizes, and decoding to float.
// Only formats that carry a whole model well are decoded; the others are known by name so that a
// refusal can say which one was met. The container is gguf_reader.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace octavo::llm {

// Numbers as stored in the file (enum ggml_type of the GGUF specification).
enum class GgmlType : std::uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ6_K = 14,
  kBF16 = 30,
};

// A row of a tensor is a whole number of blocks.
struct GgmlBlockSize {
  std::int64_t elems;
  std::int64_t bytes;
};

// Absent for types that Octavo does not decode.
[[nodiscard]] std::optional<GgmlBlockSize> ggml_block_size(GgmlType type) noexcept;

// "Q4_K" for 12, also for types that are not decoded; "type 99" for a number nobody assigned.
[[nodiscard]] std::string ggml_type_name(GgmlType type);

// The list shown in refusals: "F32, F16, ...".
[[nodiscard]] const char* ggml_decodable_types() noexcept;

// Decodes whole blocks. Throws Error (kInternal) if the sizes do not agree with the type.
void decode_ggml(GgmlType type, std::span<const std::byte> bytes, std::span<float> out);

}  // namespace octavo::llm
