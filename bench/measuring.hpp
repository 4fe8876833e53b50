// SPDX-License-Identifier: Apache-2.0
// What the CPU benchmarks need besides a clock: rings of copies, reads of memory, quantiles.
#pragma once

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "measure/quantile.hpp"

namespace octavo::bench {

// Memory in huge pages where the system grants them. With 4 KiB pages a guest of a hypervisor
// spends more time walking page tables than reading, whoever reads.
template <typename T>
class HugePageArray {
 public:
  explicit HugePageArray(std::size_t count) : count_(count) {
    constexpr std::size_t kHugePage = std::size_t{2} << 20U;
    const std::size_t bytes = (count * sizeof(T) + kHugePage - 1) / kHugePage * kHugePage;
    memory_.reset(static_cast<T*>(std::aligned_alloc(kHugePage, bytes)));
    if (memory_ == nullptr) throw std::bad_alloc();
    // Advice only: where it is refused, ordinary pages serve.
    (void)::madvise(memory_.get(), bytes, MADV_HUGEPAGE);
    std::memset(static_cast<void*>(memory_.get()), 1, bytes);
  }
  [[nodiscard]] T* data() const { return memory_.get(); }
  [[nodiscard]] std::size_t size() const { return count_; }

 private:
  struct Free {
    void operator()(T* memory) const { std::free(memory); }
  };
  std::size_t count_;
  std::unique_ptr<T, Free> memory_;
};

// Copies of one matrix, walked through in a ring.
template <typename T>
class Rotation {
 public:
  Rotation(const std::vector<T>& one, double min_bytes)
      : one_elements_(one.size()),
        num_copies_(std::max<std::size_t>(
            1, static_cast<std::size_t>(
                   std::ceil(min_bytes / static_cast<double>(one.size() * sizeof(T)))))),
        memory_(one_elements_ * num_copies_) {
    for (std::size_t i = 0; i < num_copies_; ++i) {
      std::copy(one.begin(), one.end(), memory_.data() + i * one_elements_);
    }
  }
  const T* next() {
    next_ = (next_ + 1) % num_copies_;
    return memory_.data() + next_ * one_elements_;
  }

 private:
  std::size_t one_elements_;
  std::size_t num_copies_;
  std::size_t next_ = 0;
  HugePageArray<T> memory_;
};

using measure::quantile;

// Calls work(part) for each of num_threads parts of [0, bytes).
inline void in_parts(int num_threads, std::size_t bytes,
                     const std::function<void(std::size_t, std::size_t)>& work) {
  std::vector<std::thread> threads;
  const std::size_t part = bytes / static_cast<std::size_t>(num_threads);
  for (int i = 1; i < num_threads; ++i) {
    threads.emplace_back(work, static_cast<std::size_t>(i) * part, part);
  }
  work(0, part);
  for (std::thread& thread : threads) thread.join();
}

// PERF: asking two pages ahead hides page walks: 10 to 20 % more on a Sapphire Rapids guest.
__attribute__((target_clones("avx512f", "avx2", "default"))) inline std::uint64_t read_all(
    const unsigned char* memory, std::size_t bytes) {
  using Vector = std::uint64_t __attribute__((vector_size(64)));
  constexpr std::size_t kVectors = 4;
  constexpr std::size_t kPrefetchBytes = 8192;
  std::array<Vector, kVectors> sums{};
  for (std::size_t i = 0; i + kVectors * sizeof(Vector) <= bytes; i += kVectors * sizeof(Vector)) {
    for (std::size_t j = 0; j < kVectors; ++j) {
      __builtin_prefetch(memory + i + j * sizeof(Vector) + kPrefetchBytes);
      Vector value;
      std::memcpy(&value, memory + i + j * sizeof(Vector), sizeof(Vector));
      sums[j] ^= value;
    }
  }
  std::uint64_t total = 0;
  for (const Vector& sum : sums) {
    for (int lane = 0; lane < 8; ++lane) total ^= sum[lane];
  }
  return total;
}

// Uses a value so that computing it is not left out.
inline void consume(std::uint64_t value) { asm volatile("" : : "r"(value) : "memory"); }

}  // namespace octavo::bench
