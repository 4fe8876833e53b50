// SPDX-License-Identifier: Apache-2.0
#include "llm/weight_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace octavo::llm {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20U;  // x86-64's and AArch64's usual one
constexpr std::size_t kArenaBlock = std::size_t{32} << 20U;

std::size_t round_up(std::size_t size_bytes, std::size_t multiple) {
  if (size_bytes > SIZE_MAX - multiple) throw std::bad_alloc();
  return (size_bytes + multiple - 1) / multiple * multiple;
}

// Not zeroed, so that what is never used takes no memory.
std::shared_ptr<std::byte> allocate_aligned(std::size_t size_bytes) {
  const std::size_t alignment = size_bytes >= kHugePage ? kHugePage : kCacheLine;
  const std::size_t rounded = round_up(size_bytes, alignment);
  void* memory = std::aligned_alloc(alignment, rounded);
  if (memory == nullptr) throw std::bad_alloc();
  // Advice only: where it is refused, ordinary pages serve.
  if (alignment == kHugePage) (void)::madvise(memory, rounded, MADV_HUGEPAGE);
  return {static_cast<std::byte*>(memory), [](std::byte* bytes) { std::free(bytes); }};
}

}  // namespace

WeightBuffer::WeightBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  bytes_ = allocate_aligned(size_bytes);
  std::memset(bytes_.get(), 0, size_bytes);
}

WeightBuffer WeightArena::allocate(std::size_t size_bytes) {
  const std::size_t rounded = round_up(size_bytes, kCacheLine);
  if (rounded >= kArenaBlock) return WeightBuffer(size_bytes);
  if (block_bytes_ - used_bytes_ < rounded) {
    block_ = allocate_aligned(kArenaBlock);
    block_bytes_ = kArenaBlock;
    used_bytes_ = 0;
  }
  WeightBuffer buffer;
  buffer.bytes_ = std::shared_ptr<std::byte>(block_, block_.get() + used_bytes_);
  buffer.size_bytes_ = size_bytes;
  std::memset(buffer.bytes_.get(), 0, size_bytes);
  used_bytes_ += rounded;
  return buffer;
}

}  // namespace octavo::llm
