// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/source_dump.hpp"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>

#include "cuda/jit/embedded_headers.hpp"

namespace octavo {
namespace {

bool write_file(const std::filesystem::path& path, std::string_view text) {
  std::error_code status;
  std::filesystem::create_directories(path.parent_path(), status);
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(text.data(), static_cast<std::streamsize>(text.size()));
  file.close();
  return file.good();
}

}  // namespace

std::string dump_source(const KernelSource& source, const std::string& folder) {
  if (folder.empty()) {
    return "To repeat it by hand, set OCTAVO_JIT_DUMP to a folder and run again: the source is "
           "kept "
           "there and the nvcc command is shown here.";
  }
  const std::filesystem::path root = std::filesystem::path(folder) / source.entry;
  const std::filesystem::path file = root / (source.entry + ".cu");
  bool written = write_file(file, source.text);
  for (const EmbeddedHeader& header : embedded_headers()) {
    written = written && write_file(root / header.name, header.text);
  }
  if (!written) {
    return fmt::format(
        "OCTAVO_JIT_DUMP names {}, which could not be written. Set it to a folder that can.",
        folder);
  }
  // nvcc has no -default-device; --expt-relaxed-constexpr covers the contract's constexpr
  // functions.
  return fmt::format(
      "To repeat it: nvcc -arch=sm_90a -std=c++20 --expt-relaxed-constexpr -diag-suppress=177 "
      "-Xptxas=-v -Xptxas=--warn-on-spills -I '{}' -cubin -o '{}' '{}'",
      root.string(), (root / (source.entry + ".cubin")).string(), file.string());
}

}  // namespace octavo
