// SPDX-License-Identifier: Apache-2.0
// Files that are there whole or not at all, whenever a writer is killed and however many write.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <vector>

namespace octavo {

enum class WriteOutcome { kWritten, kNotWritten };

// Makes missing folders, writes beside `path` and renames to it.
WriteOutcome write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes);

// What a regular file of at most `max_bytes` holds; nothing if there is none or it cannot be read.
[[nodiscard]] std::optional<std::vector<std::byte>> read_whole_file(
    const std::filesystem::path& path, std::uint64_t max_bytes);

}  // namespace octavo
