// SPDX-License-Identifier: Apache-2.0
#include "model_options.hpp"

#include <fmt/format.h>

#include <array>
#include <cstdlib>
#include <system_error>

#include "octavo/error.hpp"
#include "options.hpp"

namespace octavo::cli {
namespace {

constexpr std::array kFormats{llm::NumberFormat::kFp8, llm::NumberFormat::kBf16,
                              llm::NumberFormat::kF32};
constexpr std::array<std::string_view, 4> kPartWords{kAsPrecision, "fp8", "bf16", "f32"};
constexpr std::array kRecipes{ScaleRecipe::kRow, ScaleRecipe::kBlock};

// A variable's value; empty if it is not set.
std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

std::filesystem::path default_model_file() {
  std::filesystem::path folder = variable("XDG_CACHE_HOME");
  if (folder.empty()) folder = std::filesystem::path(variable("HOME")) / ".cache";
  return folder / "octavo" / "SmolLM2-135M-Instruct.Q4_1.gguf";
}

std::string chosen_model(const ModelOptions& options) {
  if (!options.path.empty()) return options.path;
  if (std::string named = variable("OCTAVO_MODEL"); !named.empty()) return named;
  const std::filesystem::path file = default_model_file();
  std::error_code ignored;
  if (std::filesystem::is_regular_file(file, ignored)) return file.string();
  throw Error(ErrorCode::kEnvironment,
              fmt::format("octavo: no --model was given, OCTAVO_MODEL is not set and the default "
                          "model {} is not there. Run ./quickstart.sh, which fetches it, or give "
                          "--model.",
                          file.string()));
}

void add_model_path_option(CLI::App& verb, ModelOptions& options) {
  add_text(verb, "--model", options.path,
           "A .gguf or .safetensors file, or a folder with config.json and safetensors; "
           "OCTAVO_MODEL, or the model that quickstart.sh fetches, if left out");
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
