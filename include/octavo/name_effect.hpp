// SPDX-License-Identifier: Apache-2.0
// Whether a kernel's name changes its machine code. ptxas looks for the word "cutlass" in an
// entry's own symbol and then compiles some kernels in another way, for better or worse
// (docs/kernel_names.md). Works on any PTX; no GPU is needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace octavo {

enum class NameVerdict : std::uint8_t {
  // The same bytes: instructions and everything else that is kept for the function; or, where the
  // assembler gives several codes for the same text from run to run, one of them in common.
  kIdentical,
  kReordered,  // the same instructions, each as often, in another order or with other registers
  kDifferent,  // others, or the same with other metadata
};
[[nodiscard]] constexpr const char* to_string(NameVerdict verdict) noexcept {
  switch (verdict) {
    case NameVerdict::kIdentical: return "identical";
    case NameVerdict::kReordered: return "reordered";
    case NameVerdict::kDifferent: return "different";
  }
  return "?";
}

// One function's machine code under one name.
struct NamedCode {
  std::string name;
  std::size_t text_bytes = 0;
  std::size_t num_instructions = 0;
  int registers = 0;  // of a thread as it is launched
  int stack_bytes = 0;
  int spill_store_bytes = 0;
  int spill_load_bytes = 0;
  std::size_t shared_bytes = 0;  // static
  // Different ones in some runs of the assembler on the same text; 1 unless both versions differ at
  // first sight.
  int num_codes = 1;
  // What else the cubin holds for the function, by its section: ".nv.capmerc.text" and others.
  std::map<std::string, std::size_t> section_bytes;
};

// How often an operation occurs under both names; where they differ only.
struct OperationCount {
  std::string operation;
  std::size_t plain = 0;
  std::size_t with_word = 0;
};

struct NameComparison {
  std::string entry;  // as in the PTX
  bool has_word;      // it had the word; the plain name is then the changed one
  std::vector<std::size_t> parameter_bytes;  // 0: of a type that is not known
  NamedCode plain;
  NamedCode with_word;
  NameVerdict verdict;
  // In words, what differs; empty if nothing does.
  std::vector<std::string> differences;
  std::vector<OperationCount> operations;
};

struct NameEffectOptions {
  std::string ptxas;         // a path; empty: as found, else nvJitLink
  std::string architecture;  // such as sm_90a; empty: what the PTX says
  int optimization = 3;      // -O0 to -O4
};

struct NameEffectReport {
  std::string target;        // what the PTX says
  std::string architecture;  // that it was assembled for
  std::string assembler;     // as in "ptxas 13.0.88"; nvJitLink's code differs from ptxas's
  // As in "nvdisasm 13.0.85"; empty: none was found, and operations are numbers (bits 0 to 11 of an
  // instruction), without modifiers.
  std::string disassembler;
  std::vector<NameComparison> entries;
  // The module under both names; loadable on a GPU of the architecture.
  std::vector<std::byte> plain_cubin;
  std::vector<std::byte> with_word_cubin;
};

// Both assemblies of each entry of a module, compared. `file`: for messages. Throws Error: kBadFile
// with line and column if the text is no PTX or the assembler refuses it, kEnvironment where there
// is no assembler, kInvalidArgument for an optimization that there is not.
[[nodiscard]] NameEffectReport compare_names(std::string_view ptx, std::string_view file,
                                             const NameEffectOptions& options = {});

// Times of both versions of a kernel on a GPU.
struct NameTiming {
  // Microseconds a launch, a window each, both versions in turn.
  std::vector<double> plain_us;
  std::vector<double> with_word_us;
  bool same_bits = false;  // of all they wrote
  // Whether the plain version writes the same twice; if not, other bits are not the name's.
  bool is_repeatable = true;
};

// Of an entry of a report whose name is one of Octavo's, for one product [m, n, k] with random
// operands in GPU 0's memory. Throws Error: kInvalidArgument if the name is none or of a kernel for
// many products, kUnsupported if the code is not for this GPU or its plan has no such kernel,
// kEnvironment without a GPU.
[[nodiscard]] NameTiming time_octavo_names(const NameEffectReport& report,
                                           const NameComparison& entry, std::int64_t m,
                                           std::int64_t n, std::int64_t k, int rounds,
                                           double window_ms);

// The PTX of one of Octavo's kernels, by the name that octavo/naming.hpp reads; its
// entry has that name. Throws Error: kInvalidArgument if it is no such name, kEnvironment without
// NVRTC.
[[nodiscard]] std::string octavo_kernel_ptx(std::string_view name);

}  // namespace octavo
