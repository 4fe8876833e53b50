// SPDX-License-Identifier: Apache-2.0
// Looks at the folder of compiled kernels without changing it.
#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

#include "cuda/jit/cubin_cache.hpp"
#include "cuda/jit/cubin_file.hpp"
#include "octavo/runtime.hpp"

namespace octavo {
namespace {

constexpr std::string_view kSuffix = ".cubin";

// The key at the end of a name that cubin_cache.cpp made: <entry>-<32 hex digits>.cubin.
std::optional<CubinKey> key_in(std::string_view name) {
  name.remove_suffix(kSuffix.size());
  constexpr std::size_t kDigits = 2 * kCubinKeyBytes;
  if (name.size() < kDigits + 1 || name[name.size() - kDigits - 1] != '-') return std::nullopt;
  const char* digits = name.data() + name.size() - kDigits;
  CubinKey key{};
  for (std::byte& byte : key) {
    unsigned value = 0;
    constexpr int kHexadecimal = 16;
    const auto [end, status] = std::from_chars(digits, digits + 2, value, kHexadecimal);
    if (status != std::errc() || end != digits + 2) return std::nullopt;
    byte = static_cast<std::byte>(value);
    digits += 2;
  }
  return key;
}

// The folder if it is there, else what would have to be written to make it.
std::filesystem::path nearest_existing(std::filesystem::path folder) {
  std::error_code ignored;
  while (!std::filesystem::exists(folder, ignored) && folder.has_relative_path()) {
    folder = folder.parent_path();
  }
  return folder.empty() ? std::filesystem::path(".") : folder;
}

}  // namespace

KernelCacheInfo kernel_cache_info() {
  const std::filesystem::path folder = default_cubin_folder().value();
  KernelCacheInfo info;
  info.folder = folder.string();
  if (folder.empty()) {
    info.problem = "neither OCTAVO_CACHE_DIR nor XDG_CACHE_HOME nor HOME names a folder";
    return info;
  }
  const std::filesystem::path existing = nearest_existing(folder);
  std::error_code error;
  info.writable = std::filesystem::is_directory(existing, error) &&
                  ::access(existing.c_str(), W_OK | X_OK) == 0;
  if (!info.writable) info.problem = fmt::format("{} cannot be written", existing.string());
  if (existing != folder) return info;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    std::error_code ignored;
    if (!name.ends_with(kSuffix)) continue;
    ++info.num_files;
    const std::uintmax_t bytes = entry->file_size(ignored);
    if (!ignored) info.num_bytes += static_cast<std::int64_t>(bytes);
    const std::optional<CubinKey> key = key_in(name);
    if (!key || !read_cubin_file(entry->path(), *key)) ++info.num_damaged;
  }
  if (error) info.problem = fmt::format("{} cannot be read ({})", folder.string(), error.message());
  return info;
}

}  // namespace octavo
