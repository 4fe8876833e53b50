// SPDX-License-Identifier: Apache-2.0
// Prompts, stopping and streaming on the tiny Llama, and the whole pipeline on SmolLM2 where the
// environment variable OCTAVO_MODEL names its file.
#include "llm/generate.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include "llm/read_bandwidth.hpp"
#include "llm/tiny_model.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using test::reference_prompts;
using test::tiny_checkpoint;
using test::tiny_tokenizer;
using testing::HasSubstr;

const LlamaModel& tiny_model() {
  static const LlamaModel model(tiny_checkpoint(), uniform_precision(NumberFormat::kF32));
  return model;
}

GenerateReport run(const std::vector<std::int32_t>& prompt, const GenerateOptions& options) {
  return generate(tiny_model(), tiny_tokenizer(), prompt, options, {});
}

TEST(Generate, greedy_text_equals_that_of_an_independent_implementation) {
  for (const test::ReferencePrompt& prompt : reference_prompts()) {
    EXPECT_EQ(encode_raw_prompt(tiny_tokenizer(), prompt.text), prompt.ids);
    GenerateOptions options;
    options.max_tokens = static_cast<std::int64_t>(prompt.greedy_ids.size());
    std::string streamed;
    const GenerateReport report = generate(tiny_model(), tiny_tokenizer(), prompt.ids, options,
                                           [&](std::string_view text) { streamed += text; });
    EXPECT_EQ(report.tokens, prompt.greedy_ids);
    EXPECT_EQ(report.text, tiny_tokenizer().decode(prompt.greedy_ids));
    EXPECT_EQ(streamed, report.text);
    EXPECT_EQ(report.stop_reason, StopReason::kMaxTokens);
    EXPECT_EQ(report.num_prompt_tokens, static_cast<std::int64_t>(prompt.ids.size()));
    EXPECT_EQ(report.num_decode_steps, options.max_tokens - 1);
    EXPECT_GT(report.decode_tokens_per_second(), 0);
    EXPECT_EQ(report.weight_bytes_per_token, tiny_model().weights().bytes_per_token());
  }
}

TEST(Generate, a_stop_token_ends_the_text_and_is_not_part_of_it) {
  const test::ReferencePrompt& prompt = reference_prompts().front();
  GenerateOptions options;
  options.max_tokens = 24;
  options.stop_tokens = {prompt.greedy_ids[3]};
  const GenerateReport report = run(prompt.ids, options);
  EXPECT_EQ(report.stop_reason, StopReason::kStopToken);
  EXPECT_EQ(report.tokens,
            std::vector<std::int32_t>(prompt.greedy_ids.begin(), prompt.greedy_ids.begin() + 3));
}

TEST(Generate, a_prompt_longer_than_a_prefill_chunk) {
  std::vector<std::int32_t> prompt;
  for (int i = 0; i < 20; ++i) {
    const std::vector<std::int32_t>& ids = reference_prompts()[0].ids;
    prompt.insert(prompt.end(), ids.begin(), ids.end());
  }
  GenerateOptions options;
  options.max_tokens = 5;
  const GenerateReport report = run(prompt, options);
  EXPECT_EQ(report.num_prompt_tokens, 620);
  const std::vector<float> logits = test::run_all(tiny_model(), prompt, 620);
  const std::size_t vocab = 768;
  const auto row = logits.end() - static_cast<std::ptrdiff_t>(vocab);
  EXPECT_EQ(report.tokens.front(), std::max_element(row, logits.end()) - row);
}

TEST(Generate, the_same_seed_gives_the_same_text_and_another_seed_another) {
  GenerateOptions options;
  options.max_tokens = 30;
  options.sampler = {.temperature = 1.0F, .top_k = 0, .top_p = 1.0F, .seed = 7};
  const std::vector<std::int32_t>& prompt = reference_prompts().front().ids;
  const GenerateReport first = run(prompt, options);
  EXPECT_EQ(run(prompt, options).tokens, first.tokens);
  options.sampler.seed = 8;
  EXPECT_NE(run(prompt, options).tokens, first.tokens);
}

TEST(Generate, the_end_of_the_context_ends_the_text) {
  const std::vector<std::int32_t> prompt(1020, 300);
  GenerateOptions options;
  options.max_tokens = 100;
  const GenerateReport report = run(prompt, options);
  EXPECT_EQ(report.stop_reason, StopReason::kContextFull);
  EXPECT_EQ(report.tokens.size(), 4U);
  for (const std::size_t length : {0UL, 1024UL, 2000UL}) {
    try {
      (void)run(std::vector<std::int32_t>(length, 300), options);
      ADD_FAILURE() << length;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("prompt"));
    }
  }
}

TEST(Generate, stop_tokens_are_those_of_config_and_chat_format) {
  const std::vector<std::int32_t> ids = stop_tokens(tiny_checkpoint().config(), tiny_tokenizer());
  EXPECT_THAT(ids, testing::Contains(0));
  EXPECT_THAT(ids, testing::Contains(tiny_tokenizer().find("<|im_end|>").value()));
}

TEST(ReadBandwidth, is_measured_and_refuses_tiny_buffers) {
  EXPECT_GT(measure_read_bandwidth(4 * kMinBandwidthBytes, 0), 1e8);
  EXPECT_GT(measure_read_bandwidth(kMinBandwidthBytes, 1), 1e8);
  EXPECT_THROW((void)measure_read_bandwidth(100, 0), Error);
}

class SmolLm2 : public testing::Test {
 protected:
  void SetUp() override {
    const char* path = std::getenv("OCTAVO_MODEL");
    if (path == nullptr) {
      GTEST_SKIP() << "set OCTAVO_MODEL to SmolLM2-135M-Instruct.Q4_1.gguf to run this test";
    }
    path_ = path;
  }

  std::string path_;
};

TEST_F(SmolLm2, names_paris_in_every_format) {
  const Checkpoint checkpoint = Checkpoint::open(path_);
  const BpeTokenizer tokenizer = load_tokenizer(checkpoint);
  const std::vector<std::int32_t> prompt =
      encode_chat_prompt(tokenizer, "What is the capital of France?", kSmolLm2SystemPrompt);
  for (const NumberFormat format : {NumberFormat::kFp8, NumberFormat::kBf16, NumberFormat::kF32}) {
    const LlamaModel model(checkpoint, uniform_precision(format));
    GenerateOptions options;
    options.max_tokens = 24;
    options.stop_tokens = stop_tokens(model.config(), tokenizer);
    const GenerateReport report = generate(model, tokenizer, prompt, options, {});
    EXPECT_THAT(report.text, HasSubstr("Paris")) << to_string(format);
    EXPECT_EQ(report.stop_reason, StopReason::kStopToken) << to_string(format);
  }
}

}  // namespace
}  // namespace octavo::llm
