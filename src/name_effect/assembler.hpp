// SPDX-License-Identifier: Apache-2.0
// PTX to machine code by ptxas, or by nvJitLink where there is no ptxas; and machine code to words
// by nvdisasm or cuobjdump.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "octavo/error.hpp"

namespace octavo {

struct AssembledModule {
  std::vector<std::byte> cubin;
  std::string log;  // as of ptxas -v
};

class Assembler {
 public:
  virtual ~Assembler() = default;

  // As in "ptxas 13.0.88".
  [[nodiscard]] virtual std::string name() const = 0;
  // `file`: for messages, which name its line and column where the assembler names a line.
  [[nodiscard]] virtual Result<AssembledModule> assemble(const std::string& ptx,
                                                         const std::string& file,
                                                         const std::string& architecture,
                                                         int optimization) const = 0;
};

// `path`: a ptxas; empty: the first of PATH's, CUDA_HOME's and /usr/local/cuda's, else nvJitLink.
// Error kEnvironment where there is none.
[[nodiscard]] Result<std::unique_ptr<Assembler>> make_assembler(const std::string& path);

// Every function's instructions in order, by its name: the operation with its modifiers, without
// predicate and operands.
using Operations = std::map<std::string, std::vector<std::string>>;

class Disassembler {
 public:
  // nvdisasm or else cuobjdump: the one beside `ptxas`, if that is a path, else as a ptxas is
  // found.
  [[nodiscard]] static std::optional<Disassembler> find(const std::string& ptxas);

  // As in "nvdisasm 13.0.85".
  [[nodiscard]] const std::string& name() const { return name_; }

  [[nodiscard]] Result<Operations> operations(const std::vector<std::byte>& cubin) const;

 private:
  Disassembler(std::string path, bool is_cuobjdump, std::string name)
      : path_(std::move(path)), is_cuobjdump_(is_cuobjdump), name_(std::move(name)) {}

  std::string path_;
  bool is_cuobjdump_;
  std::string name_;
};

// Of what either program prints. Visible for tests.
[[nodiscard]] Operations parse_disassembly(std::string_view text);

}  // namespace octavo
