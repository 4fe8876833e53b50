// SPDX-License-Identifier: Apache-2.0
#include "names_ab.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "json_file.hpp"
#include "measure/quantile.hpp"
#include "measure/today.hpp"
#include "names_run.hpp"
#include "octavo/error.hpp"
#include "octavo/name_effect.hpp"
#include "octavo/runtime.hpp"
#include "options.hpp"
#include "result_file.hpp"
#include "table.hpp"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

struct AbOptions {
  std::vector<std::string> paths;
  NameEffectOptions effect;
  std::int64_t optimization = 3;
  bool run = false;
  std::int64_t rounds = 5;
  NameRunOptions how;
  std::string out;
};

// What a folder's manifest.json says about where its files come from.
using Origins = std::map<std::string, Json>;

Origins read_manifest(const fs::path& folder) {
  const fs::path path = folder / "manifest.json";
  Origins origins;
  std::error_code failed;
  if (!fs::is_regular_file(path, failed)) return origins;
  const JsonFile file(path.string(), "manifest");
  const nlohmann::json document = file.parse();
  if (!document.is_object() || !document.contains("files") || !document["files"].is_array()) {
    file.fail("the document", "has no \"files\"", "an object with a list of objects under it");
  }
  for (const nlohmann::json& about : document["files"]) {
    std::string name;
    if (!about.is_object() || !about.contains("file")) {
      file.fail("files", "has an entry without \"file\"", "a list of objects that have it");
    }
    file.read_string(about["file"], "files.file", name);
    Json origin;
    for (const char* field : {"source", "compiler", "compiler_version"}) {
      std::string text;
      if (about.contains(field)) file.read_string(about[field], name + "." + field, text);
      origin[field] = text;
    }
    origins[name] = std::move(origin);
  }
  return origins;
}

struct PtxFile {
  fs::path path;
  std::string name;  // below the folder given
  Json origin;       // null: not known
};

// The files given, and every .ptx below the folders given.
std::vector<PtxFile> ptx_files(const std::vector<std::string>& paths) {
  std::vector<PtxFile> files;
  for (const std::string& given : paths) {
    std::error_code failed;
    if (!fs::is_directory(given, failed)) {
      files.push_back({given, fs::path(given).filename().string(), nullptr});
      continue;
    }
    std::vector<fs::path> found;
    for (fs::recursive_directory_iterator at(given, failed), end; !failed && at != end;
         at.increment(failed)) {
      if (at->path().extension() == ".ptx" && at->is_regular_file(failed)) {
        found.push_back(at->path());
      }
    }
    if (failed || found.empty()) {
      throw Error(ErrorCode::kIo,
                  fmt::format("{}: {}; it must hold .ptx files. Check the path.", given,
                              failed ? "the folder cannot be read" : "no file here ends in .ptx"));
    }
    std::sort(found.begin(), found.end());
    const Origins origins = read_manifest(given);
    for (const fs::path& path : found) {
      std::string name = path.lexically_relative(given).string();
      const auto origin = origins.find(name);
      files.push_back(
          {path, std::move(name), origin == origins.end() ? Json(nullptr) : origin->second});
    }
  }
  return files;
}

std::string read_text(const fs::path& path) {
  std::error_code failed;
  std::ifstream file;
  constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 30U;
  if (fs::is_regular_file(path, failed)) {
    if (fs::file_size(path, failed) > kMostBytes) {
      throw Error(ErrorCode::kBadFile,
                  fmt::format("{}: the file has more than {} bytes. Give smaller "
                              "modules.",
                              path.string(), kMostBytes));
    }
    file.open(path, std::ios::binary);
  }
  std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  if (!file.is_open() || file.bad()) {
    throw Error(ErrorCode::kIo, fmt::format("{}: the file cannot be read; it must be PTX. Check "
                                            "the path.",
                                            path.string()));
  }
  return text;
}

Json to_json(const NamedCode& code) {
  return {{"name", code.name},
          {"text_bytes", code.text_bytes},
          {"instructions", code.num_instructions},
          {"registers", code.registers},
          {"stack_bytes", code.stack_bytes},
          {"spill_store_bytes", code.spill_store_bytes},
          {"spill_load_bytes", code.spill_load_bytes},
          {"shared_bytes", code.shared_bytes},
          {"num_codes", code.num_codes},
          {"section_bytes", code.section_bytes}};
}

// What a run gave: its times, and the plain version's over the other's, in each round and in the
// median (above 1: the word makes it faster).
Json to_json(const NameRun& run) {
  const NameTiming& timing = run.timing;
  std::vector<double> ratios;
  for (std::size_t i = 0; i < timing.plain_us.size(); ++i) {
    ratios.push_back(timing.plain_us[i] / timing.with_word_us[i]);
  }
  const double plain_us = measure::quantile(timing.plain_us, 0.5);
  return {{"plain_us", plain_us},
          {"with_word_us", measure::quantile(timing.with_word_us, 0.5)},
          {"plain_tflops", run.flop > 0 ? Json(run.flop / plain_us * 1e-6) : Json(nullptr)},
          {"speed_with_word", measure::quantile(ratios, 0.5)},
          {"least", measure::quantile(ratios, 0)},
          {"most", measure::quantile(ratios, 1)},
          {"same_bits", timing.same_bits},
          {"is_repeatable", timing.is_repeatable}};
}

Json to_json(const NameComparison& entry) {
  Json operations = Json::object();
  for (const OperationCount& count : entry.operations) {
    operations[count.operation] = {count.plain, count.with_word};
  }
  return {{"entry", entry.entry},
          {"has_word", entry.has_word},
          {"verdict", to_string(entry.verdict)},
          {"differences", entry.differences},
          {"operations", std::move(operations)},
          {"plain", to_json(entry.plain)},
          {"with_word", to_json(entry.with_word)}};
}

std::string text_of(const NameComparison& entry) {
  std::string text = fmt::format(
      "  {}: {}\n    {}", entry.entry, to_string(entry.verdict),
      entry.has_word ? fmt::format("it has the word already; without: {}", entry.plain.name)
                     : fmt::format("with the word: {}", entry.with_word.name));
  text += '\n';
  for (const std::string& difference : entry.differences) {
    text += fmt::format("    {}\n", difference);
  }
  constexpr std::size_t kMostShown = 8;
  std::vector<OperationCount> operations = entry.operations;
  const auto change = [](const OperationCount& count) {
    return std::max(count.plain, count.with_word) - std::min(count.plain, count.with_word);
  };
  std::stable_sort(operations.begin(), operations.end(),
                   [&](const auto& x, const auto& y) { return change(x) > change(y); });
  if (operations.empty()) return text;
  text += "    operations:";
  for (std::size_t i = 0; i < std::min(operations.size(), kMostShown); ++i) {
    text += fmt::format(" {} {} -> {}{}", operations[i].operation, operations[i].plain,
                        operations[i].with_word, i + 1 < operations.size() ? "," : "");
  }
  if (operations.size() > kMostShown) {
    text += fmt::format(" and {} more", operations.size() - kMostShown);
  }
  return text + "\n";
}

std::string text_of(const std::optional<NameRun>& run) {
  if (!run) return "    not run: without a launch file, for another GPU, or for many products\n";
  const Json json = to_json(*run);
  return fmt::format(
      "    {:.2f} us plain, {:.2f} us with the word: {:.4f} times as fast ({:.4f} to {:.4f}); {}\n",
      json["plain_us"].get<double>(), json["with_word_us"].get<double>(),
      json["speed_with_word"].get<double>(), json["least"].get<double>(),
      json["most"].get<double>(),
      !run->timing.is_repeatable
          ? "NOT REPEATABLE: the plain version alone gives other bits each time"
      : run->timing.same_bits ? "the same bits"
                              : "OTHER BITS: the results differ");
}

struct Counts {
  int entries = 0;
  int identical = 0;
  int reordered = 0;
  int different = 0;
  int failed = 0;  // files that are no PTX, and runs that failed

  void add(NameVerdict verdict) {
    ++entries;
    ++(verdict == NameVerdict::kIdentical   ? identical
       : verdict == NameVerdict::kReordered ? reordered
                                            : different);
  }
};

// The GPU that versions were run on.
Json machine() {
  const std::vector<GpuDescription> descriptions = gpus();
  if (descriptions.empty()) return nullptr;
  const GpuDescription& gpu = descriptions.front();
  return {{"gpu", gpu.name}, {"driver", gpu.driver}, {"cuda", gpu.cuda}};
}

void compare(const AbOptions& options, Session& session) {
  const std::vector<PtxFile> files = ptx_files(options.paths);
  Json rows = Json::array();
  Counts counts;
  std::string assembler;
  std::string disassembler;
  for (std::size_t i = 0; i < files.size(); ++i) {
    const std::string name = files[i].path.string();
    session.progress(fmt::format("{}/{} {}", i + 1, files.size(), name));
    Json row = {{"file", files[i].name}, {"origin", files[i].origin}};
    try {
      const NameEffectReport report = compare_names(read_text(files[i].path), name, options.effect);
      assembler = report.assembler;
      disassembler = report.disassembler;
      row["target"] = report.target;
      row["architecture"] = report.architecture;
      row["entries"] = Json::array();
      std::string text = fmt::format("{} ({})\n", name, report.architecture);
      if (report.entries.empty()) text += "  no entries\n";
      for (const NameComparison& entry : report.entries) {
        counts.add(entry.verdict);
        text += text_of(entry);
        row["entries"].push_back(to_json(entry));
        if (!options.run) continue;
        session.progress(fmt::format("{}/{} {}: running", i + 1, files.size(), name));
        try {
          const std::optional<NameRun> run = run_names(report, entry, files[i].path, options.how);
          row["entries"].back()["run"] = run ? to_json(*run) : Json(nullptr);
          text += text_of(run);
          if (run && !run->timing.same_bits) session.finish_with(ExitCode::kCheckFailed);
        } catch (const Error& error) {
          if (files.size() == 1 || error.code() == ErrorCode::kEnvironment) throw;
          ++counts.failed;
          row["entries"].back()["run"] = {{"error", error.what()}};
          text += fmt::format("    not run: {}\n", error.what());
        }
      }
      session.clear_progress();
      session.text(text);
    } catch (const Error& error) {
      // Of many, the others still count; what the machine lacks, all of them lack.
      if (files.size() == 1 || error.code() == ErrorCode::kEnvironment) throw;
      ++counts.failed;
      row["error"] = error.what();
      session.clear_progress();
      session.text(fmt::format("{}\n", error.what()));
    }
    rows.push_back(std::move(row));
  }
  session.clear_progress();
  if (counts.failed > 0) session.finish_with(ExitCode::kCheckFailed);
  session.text(fmt::format(
      "{} entries of {} files by {} -O{}: {} identical, {} reordered, {} different{}\n",
      counts.entries, files.size(), assembler, options.effect.optimization, counts.identical,
      counts.reordered, counts.different,
      counts.failed > 0 ? fmt::format("; {} files or runs failed", counts.failed) : ""));
  session.text(disassembler.empty()
                   ? "Neither nvdisasm nor cuobjdump was found: operations are counted by bits 0 "
                     "to 11 of the instructions, without their modifiers.\n"
                   : fmt::format("Operations by {}.\n", disassembler));
  Json document = {{"schema", kResultSchema},
                   {"suite", "kernel_names"},
                   {"date", measure::today()},
                   {"commit", commit_here()},
                   {"dirty", dirty_here()},
                   {"assembler", assembler},
                   {"optimization", options.effect.optimization},
                   {"machine", options.run ? machine() : Json(nullptr)},
                   {"rounds", options.run ? Json(options.how.rounds) : Json(nullptr)},
                   {"window_ms", options.run ? Json(options.how.window_ms) : Json(nullptr)},
                   {"disassembler", disassembler.empty() ? Json(nullptr) : Json(disassembler)},
                   {"counts",
                    {{"entries", counts.entries},
                     {"identical", counts.identical},
                     {"reordered", counts.reordered},
                     {"different", counts.different},
                     {"failed", counts.failed}}},
                   {"rows", std::move(rows)}};
  if (!options.out.empty()) write_result(document, options.out);
  session.document(std::move(document));
}

}  // namespace

void add_names_ab(CLI::App& names, Session& session) {
  auto options = std::make_shared<AbOptions>();
  CLI::App& part = add_verb(
      names, "ab", "What the word \"cutlass\" in an entry's name does to its machine code");
  require(add_texts(part, "paths", options->paths, "PTX files, or folders of them"));
  add_text(part, "--arch", options->effect.architecture,
           "Assemble for this, such as sm_90a; as the PTX says if not given");
  constexpr Bounds<std::int64_t> kLevels{0, 4};
  add_integer(part, "-O,--optimization", options->optimization, kLevels,
              "ptxas's optimization level");
  add_flag(part, "--run", options->run, "Run and time both versions on GPU 0, too");
  constexpr Bounds<std::int64_t> kRounds{1, 100};
  constexpr Bounds<double> kWindowMs{0.1, 10000};
  add_integer(part, "--rounds", options->rounds, kRounds, "Windows of each version");
  add_decimal(part, "--window-ms", options->how.window_ms, kWindowMs, "Length of a window");
  add_text(part, "--ptxas", options->effect.ptxas, "This ptxas instead of the one found");
  add_text(part, "--out", options->out, "Write the result to a file, too");
  add_json_flag(part);
  set_footer(
      part,
      "Every entry is assembled under a name with the word and under one without; names have the\n"
      "same length where that can be. identical: the same bytes; reordered: the same operations,\n"
      "each as often, in another order or with other registers; different: others. Without ptxas,\n"
      "nvJitLink assembles, whose code is not ptxas's. docs/kernel_names.md has results.\n\n"
      "--run launches Octavo's kernels as its products are (m, n and k of FILE.launch.json, else\n"
      "4096) and others as FILE.launch.json says: grid, block, cluster, shared_bytes, arguments.\n"
      "Triton's FILE.json gives block and shared memory where that file does not.");
  on_run(part, [options, &session] {
    options->effect.optimization = static_cast<int>(options->optimization);
    options->how.rounds = static_cast<int>(options->rounds);
    compare(*options, session);
  });
}

}  // namespace octavo::cli
