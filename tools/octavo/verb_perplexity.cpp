// SPDX-License-Identifier: Apache-2.0
// octavo perplexity: what each number format costs a model on a text file.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "llm/generate.hpp"
#include "llm/mapped_file.hpp"
#include "llm/perplexity.hpp"
#include "model_options.hpp"
#include "options.hpp"
#include "session.hpp"
#include "table.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

constexpr std::int64_t kTokenLimit = std::int64_t{1} << 30U;
constexpr double kPercent = 100;

// A row of the table: a name and what it means.
struct NamedPrecision {
  std::string name;
  llm::Precision precision;
};

// "f32", "bf16", "fp8", or F32 but for one part: "weights", "activations", "kv", "head".
constexpr std::array<std::string_view, 7> kPrecisionWords{"f32",         "bf16", "fp8", "weights",
                                                          "activations", "kv",   "head"};

struct PerplexityVerb {
  ModelOptions model;
  std::string text_path;
  std::vector<std::string> precisions{"f32", "weights", "activations", "kv", "head", "bf16", "fp8"};
  std::int64_t max_tokens = 0;
  std::int64_t window = 512;
};

NamedPrecision named_precision(const std::string& word, ScaleRecipe recipe) {
  NamedPrecision named{word, llm::uniform_precision(llm::NumberFormat::kF32)};
  llm::Precision& precision = named.precision;
  if (word == "weights") {
    named.name = "fp8 weights only";
    precision.weights = llm::NumberFormat::kFp8;
  } else if (word == "activations") {
    named.name = "fp8 activations only";
    precision.activations = llm::NumberFormat::kFp8;
  } else if (word == "kv") {
    named.name = "fp8 kv cache only";
    precision.kv_cache = llm::NumberFormat::kFp8;
  } else if (word == "head") {
    named.name = "fp8 head only";
    precision.head = llm::NumberFormat::kFp8;
  } else {
    precision =
        llm::uniform_precision(llm::parse_number_format(word).value_or(llm::NumberFormat::kF32));
  }
  precision.fp8_recipe = recipe;
  return named;
}

std::vector<NamedPrecision> parse_precisions(const PerplexityVerb& options) {
  std::vector<NamedPrecision> list;
  for (const std::string& word : options.precisions) {
    if (std::find(kPrecisionWords.begin(), kPrecisionWords.end(), word) == kPrecisionWords.end()) {
      throw UsageError(
          fmt::format("perplexity: --precisions has \"{}\"; known are {}. Give some "
                      "of these, separated by commas.",
                      word, fmt::join(kPrecisionWords, ", ")));
    }
    list.push_back(named_precision(word, options.model.recipe));
  }
  return list;
}

std::vector<std::int32_t> read_tokens(const PerplexityVerb& options,
                                      const llm::BpeTokenizer& tokenizer) {
  const llm::MappedFile file(options.text_path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  std::vector<std::int32_t> tokens = tokenizer.encode(text, llm::SpecialTokens::kAsText);
  if (options.max_tokens > 0) {
    tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(options.max_tokens)));
  }
  return tokens;
}

struct Measurement {
  NamedPrecision named;
  llm::PerplexityResult result;
  std::optional<llm::PerplexityChange> change;  // against the first of the list
};

void report(const PerplexityVerb& options, std::size_t num_tokens, std::int64_t window,
            const std::vector<Measurement>& measurements, Session& session) {
  const std::string baseline = measurements.front().named.name;
  Table table({{"precision"},
               {"perplexity", Align::kRight},
               {"against " + baseline, Align::kRight},
               {"+-", Align::kRight},
               {"seconds", Align::kRight}});
  Json rows = Json::array();
  for (const Measurement& measurement : measurements) {
    const llm::PerplexityResult& result = measurement.result;
    Json row{{"name", measurement.named.name},
             {"precision", precision_json(measurement.named.precision)},
             {"perplexity", result.perplexity},
             {"mean_loss", result.mean_loss},
             {"seconds", result.seconds}};
    std::string relative;
    std::string error;
    if (measurement.change) {
      relative = fmt::format("{:+.3f} %", kPercent * measurement.change->relative);
      error = fmt::format("{:.3f}", kPercent * measurement.change->standard_error);
      row["relative_change"] = measurement.change->relative;
      row["relative_change_standard_error"] = measurement.change->standard_error;
    }
    table.add_row({measurement.named.name, fmt::format("{:.4f}", result.perplexity), relative,
                   error, fmt::format("{:.1f}", result.seconds)});
    rows.push_back(std::move(row));
  }
  const std::size_t num_scored = measurements.front().result.losses.size();
  session.text(fmt::format("{} tokens, {} scored, windows of {}\n\n{}", num_tokens, num_scored,
                           window, table.to_text()));
  session.document({{"model", options.model.path},
                    {"text", options.text_path},
                    {"tokens", num_tokens},
                    {"scored", num_scored},
                    {"window", window},
                    {"baseline", baseline},
                    {"rows", std::move(rows)}});
}

void perplexity(const PerplexityVerb& options, Session& session) {
  const std::vector<NamedPrecision> precisions = parse_precisions(options);
  const llm::Checkpoint checkpoint = llm::Checkpoint::open(options.model.path);
  const llm::BpeTokenizer tokenizer = llm::load_tokenizer(checkpoint);
  const std::vector<std::int32_t> tokens = read_tokens(options, tokenizer);
  llm::PerplexityOptions measuring;
  measuring.window = std::min(options.window, checkpoint.config().max_positions);
  if (tokenizer.add_bos()) measuring.bos = tokenizer.bos();

  std::vector<Measurement> measurements;
  for (const NamedPrecision& named : precisions) {
    session.progress(fmt::format("{}: loading", named.name));
    const llm::LlamaModel model(checkpoint, named.precision);
    Measurement measurement{
        named,
        llm::measure_perplexity(model, tokens, measuring,
                                [&](std::int64_t done) {
                                  session.progress(fmt::format("{}: {}/{} tokens", named.name, done,
                                                               tokens.size()));
                                }),
        std::nullopt};
    if (!measurements.empty()) {
      measurement.change = llm::compare_perplexity(measurement.result, measurements.front().result);
    }
    measurements.push_back(std::move(measurement));
  }
  session.progress("");
  report(options, tokens.size(), measuring.window, measurements, session);
}

}  // namespace

void add_perplexity(CLI::App& app, Session& session) {
  auto options = std::make_shared<PerplexityVerb>();
  CLI::App& verb = add_verb(app, "perplexity", "What number formats cost a model on a text file");
  add_model_path_option(verb, options->model);
  require(add_text(verb, "--text", options->text_path, "A plain text file"));
  add_texts(verb, "--precisions", options->precisions,
            "f32, bf16, fp8, or F32 with one part in FP8: weights, activations, kv, head; "
            "the first is what the others are compared to",
            ',');
  add_recipe_option(verb, options->model);
  add_integer(verb, "--max-tokens", options->max_tokens, {0, kTokenLimit},
              "Use only the text's first tokens; 0: all");
  add_integer(verb, "--window", options->window, {2, kTokenLimit},
              "Tokens that are read from an empty cache before starting over");
  add_json_flag(verb);
  set_footer(
      verb,
      "Every token of a window but its first is scored, given those before it in the window.\n"
      "The +- is one standard error, from the tokens' paired differences.\n"
      "Example: octavo perplexity --text faq.txt");
  on_run(verb, [options, &session] {
    options->model.path = chosen_model(options->model);
    perplexity(*options, session);
  });
}

}  // namespace octavo::cli
