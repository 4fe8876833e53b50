// SPDX-License-Identifier: Apache-2.0
#include "llm/weight_buffer.hpp"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>

namespace octavo::llm {
namespace {

constexpr std::size_t kCacheLine = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20U;  // x86-64's and AArch64's usual one

}  // namespace

WeightBuffer::WeightBuffer(std::size_t size_bytes) : size_bytes_(size_bytes) {
  if (size_bytes == 0) return;
  const std::size_t alignment = size_bytes >= kHugePage ? kHugePage : kCacheLine;
  if (size_bytes > SIZE_MAX - alignment) throw std::bad_alloc();
  const std::size_t rounded = (size_bytes + alignment - 1) / alignment * alignment;
  bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!bytes_) throw std::bad_alloc();
  // Advice only: where it is refused, ordinary pages serve.
  if (alignment == kHugePage) (void)::madvise(bytes_.get(), rounded, MADV_HUGEPAGE);
  std::memset(bytes_.get(), 0, rounded);
}

void WeightBuffer::Free::operator()(std::byte* bytes) const noexcept { std::free(bytes); }

}  // namespace octavo::llm
