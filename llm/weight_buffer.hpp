// SPDX-License-Identifier: Apache-2.0
// Bytes of one weight or one cache: zeroed, aligned and, where the system grants it, in huge pages.
// PERF: decoding walks through every weight once per token; with 4 KiB pages the processor's
// address translation misses on each of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

namespace octavo::llm {

class WeightBuffer {
 public:
  WeightBuffer() = default;
  // Throws std::bad_alloc.
  explicit WeightBuffer(std::size_t size_bytes);

  [[nodiscard]] std::size_t size_bytes() const noexcept { return size_bytes_; }

  template <typename T>
  [[nodiscard]] T* as() noexcept {
    return reinterpret_cast<T*>(bytes_.get());
  }
  template <typename T>
  [[nodiscard]] const T* as() const noexcept {
    return reinterpret_cast<const T*>(bytes_.get());
  }

 private:
  struct Free {
    void operator()(std::byte* bytes) const noexcept;
  };

  std::unique_ptr<std::byte, Free> bytes_;
  std::size_t size_bytes_ = 0;
};

}  // namespace octavo::llm
