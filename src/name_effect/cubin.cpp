// SPDX-License-Identifier: Apache-2.0
#include "name_effect/cubin.hpp"

#include <elf.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

namespace octavo {
namespace {

Error bad_cubin(std::string_view what) {
  return {ErrorCode::kBadFile,
          fmt::format("the assembler's output is no cubin: {}. Use ptxas of the CUDA toolkit 12 or "
                      "13.",
                      what)};
}

class ElfFile {
 public:
  explicit ElfFile(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::optional<Error> open() {
    Elf64_Ehdr header{};
    if (!read(0, header) || std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0 ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
      return bad_cubin("it does not begin as an ELF file of 64 bits");
    }
    if (header.e_shentsize != sizeof(Elf64_Shdr)) return bad_cubin("its table of sections");
    for (std::size_t i = 0; i < header.e_shnum; ++i) {
      Elf64_Shdr section{};
      if (header.e_shoff > bytes_.size() ||
          !read(header.e_shoff + i * sizeof(Elf64_Shdr), section)) {
        return bad_cubin("its table of sections ends early");
      }
      sections_.push_back(section);
    }
    if (header.e_shstrndx >= sections_.size()) return bad_cubin("its sections have no names");
    names_ = contents(sections_[header.e_shstrndx]);
    return std::nullopt;
  }

  [[nodiscard]] const std::vector<Elf64_Shdr>& sections() const { return sections_; }

  // Empty where the section lies outside the file or takes no place in it.
  [[nodiscard]] std::span<const std::byte> contents(const Elf64_Shdr& section) const {
    if (section.sh_type == SHT_NOBITS || section.sh_offset > bytes_.size() ||
        section.sh_size > bytes_.size() - section.sh_offset) {
      return {};
    }
    return bytes_.subspan(section.sh_offset, section.sh_size);
  }

  [[nodiscard]] std::string_view name(const Elf64_Shdr& section) const {
    return string_at(names_, section.sh_name);
  }

  // The index of a function's symbol.
  [[nodiscard]] std::optional<std::uint32_t> symbol(std::string_view function) const {
    for (const Elf64_Shdr& section : sections_) {
      if (section.sh_type != SHT_SYMTAB || section.sh_link >= sections_.size()) continue;
      const std::span<const std::byte> strings = contents(sections_[section.sh_link]);
      const std::span<const std::byte> table = contents(section);
      for (std::size_t i = 0; (i + 1) * sizeof(Elf64_Sym) <= table.size(); ++i) {
        Elf64_Sym symbol{};
        std::memcpy(&symbol, table.data() + i * sizeof(Elf64_Sym), sizeof(symbol));
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC &&
            string_at(strings, symbol.st_name) == function) {
          return static_cast<std::uint32_t>(i);
        }
      }
    }
    return std::nullopt;
  }

 private:
  template <typename Part>
  bool read(std::size_t at, Part& part) const {
    if (at > bytes_.size() || bytes_.size() - at < sizeof(Part)) return false;
    std::memcpy(&part, bytes_.data() + at, sizeof(Part));
    return true;
  }

  static std::string_view string_at(std::span<const std::byte> strings, std::size_t at) {
    if (at >= strings.size()) return {};
    const auto* begin = reinterpret_cast<const char*>(strings.data()) + at;
    return {begin, ::strnlen(begin, strings.size() - at)};
  }

  std::span<const std::byte> bytes_;
  std::vector<Elf64_Shdr> sections_;
  std::span<const std::byte> names_;
};

// Attributes of .nv.info that name a function by its symbol: registers of a thread and bytes of a
// frame (as cuobjdump prints them; NVIDIA documents no format).
constexpr unsigned char kRegisterCount = 0x2F;
constexpr unsigned char kFrameSize = 0x11;

void read_info(std::span<const std::byte> info, std::uint32_t symbol, MachineCode& code) {
  constexpr unsigned char kSized = 4;  // {format, attribute, 16-bit size}, then so many bytes
  std::size_t at = 0;
  while (at + 4 <= info.size()) {
    const auto format = std::to_integer<unsigned char>(info[at]);
    const auto attribute = std::to_integer<unsigned char>(info[at + 1]);
    std::uint16_t size = 0;
    std::memcpy(&size, &info[at + 2], sizeof(size));
    at += 4;
    if (format != kSized) continue;  // the size's place holds its value
    if (size > info.size() - at) return;
    if (size >= 8) {
      std::uint32_t words[2];
      std::memcpy(words, &info[at], sizeof(words));
      if (words[0] == symbol && attribute == kRegisterCount) {
        code.registers = static_cast<int>(words[1]);
      }
      if (words[0] == symbol && attribute == kFrameSize) {
        code.stack_bytes = static_cast<int>(words[1]);
      }
    }
    at += size;
  }
}

}  // namespace

Result<MachineCode> machine_code_of(std::span<const std::byte> cubin, std::string_view function) {
  ElfFile file(cubin);
  if (std::optional<Error> error = file.open()) return *error;
  const std::optional<std::uint32_t> symbol = file.symbol(function);
  if (!symbol) return bad_cubin(fmt::format("it has no function {}", function));
  MachineCode code;
  const std::string ending = fmt::format(".{}", function);
  bool has_text = false;
  for (const Elf64_Shdr& section : file.sections()) {
    const std::string_view name = file.name(section);
    const std::span<const std::byte> bytes = file.contents(section);
    if (name == ".nv.info") read_info(bytes, *symbol, code);
    if (name.size() <= ending.size() || name.substr(name.size() - ending.size()) != ending) {
      continue;
    }
    const std::string kind(name.substr(0, name.size() - ending.size()));
    // Sections of the whole file whose name happens to end like this.
    constexpr std::array kOfFile{".nv", ".nv.merc", ".note.nv", ".debug"};
    if (kind.find(".rel") != std::string::npos ||
        std::find(kOfFile.begin(), kOfFile.end(), kind) != kOfFile.end()) {
      continue;
    }
    if (kind == ".text") {
      code.text.assign(bytes.begin(), bytes.end());
      has_text = true;
    } else if (section.sh_type == SHT_NOBITS) {
      code.reserved_bytes[kind] = section.sh_size;
    } else {
      code.sections[kind].assign(bytes.begin(), bytes.end());
    }
  }
  if (!has_text) return bad_cubin(fmt::format("function {} has no code", function));
  return code;
}

}  // namespace octavo
