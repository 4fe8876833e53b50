// SPDX-License-Identifier: Apache-2.0
// Reads little-endian fields from untrusted bytes, refusing to pass their end. Nothing is
// allocated: strings are views into the bytes. Used by gguf_reader.cpp.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace octavo::llm {

static_assert(std::endian::native == std::endian::little,
              "checkpoint files are little-endian and are read in place");

class ByteCursor {
 public:
  // `file` names the file in errors and must outlive the cursor.
  ByteCursor(std::span<const std::byte> bytes, std::string_view file) noexcept
      : bytes_(bytes), file_(file) {}

  [[nodiscard]] std::uint64_t position() const noexcept { return position_; }
  [[nodiscard]] std::uint64_t remaining() const noexcept { return bytes_.size() - position_; }

  // `what` names the field in the error.
  template <typename T>
  [[nodiscard]] T read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    T value;
    std::memcpy(&value, take(sizeof(T), what).data(), sizeof(T));
    return value;
  }

  // A u64 length followed by that many bytes.
  [[nodiscard]] std::string_view read_string(std::string_view what);

  // The next `count` bytes.
  std::span<const std::byte> take(std::uint64_t count, std::string_view what);

 private:
  std::span<const std::byte> bytes_;
  std::string_view file_;
  std::uint64_t position_ = 0;
};

}  // namespace octavo::llm
