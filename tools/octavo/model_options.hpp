// SPDX-License-Identifier: Apache-2.0
// Options that the model verbs share: which model, and in which number formats.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "llm/precision.hpp"
#include "session.hpp"

namespace CLI {
class App;
}

namespace octavo::cli {

inline constexpr std::string_view kAsPrecision = "auto";

struct ModelOptions {
  std::string path;  // empty: see chosen_model()
  llm::NumberFormat precision = llm::NumberFormat::kFp8;
  // kAsPrecision, or a format's name.
  std::string weights{kAsPrecision};
  std::string activations{kAsPrecision};
  std::string kv_cache{kAsPrecision};
  std::string head{kAsPrecision};
  ScaleRecipe recipe = ScaleRecipe::kRow;
};

// --model, --precision, --weights, --activations, --kv, --head, --recipe.
void add_model_options(CLI::App& verb, ModelOptions& options);
// --model and --recipe only.
void add_model_path_option(CLI::App& verb, ModelOptions& options);
void add_recipe_option(CLI::App& verb, ModelOptions& options);

// Where quickstart.sh puts the default model; it need not be there.
[[nodiscard]] std::filesystem::path default_model_file();
// OCTAVO_MODEL: the model of generate and perplexity where --model is not given
// That of --model, OCTAVO_MODEL or default_model_file(). Throws Error kEnvironment if there is
// none.
[[nodiscard]] std::string chosen_model(const ModelOptions& options);
[[nodiscard]] llm::Precision chosen_precision(const ModelOptions& options);
[[nodiscard]] Json precision_json(const llm::Precision& precision);

}  // namespace octavo::cli
