// SPDX-License-Identifier: Apache-2.0
// The single pass over an untrusted GGUF file that fills a GgufFile. Internal to gguf_reader.cpp
// and gguf_parser.cpp; callers use gguf_reader.hpp.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "llm/byte_cursor.hpp"
#include "llm/gguf_reader.hpp"

namespace octavo::llm {

[[nodiscard]] std::string_view gguf_type_name(GgufType type) noexcept;

class GgufFile::Parser {
 public:
  // Fills `file`, whose name is already set. Both arguments must outlive the parser.
  Parser(std::span<const std::byte> bytes, GgufFile& file)
      : bytes_(bytes), file_(file), cursor_(bytes, file.name_) {}

  void run();

 private:
  void read_header();
  void read_metadata();
  void read_tensor_infos();
  void place_tensors();

  [[nodiscard]] GgufType read_type(std::string_view key);
  [[nodiscard]] Value read_value(std::string_view key);
  void skip_array_elements(GgufType type, std::uint64_t count, int depth, std::string_view key);
  void check_bool(std::uint8_t stored, std::string_view key) const;

  std::span<const std::byte> bytes_;
  GgufFile& file_;
  ByteCursor cursor_;
  std::uint64_t num_tensors_ = 0;
  std::uint64_t num_values_ = 0;
  std::vector<std::uint64_t> tensor_offsets_;  // from the start of the data section
};

}  // namespace octavo::llm
