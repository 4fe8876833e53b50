// SPDX-License-Identifier: Apache-2.0
// The machine code in a cubin: an ELF file of 64 bits with a section .text.<function> for each
// function and others named after it.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/error.hpp"

namespace octavo {

struct MachineCode {
  std::vector<std::byte> text;
  // What else the file holds for the function, by the section's name without the function's: its
  // bytes, or the size of what is only reserved (shared memory). Relocations are left out: they
  // name symbols by number, and the numbers follow the names.
  std::map<std::string, std::vector<std::byte>> sections;
  std::map<std::string, std::size_t> reserved_bytes;
  int registers = 0;  // of a thread as it is launched
  int stack_bytes = 0;

  friend bool operator==(const MachineCode&, const MachineCode&) = default;
};

// Error kBadFile if it is none or ends early.
[[nodiscard]] Result<MachineCode> machine_code_of(std::span<const std::byte> cubin,
                                                  std::string_view function);

}  // namespace octavo
