// SPDX-License-Identifier: Apache-2.0
// octavo list: what this build knows.
#include <CLI/CLI.hpp>
#include <array>
#include <memory>
#include <string>
#include <string_view>

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

struct Listing {
  std::string_view what;
  void (*print)(Session&);
};

constexpr std::array kListings{Listing{"backends", &list_backends},
                               Listing{"recipes", &list_recipes}, Listing{"dtypes", &list_dtypes},
                               Listing{"errors", &list_errors}};

constexpr std::array<std::string_view, kListings.size()> kListingWords{"backends", "recipes",
                                                                       "dtypes", "errors"};

}  // namespace

void add_list(CLI::App& app, Session& session) {
  auto what = std::make_shared<std::string>();
  CLI::App* verb = app.add_subcommand("list", "Back ends, recipes, element types, error codes");
  add_word(*verb, "what", *what, kListingWords, "What to list")->required();
  add_json_flag(*verb);
  verb->callback([what, &session] {
    for (const Listing& listing : kListings) {
      if (listing.what == *what) listing.print(session);
    }
  });
}

}  // namespace octavo::cli
