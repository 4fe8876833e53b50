// SPDX-License-Identifier: Apache-2.0
// octavo list: what this build knows.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "bench_suite.hpp"
#include "model_options.hpp"
#include "octavo/octavo.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

void list_backends(Session& session) {
  Table table({{"back end"}, {"available"}, {"description"}});
  Json items = Json::array();
  for (const BackendInfo& info : octavo::list_backends()) {
    table.add_row({info.name, info.available ? "yes" : "no",
                   info.available ? info.description : info.unavailable_because});
    items.push_back({{"name", info.name},
                     {"available", info.available},
                     {"description", info.description},
                     {"unavailable_because", info.unavailable_because}});
  }
  session.text(table.to_text());
  session.document({{"backends", std::move(items)}});
}

void list_recipes(Session& session) {
  constexpr std::array kRecipes{ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                ScaleRecipe::kBlock, ScaleRecipe::kBlock1d};
  Table table({{"recipe"}, {"scales of A"}, {"scales of B"}, {"accumulation"}});
  Json items = Json::array();
  for (const ScaleRecipe recipe : kRecipes) {
    const std::string a = to_string(a_granularity(recipe));
    const std::string b = to_string(b_granularity(recipe));
    table.add_row(
        {to_string(recipe), a, b, is_block_scaled(recipe) ? "promoted" : "promoted, fast"});
    Json accumulations = Json::array({"promoted"});
    if (!is_block_scaled(recipe)) accumulations.push_back("fast");
    items.push_back({{"name", to_string(recipe)},
                     {"a_granularity", a},
                     {"b_granularity", b},
                     {"accumulation", std::move(accumulations)}});
  }
  session.text(table.to_text());
  session.document({{"recipes", std::move(items)}});
}

void list_dtypes(Session& session) {
  struct Row {
    DType dtype;
    std::string_view use;
  };
  constexpr std::array kRows{
      Row{DType::kE4M3, "values; largest 448, no infinity"},
      Row{DType::kE5M2, "values; largest finite 57344"},
      Row{DType::kUE8M0, "scales; a power of two, 2^-127 to 2^127"},
      Row{DType::kBF16, "values"},
      Row{DType::kF16, "values"},
      Row{DType::kF32, "values, scales"},
      Row{DType::kI32, "offsets, lengths and page tables of attention"},
  };
  Table table({{"type"}, {"bytes", Align::kRight}, {"used for"}});
  Json items = Json::array();
  for (const Row& row : kRows) {
    table.add_row(
        {to_string(row.dtype), std::to_string(size_bytes(row.dtype)), std::string(row.use)});
    items.push_back(
        {{"name", to_string(row.dtype)}, {"bytes", size_bytes(row.dtype)}, {"use", row.use}});
  }
  session.text(table.to_text());
  session.document({{"dtypes", std::move(items)}});
}

void list_errors(Session& session) {
  constexpr std::array kCodes{ErrorCode::kInvalidArgument, ErrorCode::kUnsupported,
                              ErrorCode::kEnvironment,     ErrorCode::kIo,
                              ErrorCode::kBadFile,         ErrorCode::kInternal};
  Table table({{"code"}, {"exit", Align::kRight}});
  Json items = Json::array();
  for (const ErrorCode code : kCodes) {
    const int exit = static_cast<int>(exit_code_of(code));
    table.add_row({to_string(code), std::to_string(exit)});
    items.push_back({{"code", to_string(code)}, {"exit", exit}});
  }
  session.text(table.to_text());
  session.document({{"errors", std::move(items)}});
}

void list_models(Session& session) {
  const std::filesystem::path file = default_model_file();
  std::error_code ignored;
  const bool present = std::filesystem::is_regular_file(file, ignored);
  Table table({{"model"}, {"present"}, {"file"}});
  table.add_row({"default", present ? "yes" : "no, ./quickstart.sh fetches it", file.string()});
  session.text(table.to_text());
  session.document(
      {{"models",
        Json::array({{{"name", "default"}, {"present", present}, {"file", file.string()}}})}});
}

// Every .json of the folder is a suite; one that is none is an error, for it cannot be run.
void list_suites(Session& session, const std::string& folder) {
  std::vector<std::string> paths;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    if (entry->path().extension() == ".json") paths.push_back(entry->path().string());
  }
  if (error) {
    throw Error(ErrorCode::kIo,
                fmt::format("{}: the folder cannot be read ({}); it must hold suite files. Give "
                            "--folder, such as the bench/suites of the sources.",
                            folder, error.message()));
  }
  std::sort(paths.begin(), paths.end());
  Table table({{"suite"}, {"problems", Align::kRight}, {"file"}});
  Json items = Json::array();
  for (const std::string& path : paths) {
    const BenchSuite suite = load_suite(path);
    table.add_row({suite.name, std::to_string(suite.problems.size()), path});
    items.push_back({{"name", suite.name}, {"problems", suite.problems.size()}, {"file", path}});
  }
  session.text(table.to_text());
  session.document({{"suites", std::move(items)}});
}

struct ListOptions {
  std::string what;
  std::string folder = "bench/suites";
};

constexpr std::array<std::string_view, 6> kListingWords{"backends", "recipes", "dtypes",
                                                        "errors",   "models",  "suites"};

void list(const ListOptions& options, Session& session) {
  if (options.what == "backends") return list_backends(session);
  if (options.what == "recipes") return list_recipes(session);
  if (options.what == "dtypes") return list_dtypes(session);
  if (options.what == "errors") return list_errors(session);
  if (options.what == "models") return list_models(session);
  return list_suites(session, options.folder);
}

}  // namespace

void add_list(CLI::App& app, Session& session) {
  auto options = std::make_shared<ListOptions>();
  CLI::App& verb =
      add_verb(app, "list", "Back ends, recipes, element types, error codes, models, suites");
  require(add_word(verb, "what", options->what, kListingWords, "What to list"));
  add_text(verb, "--folder", options->folder, "Where suites are looked for");
  add_json_flag(verb);
  on_run(verb, [options, &session] { list(*options, session); });
}

}  // namespace octavo::cli
