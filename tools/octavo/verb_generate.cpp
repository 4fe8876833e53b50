// SPDX-License-Identifier: Apache-2.0
// octavo generate: text from a model, streamed, and how fast it came.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "llm/generate.hpp"
#include "llm/read_bandwidth.hpp"
#include "model_options.hpp"
#include "options.hpp"
#include "session.hpp"
#include "verbs.hpp"

namespace octavo::cli {
namespace {

constexpr std::int64_t kMaxTokensLimit = std::int64_t{1} << 20U;
constexpr double kMaxTemperature = 100;
constexpr double kGiga = 1e9;
constexpr double kPercent = 100;
// Larger than the caches of the machines this runs on: what main memory itself gives.
constexpr std::int64_t kMemorySizedBuffer = std::int64_t{1} << 30U;

struct GenerateVerb {
  ModelOptions model;
  std::string prompt;
  std::string system{llm::kSmolLm2SystemPrompt};
  bool raw = false;
  bool chat = false;
  std::int64_t max_tokens = 256;
  double temperature = 0;
  std::int64_t top_k = 0;
  double top_p = 1;
  std::int64_t seed = 0;
};

std::vector<std::int32_t> encode_prompt(const GenerateVerb& options,
                                        const llm::BpeTokenizer& tokenizer) {
  const bool is_chat_model = llm::detect_chat_format(tokenizer) != llm::ChatFormat::kPlain;
  if (options.chat && !is_chat_model) {
    throw UsageError(
        "generate: --chat was given; this model's vocabulary has no chat markup that is known "
        "(ChatML, Llama 3). Use --raw.");
  }
  if (options.raw || !is_chat_model) return llm::encode_raw_prompt(tokenizer, options.prompt);
  return llm::encode_chat_prompt(tokenizer, options.prompt, options.system);
}

struct Bandwidth {
  double weight_sized = 0;  // bytes per second over a buffer as large as the weights
  double memory_sized = 0;
};

Json report_json(const GenerateVerb& options, const llm::GenerateReport& report,
                 const llm::Precision& precision, const Bandwidth& bandwidth) {
  return {{"model", options.model.path},
          {"precision", precision_json(precision)},
          {"text", report.text},
          {"tokens", report.tokens},
          {"stop_reason", std::string(to_string(report.stop_reason))},
          {"prefill",
           {{"tokens", report.num_prompt_tokens},
            {"seconds", report.prefill_seconds},
            {"tokens_per_second", report.prefill_tokens_per_second()}}},
          {"decode",
           {{"steps", report.num_decode_steps},
            {"seconds", report.decode_seconds},
            {"tokens_per_second", report.decode_tokens_per_second()},
            {"weight_bytes_per_token", report.weight_bytes_per_token},
            {"fraction_of_read_bandwidth", report.fraction_of_bandwidth(bandwidth.weight_sized)}}},
          {"read_bandwidth_gbps",
           {{"buffer_of_the_weights_size", bandwidth.weight_sized / kGiga},
            {"buffer_of_1_gib", bandwidth.memory_sized / kGiga}}}};
}

std::string report_text(const llm::GenerateReport& report, const llm::Precision& precision,
                        const Bandwidth& bandwidth) {
  std::string text = fmt::format("\n[{}]\n[prefill: {} tokens in {:.2f} s, {:.1f} tokens/s]\n",
                                 to_string(precision), report.num_prompt_tokens,
                                 report.prefill_seconds, report.prefill_tokens_per_second());
  if (report.num_decode_steps == 0) return text;
  const double read =
      report.decode_tokens_per_second() * static_cast<double>(report.weight_bytes_per_token);
  text += fmt::format("[decode: {} steps in {:.2f} s, {:.1f} tokens/s]\n", report.num_decode_steps,
                      report.decode_seconds, report.decode_tokens_per_second());
  text += fmt::format(
      "[weights: {:.1f} MB a token, read at {:.1f} GB/s; this machine reads {:.1f} GB/s from a "
      "buffer of that size and {:.1f} GB/s from 1 GiB: {:.0f} % of the bound]\n",
      static_cast<double>(report.weight_bytes_per_token) / 1e6, read / kGiga,
      bandwidth.weight_sized / kGiga, bandwidth.memory_sized / kGiga,
      kPercent * report.fraction_of_bandwidth(bandwidth.weight_sized));
  return text;
}

void generate(const GenerateVerb& options, Session& session) {
  const llm::Precision precision = chosen_precision(options.model);
  session.progress("loading the model");
  const llm::Checkpoint checkpoint = llm::Checkpoint::open(options.model.path);
  const llm::BpeTokenizer tokenizer = llm::load_tokenizer(checkpoint);
  const std::vector<std::int32_t> prompt = encode_prompt(options, tokenizer);
  const llm::LlamaModel model(checkpoint, precision);
  session.progress("");

  llm::GenerateOptions generation;
  generation.max_tokens = options.max_tokens;
  generation.sampler = {.temperature = static_cast<float>(options.temperature),
                        .top_k = static_cast<std::int32_t>(options.top_k),
                        .top_p = static_cast<float>(options.top_p),
                        .seed = static_cast<std::uint64_t>(options.seed)};
  generation.stop_tokens = llm::stop_tokens(model.config(), tokenizer);
  const llm::GenerateReport report =
      llm::generate(model, tokenizer, prompt, generation, [&session](std::string_view text) {
        session.text(text);
        std::fflush(stdout);  // a token is shown when it comes, not line by line
      });

  Bandwidth bandwidth;
  bandwidth.weight_sized = llm::measure_read_bandwidth(
      std::max(report.weight_bytes_per_token, llm::kMinBandwidthBytes), 0);
  bandwidth.memory_sized = llm::measure_read_bandwidth(kMemorySizedBuffer, 0);
  session.text(report_text(report, precision, bandwidth));
  session.document(report_json(options, report, precision, bandwidth));
}

}  // namespace

void add_generate(CLI::App& app, Session& session) {
  auto options = std::make_shared<GenerateVerb>();
  CLI::App& verb = add_verb(app, "generate", "Text from a model, streamed, with its speed");
  add_model_options(verb, options->model);
  require(add_text(verb, "--prompt", options->prompt, "What to answer or to continue"));
  CLI::Option* chat =
      add_flag(verb, "--chat", options->chat,
               "The prompt is a user's message (the default if the model has chat markup)");
  exclude(add_flag(verb, "--raw", options->raw, "The prompt is text to continue"), chat);
  add_text(verb, "--system", options->system, "The system message of a chat; may be empty");
  add_integer(verb, "--max-tokens", options->max_tokens, {1, kMaxTokensLimit},
              "Tokens to generate at most");
  add_decimal(verb, "--temperature", options->temperature, {0, kMaxTemperature},
              "0 picks the most likely token each time");
  add_integer(verb, "--top-k", options->top_k, {0, kMaxTokensLimit},
              "Choose among the k most likely tokens; 0: all");
  add_decimal(verb, "--top-p", options->top_p, {0, 1},
              "Choose among the most likely tokens whose probabilities reach p");
  add_integer(verb, "--seed", options->seed, {0, INT64_MAX}, "Of the random choices");
  add_json_flag(verb);
  set_footer(
      verb,
      "Weights, activations, KV cache and head are each fp8 (E4M3), bf16 or f32. With --precision\n"
      "fp8 the head stays bf16 unless --head says otherwise.\n"
      "Example: octavo generate --prompt \"What is the capital of France?\"");
  on_run(verb, [options, &session] {
    options->model.path = chosen_model(options->model);
    generate(*options, session);
  });
}

}  // namespace octavo::cli
