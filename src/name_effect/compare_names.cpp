// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "base/number_before.hpp"
#include "name_effect/assembler.hpp"
#include "name_effect/cubin.hpp"
#include "name_effect/ptx_module.hpp"
#include "octavo/error.hpp"
#include "octavo/name_effect.hpp"

namespace octavo {
namespace {

// Of every GPU since compute capability 7.0.
constexpr std::size_t kInstructionBytes = 16;

// What one of both names compiles to.
struct Side {
  NamedCode named;
  MachineCode code;
  std::vector<std::string> operations;  // in order
};

// ptxas -v: "Function properties for NAME", then a line with its stack and spills.
void read_spills(std::string_view log, NamedCode& code) {
  const std::string opening = fmt::format("Function properties for {}\n", code.name);
  const std::size_t at = log.find(opening);
  if (at == std::string_view::npos) return;
  std::string_view line = log.substr(at + opening.size());
  line = line.substr(0, line.find('\n'));
  code.spill_store_bytes = number_before(line, " bytes spill stores").value_or(0);
  code.spill_load_bytes = number_before(line, " bytes spill loads").value_or(0);
}

// What fills a function up to the next place where one may begin.
bool is_padding(const std::string& operation) { return operation == "NOP" || operation == "0x918"; }

// Without a disassembler: the field of an instruction that says what it does and of which kind its
// operands are.
std::vector<std::string> operation_codes(const std::vector<std::byte>& text) {
  std::vector<std::string> codes;
  for (std::size_t at = 0; at + kInstructionBytes <= text.size(); at += kInstructionBytes) {
    std::uint64_t word = 0;
    std::memcpy(&word, &text[at], sizeof(word));
    constexpr std::uint64_t kOperation = 0xFFF;
    codes.push_back(fmt::format("0x{:03x}", word & kOperation));
  }
  return codes;
}

class Comparison {
 public:
  Comparison(std::string_view ptx, std::string_view file, const NameEffectOptions& options)
      : ptx_(ptx), file_(file), options_(options) {}

  NameEffectReport run() {
    constexpr int kMostOptimization = 4;
    if (options_.optimization < 0 || options_.optimization > kMostOptimization) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("names: optimization {} was given; ptxas has 0 to {}. Give one of "
                              "them.",
                              options_.optimization, kMostOptimization));
    }
    const std::vector<PtxToken> tokens = tokenize_ptx(ptx_, file_).value();
    const PtxModule module = read_ptx_module(tokens, file_).value();
    const std::unique_ptr<Assembler> assembler = make_assembler(options_.ptxas).value();
    const std::optional<Disassembler> disassembler = Disassembler::find(options_.ptxas);
    NameEffectReport report;
    report.target = module.target;
    report.architecture = options_.architecture.empty() ? module.target : options_.architecture;
    report.assembler = assembler->name();

    const std::vector<Renaming> to_word = names_with_word(module, tokens);
    const std::vector<Renaming> from_word = names_without_word(module, tokens);
    const auto assemble = [&](const std::vector<Renaming>& renamings) {
      return assembler
          ->assemble(rename_in_ptx(ptx_, tokens, renamings), file_, report.architecture,
                     options_.optimization)
          .value();
    };
    const auto assemble_again = [&](const std::vector<Renaming>& renamings) {
      // ptxas 13.0 gives some modules one of two codes, by addresses in its own memory.
      constexpr int kMoreRuns = 4;
      std::vector<AssembledModule> modules;
      modules.reserve(kMoreRuns);
      for (int i = 0; i < kMoreRuns; ++i) modules.push_back(assemble(renamings));
      return modules;
    };
    const AssembledModule plain = assemble(from_word);
    const AssembledModule with_word = assemble(to_word);
    // Made when first needed.
    std::vector<AssembledModule> more_plain;
    std::vector<AssembledModule> more_with_word;
    Operations plain_words;
    Operations with_words;
    if (disassembler) {
      Result<Operations> of_plain = disassembler->operations(plain.cubin);
      Result<Operations> of_word = disassembler->operations(with_word.cubin);
      // One of another toolkit may not know the code: numbers do, then.
      if (of_plain.ok() && of_word.ok()) {
        report.disassembler = disassembler->name();
        plain_words = std::move(of_plain.value());
        with_words = std::move(of_word.value());
      }
    }
    const bool is_disassembled = !report.disassembler.empty();
    for (const PtxEntry& entry : module.entries) {
      const auto named = [&entry](const std::vector<Renaming>& renamings) {
        for (const Renaming& renaming : renamings) {
          if (renaming.from == entry.name) return renaming.to;
        }
        return entry.name;
      };
      const Side a = side_of(plain, named(from_word), plain_words, is_disassembled);
      const Side b = side_of(with_word, named(to_word), with_words, is_disassembled);
      NameComparison comparison = compared(entry, a, b);
      if (comparison.verdict != NameVerdict::kIdentical) {
        if (more_plain.empty()) {
          more_plain = assemble_again(from_word);
          more_with_word = assemble_again(to_word);
        }
        compare_runs(codes_of(more_plain, a), codes_of(more_with_word, b), comparison);
      }
      report.entries.push_back(std::move(comparison));
    }
    report.plain_cubin = plain.cubin;
    report.with_word_cubin = with_word.cubin;
    return report;
  }

 private:
  // The codes of this function in all runs, each once, the first run's first.
  static std::vector<MachineCode> codes_of(const std::vector<AssembledModule>& more,
                                           const Side& first) {
    std::vector<MachineCode> codes{first.code};
    for (const AssembledModule& module : more) {
      MachineCode code = machine_code_of(module.cubin, first.named.name).value();
      if (std::find(codes.begin(), codes.end(), code) == codes.end()) {
        codes.push_back(std::move(code));
      }
    }
    return codes;
  }

  static void compare_runs(const std::vector<MachineCode>& plain,
                           const std::vector<MachineCode>& with_word, NameComparison& comparison) {
    comparison.plain.num_codes = static_cast<int>(plain.size());
    comparison.with_word.num_codes = static_cast<int>(with_word.size());
    if (plain.size() == 1 && with_word.size() == 1) return;
    const bool have_common = std::any_of(plain.begin(), plain.end(), [&](const MachineCode& a) {
      return std::find(with_word.begin(), with_word.end(), a) != with_word.end();
    });
    comparison.differences.push_back(fmt::format(
        "the assembler gives {} codes for the plain text and {} for the other, from run to run{}",
        plain.size(), with_word.size(),
        have_common ? "; one of them is the same: what is above is not the name's" : ""));
    if (have_common) comparison.verdict = NameVerdict::kIdentical;
  }

  static Side side_of(const AssembledModule& module, const std::string& name,
                      const Operations& words, bool is_disassembled) {
    Side side;
    side.code = machine_code_of(module.cubin, name).value();
    side.named.name = name;
    side.named.text_bytes = side.code.text.size();
    side.named.registers = side.code.registers;
    side.named.stack_bytes = side.code.stack_bytes;
    read_spills(module.log, side.named);
    for (const auto& [kind, size] : side.code.reserved_bytes) side.named.shared_bytes += size;
    for (const auto& [kind, bytes] : side.code.sections) {
      side.named.section_bytes[kind] = bytes.size();
    }
    const auto found = words.find(name);
    if (is_disassembled && found != words.end()) {
      side.operations = found->second;
    } else {
      side.operations = operation_codes(side.code.text);
    }
    while (!side.operations.empty() && is_padding(side.operations.back())) {
      side.operations.pop_back();
    }
    side.named.num_instructions = side.operations.size();
    return side;
  }

  static NameComparison compared(const PtxEntry& entry, const Side& a, const Side& b) {
    NameComparison result;
    result.entry = entry.name;
    result.has_word = has_name_word(entry.name);
    result.parameter_bytes = entry.parameter_bytes;
    result.plain = a.named;
    result.with_word = b.named;
    add_differences(a, b, result.differences);
    std::map<std::string, OperationCount> counts;
    for (const std::string& operation : a.operations) ++counts[operation].plain;
    for (const std::string& operation : b.operations) ++counts[operation].with_word;
    for (auto& [operation, count] : counts) {
      if (count.plain == count.with_word) continue;
      count.operation = operation;
      result.operations.push_back(count);
    }
    if (result.differences.empty()) {
      result.verdict = NameVerdict::kIdentical;
    } else {
      const bool is_reordered = result.operations.empty() && a.code.text != b.code.text;
      result.verdict = is_reordered ? NameVerdict::kReordered : NameVerdict::kDifferent;
    }
    return result;
  }

  static void add_differences(const Side& a, const Side& b, std::vector<std::string>& differences) {
    const auto number = [&](const char* what, std::size_t x, std::size_t y) {
      if (x != y) differences.push_back(fmt::format("{} {} -> {}", what, x, y));
    };
    const auto count = [&](const char* what, int x, int y) {
      number(what, static_cast<std::size_t>(x), static_cast<std::size_t>(y));
    };
    number("instructions", a.named.num_instructions, b.named.num_instructions);
    count("registers", a.named.registers, b.named.registers);
    count("stack bytes", a.named.stack_bytes, b.named.stack_bytes);
    count("spill store bytes", a.named.spill_store_bytes, b.named.spill_store_bytes);
    count("spill load bytes", a.named.spill_load_bytes, b.named.spill_load_bytes);
    number("shared bytes", a.named.shared_bytes, b.named.shared_bytes);
    add_text_difference(a, b, differences);
    for (const auto& [kind, bytes] : a.code.sections) {
      const auto other = b.code.sections.find(kind);
      if (other == b.code.sections.end()) {
        differences.push_back(fmt::format("section {} is gone", kind));
      } else if (other->second.size() != bytes.size()) {
        number(fmt::format("bytes of {}", kind).c_str(), bytes.size(), other->second.size());
      } else if (other->second != bytes) {
        differences.push_back(fmt::format("other bytes in {}", kind));
      }
    }
    for (const auto& [kind, bytes] : b.code.sections) {
      if (a.code.sections.count(kind) == 0) {
        differences.push_back(fmt::format("section {} is new", kind));
      }
    }
    if (!differences.empty() && a.code.text == b.code.text) {
      differences.emplace_back("the instructions are the same bytes");
    }
  }

  static void add_text_difference(const Side& a, const Side& b,
                                  std::vector<std::string>& differences) {
    if (a.code.text == b.code.text) return;
    if (a.operations == b.operations) {
      differences.emplace_back(
          "the same operations in the same order, with other registers or scheduling");
    }
    const std::size_t size = std::min(a.code.text.size(), b.code.text.size());
    std::size_t num_changed = 0;
    std::size_t first = size;
    for (std::size_t at = 0; at + kInstructionBytes <= size; at += kInstructionBytes) {
      if (std::memcmp(&a.code.text[at], &b.code.text[at], kInstructionBytes) == 0) continue;
      ++num_changed;
      first = std::min(first, at);
    }
    if (num_changed > 0) {
      differences.push_back(
          fmt::format("{} of {} instructions have other bits, the first at 0x{:x}", num_changed,
                      size / kInstructionBytes, first));
    }
  }

  std::string_view ptx_;
  std::string file_;
  const NameEffectOptions& options_;
};

}  // namespace

NameEffectReport compare_names(std::string_view ptx, std::string_view file,
                               const NameEffectOptions& options) {
  return Comparison(ptx, file, options).run();
}

}  // namespace octavo
