// SPDX-License-Identifier: Apache-2.0
#include "name_effect/assembler.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <stdlib.h>  // NOLINT(modernize-deprecated-headers): mkdtemp() is POSIX's

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <span>
#include <system_error>
#include <utility>

#include "base/child_process.hpp"
#include "base/whole_file.hpp"
#include "name_effect/ptx_tokens.hpp"

namespace octavo {
namespace {

namespace fs = std::filesystem;

// A module that keeps ptxas longer is taken as hanging.
constexpr std::chrono::seconds kLimit{300};
constexpr std::uint64_t kMaxCubinBytes = std::uint64_t{1} << 30U;

// A folder of this call's own, gone with it.
class ScratchFolder {
 public:
  ScratchFolder() {
    std::error_code failed;
    std::string pattern = (fs::temp_directory_path(failed) / "octavo-XXXXXX").string();
    if (!failed && ::mkdtemp(pattern.data()) != nullptr) path_ = pattern;
  }
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  ~ScratchFolder() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }

  // Empty if none could be made.
  [[nodiscard]] const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

Error no_folder() {
  return {ErrorCode::kIo,
          "names: no folder for temporary files can be made. Point TMPDIR at one that can be "
          "written."};
}

bool write_file(const fs::path& path, std::span<const std::byte> bytes) {
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  return !file.fail();
}

std::vector<fs::path> tool_folders() {
  std::vector<fs::path> folders;
  const auto add_list = [&folders](const char* variable) {
    const char* value = std::getenv(variable);
    std::string_view list = value == nullptr ? "" : value;
    while (!list.empty()) {
      const std::size_t end = std::min(list.find(':'), list.size());
      if (end > 0) folders.emplace_back(list.substr(0, end));
      list.remove_prefix(std::min(end + 1, list.size()));
    }
  };
  add_list("PATH");
  for (const char* variable : {"CUDA_HOME", "CUDA_PATH"}) {
    if (const char* root = std::getenv(variable)) folders.push_back(fs::path(root) / "bin");
  }
  folders.emplace_back("/usr/local/cuda/bin");
  return folders;
}

std::optional<std::string> tool_in(const fs::path& folder, const char* name) {
  const fs::path path = folder / name;
  std::error_code failed;
  const fs::file_status status = fs::status(path, failed);
  if (failed || !fs::is_regular_file(status) ||
      (status.permissions() & fs::perms::owner_exec) == fs::perms::none) {
    return std::nullopt;
  }
  return path.string();
}

std::optional<std::string> find_tool(const char* name) {
  for (const fs::path& folder : tool_folders()) {
    if (std::optional<std::string> path = tool_in(folder, name)) return path;
  }
  return std::nullopt;
}

// The number of a release as "V13.0.88" in what a tool of NVIDIA's says about itself.
Result<std::string> version_of(const std::string& path) {
  const Result<ChildResult> child = run_child({path, "--version"}, kLimit);
  if (!child.ok()) return child.error();
  const std::string& text = child.value().output;
  const std::size_t at = text.find(", V");
  if (!child.value().succeeded() || at == std::string::npos) {
    return Error(ErrorCode::kEnvironment,
                 fmt::format("{}: it does not say its version; it must be a program of the CUDA "
                             "toolkit. Name another path.",
                             path));
  }
  const std::size_t begin = at + 3;
  return text.substr(begin, text.find_first_not_of("0123456789.", begin) - begin);
}

// The line that ptxas names in "ptxas FILE, line 12; error   : ...".
std::optional<std::uint32_t> line_in(std::string_view log) {
  constexpr std::string_view kMark = ", line ";
  const std::size_t at = log.find(kMark);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view digits = log.substr(at + kMark.size());
  std::uint32_t line = 0;
  const auto [end, status] = std::from_chars(digits.data(), digits.data() + digits.size(), line);
  if (status != std::errc() || end == digits.data()) return std::nullopt;
  return line;
}

std::uint32_t first_column(std::string_view text, std::uint32_t line) {
  for (std::uint32_t i = 1; i < line && !text.empty(); ++i) {
    text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  }
  const std::size_t blanks = text.find_first_not_of(" \t");
  return blanks == std::string_view::npos ? 1 : static_cast<std::uint32_t>(blanks + 1);
}

// Lines of a log that say what is wrong.
std::string errors_in(std::string_view log) {
  constexpr int kMost = 5;
  std::string errors;
  int count = 0;
  for (std::string_view rest = log; !rest.empty() && count < kMost;) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    if (line.find("error") != std::string_view::npos ||
        line.find("fatal") != std::string_view::npos) {
      const std::size_t text = line.find("; ");
      errors += (errors.empty() ? "" : "; ");
      errors += line.substr(text == std::string_view::npos ? 0 : text + 2);
      ++count;
    }
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return errors.empty() ? "it gives no reason" : errors;
}

Error refused(const std::string& who, const std::string& ptx, const std::string& file,
              const std::string& architecture, const std::string& log) {
  const std::string what =
      fmt::format("{} does not take this for {}: {}", who, architecture, errors_in(log));
  const std::optional<std::uint32_t> line = line_in(log);
  if (line) return ptx_error(file, *line, first_column(ptx, *line), what);
  return {ErrorCode::kBadFile, fmt::format("{}: {}. Give PTX for it.", file, what)};
}

class Ptxas : public Assembler {
 public:
  Ptxas(std::string path, std::string version)
      : path_(std::move(path)), version_(std::move(version)) {}

  [[nodiscard]] std::string name() const override { return fmt::format("ptxas {}", version_); }

  [[nodiscard]] Result<AssembledModule> assemble(const std::string& ptx, const std::string& file,
                                                 const std::string& architecture,
                                                 int optimization) const override {
    const ScratchFolder folder;
    // The same names each time: they become part of nothing, but nothing should depend on them.
    const fs::path input = folder.path() / "module.ptx";
    const fs::path output = folder.path() / "module.cubin";
    if (folder.path().empty() || !write_file(input, std::as_bytes(std::span(ptx)))) {
      return no_folder();
    }
    const Result<ChildResult> child =
        run_child({path_, fmt::format("-arch={}", architecture), fmt::format("-O{}", optimization),
                   "-v", "-o", output.string(), input.string()},
                  kLimit);
    if (!child.ok()) return child.error();
    const ChildResult& ended = child.value();
    if (ended.is_late || ended.signal != 0) {
      return Error(
          ErrorCode::kBadFile,
          fmt::format("{}: {} {} on it. Leave the module out, or use another version.", file,
                      name(),
                      ended.is_late ? fmt::format("has not ended after {} s", kLimit.count())
                                    : fmt::format("ended by signal {}", ended.signal)));
    }
    if (ended.exit_code != 0) return refused(name(), ptx, file, architecture, ended.output);
    std::optional<std::vector<std::byte>> cubin = read_whole_file(output, kMaxCubinBytes);
    if (!cubin) {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("{}: {} wrote no machine code for {}; it must be a real architecture "
                      "such as sm_90a. Give one.",
                      file, name(), architecture));
    }
    return AssembledModule{std::move(*cubin), ended.output};
  }

 private:
  std::string path_;
  std::string version_;
};

// The prototypes of nvJitLink.h that are used; 0 is success.
struct NvJitLink {
  int (*create)(void** handle, std::uint32_t count, const char** options) = nullptr;
  int (*destroy)(void** handle) = nullptr;
  int (*add_data)(void* handle, int type, const void* data, std::size_t size,
                  const char* name) = nullptr;
  int (*complete)(void* handle) = nullptr;
  int (*cubin_size)(void* handle, std::size_t* size) = nullptr;
  int (*cubin)(void* handle, void* data) = nullptr;
  int (*error_size)(void* handle, std::size_t* size) = nullptr;
  int (*error)(void* handle, char* text) = nullptr;
  int (*info_size)(void* handle, std::size_t* size) = nullptr;
  int (*info)(void* handle, char* text) = nullptr;
  int (*version)(unsigned* major, unsigned* minor) = nullptr;
};

std::optional<NvJitLink> load_nvjitlink() {
  void* library = nullptr;
  for (const char* file : {"libnvJitLink.so.13", "libnvJitLink.so.12"}) {
    if (library == nullptr) library = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  }
  if (library == nullptr) return std::nullopt;
  NvJitLink link;
  bool has_all = true;
  const auto find = [&]<typename Function>(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(dlsym(library, symbol));
    has_all = has_all && function != nullptr;
  };
  find(link.create, "nvJitLinkCreate");
  find(link.destroy, "nvJitLinkDestroy");
  find(link.add_data, "nvJitLinkAddData");
  find(link.complete, "nvJitLinkComplete");
  find(link.cubin_size, "nvJitLinkGetLinkedCubinSize");
  find(link.cubin, "nvJitLinkGetLinkedCubin");
  find(link.error_size, "nvJitLinkGetErrorLogSize");
  find(link.error, "nvJitLinkGetErrorLog");
  find(link.info_size, "nvJitLinkGetInfoLogSize");
  find(link.info, "nvJitLinkGetInfoLog");
  find(link.version, "nvJitLinkVersion");
  if (!has_all) return std::nullopt;
  return link;
}

class NvJitLinkAssembler : public Assembler {
 public:
  explicit NvJitLinkAssembler(const NvJitLink& link) : link_(link) {
    (void)link_.version(&major_, &minor_);
  }

  [[nodiscard]] std::string name() const override {
    return fmt::format("nvJitLink {}.{}", major_, minor_);
  }

  [[nodiscard]] Result<AssembledModule> assemble(const std::string& ptx, const std::string& file,
                                                 const std::string& architecture,
                                                 int optimization) const override {
    // Its documentation: "Only 0 and 3 are accepted".
    if (optimization != 0 && optimization != 3) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("names: optimization {} was given; {}, which assembles without a "
                               "ptxas, has 0 and 3. Give one of them, or name a ptxas.",
                               optimization, name()));
    }
    const std::string arch = fmt::format("-arch={}", architecture);
    const std::string level = fmt::format("-O{}", optimization);
    const char* options[] = {arch.c_str(), level.c_str(), "-verbose"};
    void* handle = nullptr;
    constexpr int kPtx = 2;  // NVJITLINK_INPUT_PTX
    const bool linked =
        link_.create(&handle, std::size(options), options) == 0 &&
        // The size counts the zero at the end.
        link_.add_data(handle, kPtx, ptx.c_str(), ptx.size() + 1, "module.ptx") == 0 &&
        link_.complete(handle) == 0;
    AssembledModule module;
    std::string errors;
    if (handle != nullptr) {
      module.log = text(handle, link_.info_size, link_.info);
      errors = text(handle, link_.error_size, link_.error);
    }
    std::size_t bytes = 0;
    bool has_cubin = linked && link_.cubin_size(handle, &bytes) == 0;
    if (has_cubin) {
      module.cubin.resize(bytes);
      has_cubin = link_.cubin(handle, module.cubin.data()) == 0;
    }
    if (handle != nullptr) (void)link_.destroy(&handle);
    if (!has_cubin) return refused(name(), ptx, file, architecture, errors);
    return module;
  }

 private:
  static std::string text(void* handle, int (*size)(void*, std::size_t*),
                          int (*get)(void*, char*)) {
    std::size_t bytes = 0;
    if (size(handle, &bytes) != 0 || bytes == 0) return "";
    std::string result(bytes, '\0');
    if (get(handle, result.data()) != 0) return "";
    result.resize(std::min(result.find('\0'), result.size()));
    return result;
  }

  NvJitLink link_;
  unsigned major_ = 0;
  unsigned minor_ = 0;
};

}  // namespace

Result<std::unique_ptr<Assembler>> make_assembler(const std::string& path) {
  std::optional<std::string> ptxas = path;
  if (path.empty()) ptxas = find_tool("ptxas");
  if (ptxas) {
    Result<std::string> version = version_of(*ptxas);
    if (!version.ok()) return version.error();
    return std::unique_ptr<Assembler>(new Ptxas(*ptxas, std::move(version.value())));
  }
  if (const std::optional<NvJitLink> link = load_nvjitlink()) {
    return std::unique_ptr<Assembler>(new NvJitLinkAssembler(*link));
  }
  return Error(ErrorCode::kEnvironment,
               "names: neither ptxas (on PATH, in CUDA_HOME/bin or /usr/local/cuda/bin) nor "
               "libnvJitLink.so is found; one of them must assemble PTX. Install the CUDA toolkit, "
               "or name a ptxas with --ptxas.");
}

std::optional<Disassembler> Disassembler::find(const std::string& ptxas) {
  for (const char* tool : {"nvdisasm", "cuobjdump"}) {
    std::optional<std::string> path;
    if (!ptxas.empty()) path = tool_in(fs::path(ptxas).parent_path(), tool);
    if (!path) path = find_tool(tool);
    if (!path) continue;
    const Result<std::string> version = version_of(*path);
    if (!version.ok()) continue;
    return Disassembler(*path, std::string_view(tool) == "cuobjdump",
                        fmt::format("{} {}", tool, version.value()));
  }
  return std::nullopt;
}

Result<Operations> Disassembler::operations(const std::vector<std::byte>& cubin) const {
  const ScratchFolder folder;
  const fs::path input = folder.path() / "module.cubin";
  if (folder.path().empty() || !write_file(input, cubin)) return no_folder();
  const Result<ChildResult> child =
      run_child({path_, is_cuobjdump_ ? "-sass" : "-c", input.string()}, kLimit);
  if (!child.ok()) return child.error();
  if (!child.value().succeeded()) {
    return Error(ErrorCode::kEnvironment,
                 fmt::format("{} does not read what the assembler wrote ({}). Use one of the same "
                             "toolkit.",
                             name_, child.value().output.substr(0, 200)));
  }
  return parse_disassembly(child.value().output);
}

Operations parse_disassembly(std::string_view text) {
  // nvdisasm opens a function with ".text.NAME:", cuobjdump with "Function : NAME"; both write
  // "/*0040*/  @P0 FFMA.FTZ R1, R2, R3 ;" for an instruction.
  Operations functions;
  std::vector<std::string>* function = nullptr;
  const auto trimmed = [](std::string_view line) {
    const std::size_t begin = line.find_first_not_of(" \t\r");
    if (begin == std::string_view::npos) return std::string_view{};
    return line.substr(begin, line.find_last_not_of(" \t\r") - begin + 1);
  };
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    constexpr std::string_view kSection = ".text.";
    constexpr std::string_view kFunction = "Function : ";
    if (line.starts_with(kSection) && line.ends_with(':')) {
      line.remove_prefix(kSection.size());
      line.remove_suffix(1);
      function = &functions[std::string(line)];
    } else if (line.starts_with(kFunction)) {
      function = &functions[std::string(trimmed(line.substr(kFunction.size())))];
    } else if (function != nullptr && line.starts_with("/*")) {
      const std::size_t close = line.find("*/");
      if (close == std::string_view::npos) continue;
      line = trimmed(line.substr(close + 2));
      if (line.starts_with("{")) line = trimmed(line.substr(1));
      if (line.starts_with("@")) line = trimmed(line.substr(std::min(line.find(' '), line.size())));
      const std::string_view operation = line.substr(0, line.find_first_of(" ;"));
      if (operation.empty() || operation.front() < 'A' || operation.front() > 'Z') continue;
      function->emplace_back(operation);
    }
  }
  return functions;
}

}  // namespace octavo
