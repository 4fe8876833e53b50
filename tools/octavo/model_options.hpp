// SPDX-License-Identifier: Apache-2.0
// Options that the model verbs share: which model, and in which number formats.
#pragma once

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
  std::string path;
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

[[nodiscard]] llm::Precision chosen_precision(const ModelOptions& options);
[[nodiscard]] Json precision_json(const llm::Precision& precision);

}  // namespace octavo::cli
