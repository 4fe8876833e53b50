// SPDX-License-Identifier: Apache-2.0
// The method of perplexity.hpp on the tiny Llama, and SmolLM2's logits against an independent
// implementation where OCTAVO_MODEL names its file.
#include "llm/perplexity.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "llm/generate.hpp"
#include "llm/tiny_model.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using test::run_all;
using test::tiny_checkpoint;
using test::tiny_tokenizer;

// In the manner of the novels that the model was trained on, but in none of them.
constexpr const char* kText =
    "She had been persuaded that the visit would be of no consequence to any of them; but when the "
    "gentlemen came into the room, and Mr. Knightley sat down by her sister, she could not help "
    "thinking that every thing might yet be well. The evening passed with great civility on all "
    "sides, and her mother was not without hope of seeing them again before the end of the week.";

const LlamaModel& tiny_model() {
  static const LlamaModel model(tiny_checkpoint(), uniform_precision(NumberFormat::kF32));
  return model;
}

std::vector<std::int32_t> text_tokens() {
  return tiny_tokenizer().encode(kText, SpecialTokens::kAsText);
}

// The same from the definition, in FP64, a window at a time.
std::vector<double> plain_losses(const std::vector<std::int32_t>& tokens, std::size_t window,
                                 std::optional<std::int32_t> bos) {
  const auto vocab = static_cast<std::size_t>(tiny_model().config().vocab_size);
  std::vector<double> losses;
  for (std::size_t at = 0; at < tokens.size();) {
    std::vector<std::int32_t> ids;
    if (bos) ids.push_back(*bos);
    while (ids.size() < window && at < tokens.size()) ids.push_back(tokens[at++]);
    if (ids.size() < 2) break;
    const std::vector<float> logits = run_all(tiny_model(), ids, 512);
    for (std::size_t i = 0; i + 1 < ids.size(); ++i) {
      double total = 0;
      for (std::size_t j = 0; j < vocab; ++j) {
        total += std::exp(static_cast<double>(logits[i * vocab + j]));
      }
      losses.push_back(
          std::log(total) -
          static_cast<double>(logits[i * vocab + static_cast<std::size_t>(ids[i + 1])]));
    }
  }
  return losses;
}

TEST(Perplexity, equals_its_definition) {
  const std::vector<std::int32_t> tokens = text_tokens();
  struct Case {
    std::int64_t window;
    std::optional<std::int32_t> bos;
  };
  for (const Case& c : {Case{512, {}}, Case{50, {}}, Case{50, 0}, Case{2, {}}}) {
    const PerplexityResult result =
        measure_perplexity(tiny_model(), tokens, {.window = c.window, .bos = c.bos}, {});
    const std::vector<double> expected =
        plain_losses(tokens, static_cast<std::size_t>(c.window), c.bos);
    ASSERT_EQ(result.losses.size(), expected.size());
    double total = 0;
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(result.losses[i], expected[i], 1e-3) << c.window << " " << i;
      total += result.losses[i];
    }
    EXPECT_NEAR(result.mean_loss, total / static_cast<double>(expected.size()), 1e-12);
    EXPECT_NEAR(result.perplexity, std::exp(result.mean_loss), 1e-9);
  }
}

TEST(Perplexity, the_tiny_model_knows_its_language) {
  // 2.86 nats a token on held-out text of its authors (tests/data/tiny_llama/README.md); a uniform
  // guess among 768 would give 6.64.
  const PerplexityResult result = measure_perplexity(tiny_model(), text_tokens(), {}, {});
  EXPECT_GT(result.mean_loss, 2.0);
  EXPECT_LT(result.mean_loss, 3.8);
}

TEST(Perplexity, fp8_costs_a_few_percent_at_most) {
  const std::vector<std::int32_t> tokens = text_tokens();
  const PerplexityResult baseline = measure_perplexity(tiny_model(), tokens, {}, {});
  for (const ScaleRecipe recipe : {ScaleRecipe::kRow, ScaleRecipe::kBlock}) {
    Precision precision = uniform_precision(NumberFormat::kFp8);
    precision.fp8_recipe = recipe;
    const LlamaModel model(tiny_checkpoint(), precision);
    const PerplexityChange change =
        compare_perplexity(measure_perplexity(model, tokens, {}, {}), baseline);
    EXPECT_LT(std::fabs(change.relative), 0.05) << octavo::to_string(recipe);
    EXPECT_GT(change.standard_error, 0) << octavo::to_string(recipe);
  }
}

TEST(Perplexity, changes_are_paired) {
  PerplexityResult baseline{.losses = {1, 2, 3}, .mean_loss = 2, .perplexity = std::exp(2.0)};
  PerplexityResult shifted{.losses = {1.5, 2.5, 3.5}, .mean_loss = 2.5};
  const PerplexityChange even = compare_perplexity(shifted, baseline);
  EXPECT_NEAR(even.relative, std::exp(0.5) - 1, 1e-12);
  EXPECT_NEAR(even.standard_error, 0, 1e-12);
  PerplexityResult spread{.losses = {1, 2, 4.5}, .mean_loss = 2.5};
  // Differences 0, 0, 1.5: deviation sqrt(0.75), over sqrt(3).
  EXPECT_NEAR(compare_perplexity(spread, baseline).standard_error, std::exp(0.5) * 0.5, 1e-12);
  PerplexityResult other{.losses = {1, 2}, .mean_loss = 1.5};
  EXPECT_THROW((void)compare_perplexity(other, baseline), Error);
}

TEST(Perplexity, wrong_options_are_refused) {
  const std::vector<std::int32_t> tokens{1, 2, 3};
  const auto message = [&](std::span<const std::int32_t> ids, const PerplexityOptions& options) {
    try {
      (void)measure_perplexity(tiny_model(), ids, options, {});
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_THAT(message(tokens, {.window = 1, .bos = {}}), testing::HasSubstr("window is 1"));
  EXPECT_THAT(message(tokens, {.window = 1025, .bos = {}}), testing::HasSubstr("window is 1025"));
  EXPECT_THAT(message(std::span(tokens).first(1), {}), testing::HasSubstr("1 tokens"));
  const std::vector<std::int32_t> foreign{1, 768};
  EXPECT_THAT(message(foreign, {}), testing::HasSubstr("768"));
}

class SmolLm2Logits : public testing::Test {
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

TEST_F(SmolLm2Logits, equal_those_of_an_independent_implementation) {
  std::ifstream file(std::string(OCTAVO_TEST_DATA) + "/smollm2_reference_logits.json");
  const nlohmann::json reference = nlohmann::json::parse(file);
  const Checkpoint checkpoint = Checkpoint::open(path_);
  const BpeTokenizer tokenizer = load_tokenizer(checkpoint);
  const std::vector<std::int32_t> ids = reference.at("ids");
  EXPECT_EQ(encode_chat_prompt(tokenizer, "What is the capital of France?", kSmolLm2SystemPrompt),
            ids);
  const LlamaModel model(checkpoint, uniform_precision(NumberFormat::kF32));
  KvCache cache = model.make_cache();
  DecoderScratch scratch = model.make_scratch(64, LogitRows::kLast);
  const std::span<const float> logits = model.forward(ids, cache, scratch, LogitRows::kLast);
  for (const char* which : {"top", "spaced"}) {
    const std::vector<std::int32_t> at = reference.at(std::string(which) + "_ids");
    const std::vector<float> expected = reference.at(std::string(which) + "_logits");
    for (std::size_t i = 0; i < at.size(); ++i) {
      // Logits are up to 25; thirty layers of FP32 sums against FP64.
      ASSERT_NEAR(logits[static_cast<std::size_t>(at[i])], expected[i], 2e-3) << which << " " << i;
    }
  }
}

}  // namespace
}  // namespace octavo::llm
