// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/process_cache.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <memory>
#include <utility>

#include "cuda/jit/cubin_cache.hpp"
#include "cuda/jit/nvrtc_compiler.hpp"

namespace octavo {
namespace {

Result<std::unique_ptr<CubinCache>> make_cache() {
  Result<KernelCompiler> compiler = nvrtc_compiler();
  if (!compiler.ok()) return compiler.error();
  Result<std::filesystem::path> folder = default_cubin_folder();
  if (!folder.ok()) return folder.error();
  return std::make_unique<CubinCache>(folder.value(), std::move(compiler.value()));
}

}  // namespace

Result<CompiledKernel> planned_kernel(const KernelSource& source) {
  static const Result<std::unique_ptr<CubinCache>> cache = make_cache();
  if (!cache.ok()) return cache.error();
  Result<CompiledKernel> compiled = cache.value()->get_or_compile(source);
  if (!compiled.ok()) return compiled.error();
  const KernelResources& resources = compiled.value().resources;
  if (resources.spill_store_bytes != 0 || resources.spill_load_bytes != 0) {
    return Error(
        ErrorCode::kInternal,
        fmt::format("cuda: {} spills registers ({} bytes stored, {} loaded); planned "
                    "kernels must not. Report this with the compiler's version.",
                    source.entry, resources.spill_store_bytes, resources.spill_load_bytes));
  }
  return compiled;
}

}  // namespace octavo
