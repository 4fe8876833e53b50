// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/cubin_cache.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/environment.hpp"
#include "base/hex.hpp"
#include "base/sha256.hpp"

namespace octavo {
namespace {

std::string file_name(const KernelSource& source, const CubinKey& key) {
  return source.entry + "-" + hex_of(key) + ".cubin";
}

}  // namespace

Result<std::filesystem::path> default_cubin_folder() {
  if (!environment().ok()) return environment().error();
  return std::filesystem::path(environment().value().cache_dir);
}

CubinCache::CubinCache(std::filesystem::path folder, KernelCompiler compiler)
    : folder_(std::move(folder)), compiler_(std::move(compiler)) {}

CubinKey CubinCache::key_of(const KernelSource& source) const {
  Sha256 hash;
  hash.update_field(fmt::format("octavo cubin {}", kCubinFormatVersion));
  hash.update_field(compiler_.identity);
  hash.update_field(source.entry);
  hash.update_field(source.text);
  const Sha256Digest digest = hash.finish();
  CubinKey key{};
  std::copy_n(digest.begin(), key.size(), key.begin());
  return key;
}

std::filesystem::path CubinCache::path_of(const KernelSource& source) const {
  return folder_ / file_name(source, key_of(source));
}

Result<CompiledKernel> CubinCache::load_or_compile(const KernelSource& source,
                                                   const CubinKey& key) const {
  if (folder_.empty()) return compiler_.compile(source);
  const std::filesystem::path path = folder_ / file_name(source, key);
  if (std::optional<CompiledKernel> kernel = read_cubin_file(path, key)) return std::move(*kernel);
  Result<CompiledKernel> compiled = compiler_.compile(source);
  // Not written: the kernel is still there for this process.
  if (compiled.ok()) (void)write_cubin_file(path, key, compiled.value());
  return compiled;
}

Result<CompiledKernel> CubinCache::get_or_compile(const KernelSource& source) {
  if (const Status status = check_entry_name(source); !status.ok()) return status.error();
  const CubinKey key = key_of(source);
  std::promise<Result<CompiledKernel>> promise;
  std::shared_future<Result<CompiledKernel>> kernel;
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    const auto [place, inserted] = kernels_.try_emplace(key);
    if (inserted) place->second = promise.get_future().share();
    kernel = place->second;
    is_first = inserted;
  }
  if (is_first) {
    const auto forget = [&] {
      const std::lock_guard lock(mutex_);
      kernels_.erase(key);
    };
    try {
      Result<CompiledKernel> result = load_or_compile(source, key);
      if (!result.ok()) forget();
      promise.set_value(std::move(result));
    } catch (...) {
      forget();
      promise.set_exception(std::current_exception());
    }
  }
  return kernel.get();
}

}  // namespace octavo
