// SPDX-License-Identifier: Apache-2.0
#include "model_options.hpp"

#include <CLI/CLI.hpp>
#include <array>

#include "options.hpp"

namespace octavo::cli {
namespace {

constexpr std::array kFormats{llm::NumberFormat::kFp8, llm::NumberFormat::kBf16,
                              llm::NumberFormat::kF32};
constexpr std::array<std::string_view, 4> kPartWords{kAsPrecision, "fp8", "bf16", "f32"};
constexpr std::array kRecipes{ScaleRecipe::kRow, ScaleRecipe::kBlock};

}  // namespace

void add_model_path_option(CLI::App& verb, ModelOptions& options) {
  verb.add_option("--model", options.path,
                  "A .gguf or .safetensors file, or a folder with config.json and safetensors")
      ->required();
}

void add_recipe_option(CLI::App& verb, ModelOptions& options) {
  add_enum(verb, "--recipe", options.recipe, kRecipes,
           "FP8 scales: row (per output channel and token) or block (128x128 and 1x128)");
}

void add_model_options(CLI::App& verb, ModelOptions& options) {
  add_model_path_option(verb, options);
  add_enum(verb, "--precision", options.precision, kFormats,
           "Number format of the parts that the next four leave open");
  add_word(verb, "--weights", options.weights, kPartWords, "Of the decoder layers' weights");
  add_word(verb, "--activations", options.activations, kPartWords,
           "Of what those weights are multiplied by");
  add_word(verb, "--kv", options.kv_cache, kPartWords, "Of the key and value cache");
  add_word(verb, "--head", options.head, kPartWords, "Of the output projection");
  add_recipe_option(verb, options);
}

llm::Precision chosen_precision(const ModelOptions& options) {
  llm::Precision precision = llm::uniform_precision(options.precision);
  const auto replace = [](llm::NumberFormat& format, const std::string& word) {
    format = llm::parse_number_format(word).value_or(format);  // kAsPrecision names no format
  };
  replace(precision.weights, options.weights);
  replace(precision.activations, options.activations);
  replace(precision.kv_cache, options.kv_cache);
  replace(precision.head, options.head);
  precision.fp8_recipe = options.recipe;
  return precision;
}

Json precision_json(const llm::Precision& precision) {
  return {{"weights", std::string(to_string(precision.weights))},
          {"activations", std::string(to_string(precision.activations))},
          {"kv_cache", std::string(to_string(precision.kv_cache))},
          {"head", std::string(to_string(precision.head))},
          {"recipe", to_string(precision.fp8_recipe)}};
}

}  // namespace octavo::cli
