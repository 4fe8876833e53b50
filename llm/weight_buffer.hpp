// SPDX-License-Identifier: Apache-2.0
// Bytes of one weight or one cache: zeroed, aligned and, where the system grants it, in huge pages.
// PERF: decoding walks through every weight once per token; with 4 KiB pages the processor's
// address translation misses on each of them. Most weights are smaller than a huge page, so those
// of a model share blocks: WeightArena.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace octavo::llm {

class WeightBuffer {
 public:
  WeightBuffer() = default;
  // Throws std::bad_alloc.
  explicit WeightBuffer(std::size_t size_bytes);
  WeightBuffer(WeightBuffer&&) noexcept = default;
  WeightBuffer& operator=(WeightBuffer&&) noexcept = default;
  WeightBuffer(const WeightBuffer&) = delete;
  WeightBuffer& operator=(const WeightBuffer&) = delete;

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
  friend class WeightArena;
  std::shared_ptr<std::byte> bytes_;  // shared with the other buffers of an arena's block only
  std::size_t size_bytes_ = 0;
};

// Hands out buffers one after another from large blocks. A block lives as long as any buffer in it.
class WeightArena {
 public:
  // Throws std::bad_alloc.
  [[nodiscard]] WeightBuffer allocate(std::size_t size_bytes);

 private:
  std::shared_ptr<std::byte> block_;
  std::size_t block_bytes_ = 0;
  std::size_t used_bytes_ = 0;
};

}  // namespace octavo::llm
