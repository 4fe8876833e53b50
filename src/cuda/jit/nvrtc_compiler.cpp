// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/nvrtc_compiler.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <optional>
#include <system_error>

#include "base/environment.hpp"
#include "base/hex.hpp"
#include "base/sha256.hpp"
#include "cuda/jit/embedded_headers.hpp"
#include "cuda/jit/ptxas_log.hpp"
#include "cuda/jit/source_dump.hpp"

namespace octavo {
namespace {

// The prototypes of nvrtc.h that are used; a status is 0 on success.
using Program = struct _nvrtcProgram*;
using VersionFunction = int(int* major, int* minor);
using ErrorStringFunction = const char*(int status);
using CreateFunction = int(Program*, const char* text, const char* name, int num_headers,
                           const char* const* headers, const char* const* include_names);
using DestroyFunction = int(Program*);
using CompileFunction = int(Program, int num_options, const char* const* options);
using SizeFunction = int(Program, std::size_t*);
using DataFunction = int(Program, char*);

struct Nvrtc {
  VersionFunction* version = nullptr;
  ErrorStringFunction* error_string = nullptr;
  CreateFunction* create = nullptr;
  DestroyFunction* destroy = nullptr;
  CompileFunction* compile = nullptr;
  SizeFunction* log_size = nullptr;
  DataFunction* log = nullptr;
  SizeFunction* cubin_size = nullptr;
  DataFunction* cubin = nullptr;
  SizeFunction* ptx_size = nullptr;
  DataFunction* ptx = nullptr;

  int major = 0;
  int minor = 0;
  std::string path;
  std::uintmax_t file_bytes = 0;
};

Result<Nvrtc> load_nvrtc() {
  constexpr std::array kNames{"libnvrtc.so.13", "libnvrtc.so.12"};
  void* handle = nullptr;
  std::string reasons;
  for (const char* name : kNames) {
    // Never closed: driver_api.cpp says why.
    if (handle == nullptr) handle = dlopen(name, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    const char* reason = handle == nullptr ? dlerror() : nullptr;
    if (reason != nullptr) reasons += fmt::format("\n  {}", reason);
  }
  if (handle == nullptr) {
    return Error(ErrorCode::kEnvironment,
                 fmt::format("jit: neither libnvrtc.so.13 nor libnvrtc.so.12 opens; CUDA kernels "
                             "are compiled with NVRTC. Install the CUDA toolkit 13 (or its NVRTC "
                             "package) and add its lib folder to LD_LIBRARY_PATH.{}",
                             reasons));
  }
  Nvrtc nvrtc;
  std::string lacking;
  const auto find = [&]<typename Function>(Function*& function, const char* name) {
    function = reinterpret_cast<Function*>(dlsym(handle, name));
    if (function == nullptr) lacking += (lacking.empty() ? "" : ", ") + std::string(name);
  };
  find(nvrtc.version, "nvrtcVersion");
  find(nvrtc.error_string, "nvrtcGetErrorString");
  find(nvrtc.create, "nvrtcCreateProgram");
  find(nvrtc.destroy, "nvrtcDestroyProgram");
  find(nvrtc.compile, "nvrtcCompileProgram");
  find(nvrtc.log_size, "nvrtcGetProgramLogSize");
  find(nvrtc.log, "nvrtcGetProgramLog");
  find(nvrtc.cubin_size, "nvrtcGetCUBINSize");
  find(nvrtc.cubin, "nvrtcGetCUBIN");
  find(nvrtc.ptx_size, "nvrtcGetPTXSize");
  find(nvrtc.ptx, "nvrtcGetPTX");
  Dl_info info{};
  if (nvrtc.version != nullptr && dladdr(reinterpret_cast<void*>(nvrtc.version), &info) != 0 &&
      info.dli_fname != nullptr) {
    nvrtc.path = info.dli_fname;
  }
  if (lacking.empty() && nvrtc.version(&nvrtc.major, &nvrtc.minor) != 0) lacking = "a version";
  if (!lacking.empty()) {
    return Error(ErrorCode::kEnvironment,
                 fmt::format("jit: {} lacks {}. Install NVRTC of the CUDA toolkit 13.",
                             nvrtc.path.empty() ? "NVRTC" : nvrtc.path, lacking));
  }
  std::error_code status;
  nvrtc.file_bytes = std::filesystem::file_size(nvrtc.path, status);
  if (status) nvrtc.file_bytes = 0;
  return nvrtc;
}

const Result<Nvrtc>& loaded_nvrtc() {
  static const Result<Nvrtc> nvrtc = load_nvrtc();
  return nvrtc;
}

std::vector<const char*> compile_options(const Nvrtc& nvrtc, bool to_ptx = false) {
  std::vector<const char*> options = {
      to_ptx ? "--gpu-architecture=compute_90a" : "--gpu-architecture=sm_90a",
      "--std=c++20",
      // Contract functions carry no __device__, so that the host compiles them too.
      "-default-device",
      // By default NVRTC calls setrlimit, for the whole process.
      "--modify-stack-limit=false",
      // "Variable declared but never referenced": happens where a configuration leaves parts out.
      "--diag-suppress=177",
      // One option each: NVRTC does not split lists at commas.
      "--ptxas-options=-v",
      "--ptxas-options=--warn-on-spills",
  };
  // NVRTC's own cache came with 12.9, and the option with it.
  constexpr int kCacheMajor = 12;
  constexpr int kCacheMinor = 9;
  if (nvrtc.major > kCacheMajor || (nvrtc.major == kCacheMajor && nvrtc.minor >= kCacheMinor)) {
    options.push_back("--no-cache");
  }
  return options;
}

// Of the headers' names and texts, which never change while the process runs.
const Sha256Digest& headers_digest() {
  static const Sha256Digest digest = [] {
    Sha256 hash;
    for (const EmbeddedHeader& header : embedded_headers()) {
      hash.update_field(header.name);
      hash.update_field(header.text);
    }
    return hash.finish();
  }();
  return digest;
}

// Owns a program and names what fails.
class Compilation {
 public:
  Compilation(const Nvrtc& nvrtc, const KernelSource& source) : nvrtc_(nvrtc), source_(source) {}
  ~Compilation() {
    if (program_ != nullptr) (void)nvrtc_.destroy(&program_);
  }
  Compilation(const Compilation&) = delete;
  Compilation& operator=(const Compilation&) = delete;

  Result<CompiledKernel> run(const std::string& dump_folder) {
    CompiledKernel kernel;
    const Result<std::string> log = compile(dump_folder, compile_options(nvrtc_));
    if (!log.ok()) return log.error();
    kernel.log = log.value();
    std::size_t bytes = 0;
    if (const int status = nvrtc_.cubin_size(program_, &bytes); status != 0) {
      return call_failed("nvrtcGetCUBINSize", status);
    }
    kernel.cubin.resize(bytes);
    if (const int status = nvrtc_.cubin(program_, reinterpret_cast<char*>(kernel.cubin.data()));
        status != 0) {
      return call_failed("nvrtcGetCUBIN", status);
    }
    return checked(std::move(kernel), dump_folder);
  }

  Result<std::string> run_to_ptx(const std::string& dump_folder) {
    constexpr bool kToPtx = true;
    const Result<std::string> log = compile(dump_folder, compile_options(nvrtc_, kToPtx));
    if (!log.ok()) return log.error();
    std::size_t bytes = 0;
    if (const int status = nvrtc_.ptx_size(program_, &bytes); status != 0) {
      return call_failed("nvrtcGetPTXSize", status);
    }
    std::string ptx(bytes, '\0');
    if (const int status = nvrtc_.ptx(program_, ptx.data()); status != 0) {
      return call_failed("nvrtcGetPTX", status);
    }
    // The size counts the zero at the end.
    ptx.resize(std::min(ptx.find('\0'), ptx.size()));
    return ptx;
  }

 private:
  // Its log.
  Result<std::string> compile(const std::string& dump_folder,
                              const std::vector<const char*>& options) {
    std::vector<const char*> texts;
    std::vector<const char*> names;
    for (const EmbeddedHeader& header : embedded_headers()) {
      texts.push_back(header.text.data());
      names.push_back(header.name);
    }
    const std::string file = source_.entry + ".cu";
    if (const int status =
            nvrtc_.create(&program_, source_.text.c_str(), file.c_str(),
                          static_cast<int>(names.size()), texts.data(), names.data());
        status != 0) {
      return call_failed("nvrtcCreateProgram", status);
    }
    const int compiled = nvrtc_.compile(program_, static_cast<int>(options.size()), options.data());
    std::string log = read_log();
    if (compiled != 0) {
      return Error(
          ErrorCode::kInternal,
          fmt::format("jit: {} does not compile with NVRTC {}.{} ({}). {}\n{}", source_.entry,
                      nvrtc_.major, nvrtc_.minor, nvrtc_.error_string(compiled),
                      dump_source(source_, dump_folder), log));
    }
    return log;
  }

  Error call_failed(const char* call, int status) const {
    return {ErrorCode::kInternal,
            fmt::format("jit: {} gives {} ({}) for {} with NVRTC {}.{} at {}", call, status,
                        nvrtc_.error_string(status), source_.entry, nvrtc_.major, nvrtc_.minor,
                        nvrtc_.path)};
  }

  std::string read_log() const {
    std::size_t bytes = 0;
    if (nvrtc_.log_size(program_, &bytes) != 0 || bytes == 0) return "";
    std::string log(bytes, '\0');
    if (nvrtc_.log(program_, log.data()) != 0) return "";
    // The size counts the zero at the end.
    log.resize(bytes - 1);
    return log;
  }

  Result<CompiledKernel> checked(CompiledKernel kernel, const std::string& dump_folder) const {
    const std::vector<std::string> lost = lost_guarantees(kernel.log);
    if (!lost.empty()) {
      return Error(
          ErrorCode::kInternal,
          fmt::format(
              "jit: {} compiles, but ptxas dropped what its speed stands on: {}. Restructure "
              "the kernel so that ptxas keeps setmaxnreg and asynchronous wgmma. {}\n{}",
              source_.entry, lost.front(), dump_source(source_, dump_folder), kernel.log));
    }
    const std::optional<KernelResources> resources = parse_resources(kernel.log, source_.entry);
    if (!resources) {
      return Error(ErrorCode::kInternal,
                   fmt::format("jit: the log names no kernel {}; its source must define it as "
                               "extern \"C\" __global__. {}\n{}",
                               source_.entry, dump_source(source_, dump_folder), kernel.log));
    }
    kernel.resources = *resources;
    return kernel;
  }

  const Nvrtc& nvrtc_;
  const KernelSource& source_;
  Program program_ = nullptr;
};

}  // namespace

Result<std::string> nvrtc_description() {
  const Result<Nvrtc>& nvrtc = loaded_nvrtc();
  if (!nvrtc.ok()) return nvrtc.error();
  return fmt::format("{}.{}, {}", nvrtc.value().major, nvrtc.value().minor, nvrtc.value().path);
}

namespace {

// What `run` gives for a source that can be compiled here.
template <typename Kernel, typename Run>
Result<Kernel> compiled(const KernelSource& source, const Run& run) {
  if (const Status status = check_entry_name(source); !status.ok()) return status.error();
  if (!environment().ok()) return environment().error();
  const Result<Nvrtc>& nvrtc = loaded_nvrtc();
  if (!nvrtc.ok()) return nvrtc.error();
  Compilation compilation(nvrtc.value(), source);
  return run(compilation, environment().value().jit_dump);
}

}  // namespace

Result<CompiledKernel> compile_kernel(const KernelSource& source) {
  return compiled<CompiledKernel>(source,
                                  [](Compilation& compilation, const std::string& dump_folder) {
                                    return compilation.run(dump_folder);
                                  });
}

Result<std::string> kernel_ptx(const KernelSource& source) {
  return compiled<std::string>(source,
                               [](Compilation& compilation, const std::string& dump_folder) {
                                 return compilation.run_to_ptx(dump_folder);
                               });
}

Result<KernelCompiler> nvrtc_compiler() {
  const Result<Nvrtc>& nvrtc = loaded_nvrtc();
  if (!nvrtc.ok()) return nvrtc.error();
  // The size stands for the build: nvrtcVersion does not tell update releases apart. No path, so
  // that a moved toolkit keeps its kernels.
  std::string identity = fmt::format("NVRTC {}.{} of {} bytes", nvrtc.value().major,
                                     nvrtc.value().minor, nvrtc.value().file_bytes);
  for (const char* option : compile_options(nvrtc.value())) identity += fmt::format(" {}", option);
  identity += " headers " + hex_of(headers_digest());
  return KernelCompiler{std::move(identity), compile_kernel};
}

}  // namespace octavo
