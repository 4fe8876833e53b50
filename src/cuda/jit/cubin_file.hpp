// SPDX-License-Identifier: Apache-2.0
// One compiled kernel as a file: its bytes, and writing them so that a reader sees the whole file
// or none. Which file holds what is decided in cubin_cache.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/whole_file.hpp"
#include "cuda/jit/compiled_kernel.hpp"

namespace octavo {

inline constexpr std::size_t kCubinKeyBytes = 16;
using CubinKey = std::array<std::byte, kCubinKeyBytes>;

// Part of the key too, so a new layout never meets an old file.
inline constexpr std::uint32_t kCubinFormatVersion = 1;

// magic, version, key, sizes, resources, log, cubin, SHA-256 of all before it; little-endian.
[[nodiscard]] std::vector<std::byte> encode_cubin_file(const CubinKey& key,
                                                       const CompiledKernel& kernel);

// Nothing unless the bytes are a whole, undamaged file of that key. The bytes may be anything.
[[nodiscard]] std::optional<CompiledKernel> decode_cubin_file(std::span<const std::byte> bytes,
                                                              const CubinKey& key);

// Nothing if the file is missing, unreadable, larger than a kernel can be, or not of that key.
[[nodiscard]] std::optional<CompiledKernel> read_cubin_file(const std::filesystem::path& path,
                                                            const CubinKey& key);

// Replaces the file, or leaves what was there. Creates the folder if need be.
WriteOutcome write_cubin_file(const std::filesystem::path& path, const CubinKey& key,
                              const CompiledKernel& kernel);

}  // namespace octavo
