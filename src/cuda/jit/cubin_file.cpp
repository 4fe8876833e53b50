// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/cubin_file.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>

#include "base/sha256.hpp"

namespace octavo {
namespace {

static_assert(std::endian::native == std::endian::little, "the fixed part is copied as it lies");

constexpr std::array<char, 8> kMagic = {'O', 'C', 'T', 'C', 'U', 'B', 'I', 'N'};

// The fixed part, without padding: it is written as it lies in memory.
struct FileHead {
  std::array<char, 8> magic;
  CubinKey key;
  std::uint64_t log_bytes;
  std::uint64_t cubin_bytes;
  std::array<std::int32_t, 4> resources;
  std::uint32_t version;
  std::uint32_t reserved;
};
static_assert(sizeof(FileHead) == sizeof(kMagic) + kCubinKeyBytes + 2 * sizeof(std::uint64_t) +
                                      4 * sizeof(std::int32_t) + 2 * sizeof(std::uint32_t));

// Far above any kernel (tens of KB), far below what could trouble a machine.
constexpr std::uint64_t kMaxFileBytes = 64U << 20U;

}  // namespace

std::vector<std::byte> encode_cubin_file(const CubinKey& key, const CompiledKernel& kernel) {
  const KernelResources& resources = kernel.resources;
  const FileHead head = {kMagic,
                         key,
                         kernel.log.size(),
                         kernel.cubin.size(),
                         {resources.registers, resources.stack_bytes, resources.spill_store_bytes,
                          resources.spill_load_bytes},
                         kCubinFormatVersion,
                         0};
  const std::size_t body_bytes = sizeof(head) + kernel.log.size() + kernel.cubin.size();
  std::vector<std::byte> bytes(body_bytes + kSha256Bytes);
  auto end = bytes.begin();
  const auto append = [&end](std::span<const std::byte> part) {
    end = std::copy(part.begin(), part.end(), end);
  };
  append(std::as_bytes(std::span(&head, 1)));
  append(std::as_bytes(std::span(kernel.log)));
  append(kernel.cubin);
  const Sha256Digest digest = sha256(std::span(bytes).first(body_bytes));
  append(digest);
  return bytes;
}

std::optional<CompiledKernel> decode_cubin_file(std::span<const std::byte> bytes,
                                                const CubinKey& key) {
  FileHead head;
  if (bytes.size() < sizeof(head) + kSha256Bytes) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const std::size_t body_bytes = bytes.size() - sizeof(head) - kSha256Bytes;
  if (head.magic != kMagic || head.version != kCubinFormatVersion || head.key != key ||
      head.log_bytes > body_bytes || head.cubin_bytes != body_bytes - head.log_bytes) {
    return std::nullopt;
  }
  const auto content = bytes.first(bytes.size() - kSha256Bytes);
  const Sha256Digest digest = sha256(content);
  if (!std::ranges::equal(digest, bytes.last(kSha256Bytes))) return std::nullopt;
  const auto log = content.subspan(sizeof(head), head.log_bytes);
  const auto cubin = content.last(head.cubin_bytes);
  CompiledKernel kernel;
  kernel.log.assign(reinterpret_cast<const char*>(log.data()), log.size());
  kernel.cubin.assign(cubin.begin(), cubin.end());
  const auto& [registers, stack, spill_stores, spill_loads] = head.resources;
  kernel.resources = {registers, stack, spill_stores, spill_loads};
  return kernel;
}

std::optional<CompiledKernel> read_cubin_file(const std::filesystem::path& path,
                                              const CubinKey& key) {
  const std::optional<std::vector<std::byte>> bytes = read_whole_file(path, kMaxFileBytes);
  if (!bytes) return std::nullopt;
  return decode_cubin_file(*bytes, key);
}

WriteOutcome write_cubin_file(const std::filesystem::path& path, const CubinKey& key,
                              const CompiledKernel& kernel) {
  return write_whole_file(path, encode_cubin_file(key, kernel));
}

}  // namespace octavo
