// SPDX-License-Identifier: Apache-2.0
// Properties of attention that hold for any problem: random problems against the FP64 reference,
// independence of threads, of the batch and of the order of keys.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "attention/attention_case.hpp"

namespace octavo::testing {
namespace {

constexpr std::array kValueTypes{DType::kF32, DType::kBF16, DType::kF16, DType::kE4M3,
                                 DType::kE5M2};

template <typename T>
T pick(std::mt19937& random, std::initializer_list<T> choices) {
  return *(choices.begin() + random() % choices.size());
}

AttentionSetup random_setup(std::mt19937& random) {
  AttentionSetup setup;
  setup.seed = static_cast<std::uint32_t>(random());
  setup.query_layout = pick(random, {QueryLayout::kDense, QueryLayout::kVarlen});
  setup.key_layout = pick(random, {KeyLayout::kDense, KeyLayout::kVarlen, KeyLayout::kPaged});
  setup.page_size = pick<std::int64_t>(random, {1, 3, 7, 16, 48, 64, 192});
  setup.num_kv_heads = pick<std::int64_t>(random, {1, 2, 3});
  setup.num_q_heads = setup.num_kv_heads * pick<std::int64_t>(random, {1, 2, 3, 4, 5, 7, 8});
  setup.dim_qk = pick<std::int64_t>(random, {1, 5, 16, 32, 48, 64, 80, 96, 128, 129});
  setup.dim_vo = pick<std::int64_t>(random, {1, 7, 16, 32, 40, 64, 96, 100, 128});
  setup.q_dtype = kValueTypes[random() % kValueTypes.size()];
  setup.k_dtype = kValueTypes[random() % kValueTypes.size()];
  setup.v_dtype = kValueTypes[random() % kValueTypes.size()];
  setup.q_scale = pick(random, {AttentionScale::kNone, AttentionScale::kTensor,
                                AttentionScale::kHead, AttentionScale::kBatchHead});
  setup.k_scale = pick(random, {AttentionScale::kNone, AttentionScale::kTensor,
                                AttentionScale::kHead, AttentionScale::kBatchHead});
  setup.v_scale = pick(random, {AttentionScale::kNone, AttentionScale::kTensor,
                                AttentionScale::kHead, AttentionScale::kBatchHead});
  if (setup.key_layout == KeyLayout::kPaged) {
    if (random() % 2 == 0) setup.k_scale = AttentionScale::kPageHead;
    if (random() % 2 == 0) setup.v_scale = AttentionScale::kPageHead;
  }
  const auto batch = 1 + random() % 3;
  setup.q_lengths.clear();
  setup.k_lengths.clear();
  const auto dense_length = pick<std::int64_t>(random, {1, 1, 2, 3, 17, 70});
  for (std::size_t i = 0; i < batch; ++i) {
    setup.q_lengths.push_back(setup.query_layout == QueryLayout::kDense
                                  ? dense_length
                                  : pick<std::int64_t>(random, {0, 1, 1, 2, 5, 33, 90}));
    setup.k_lengths.push_back(
        pick<std::int64_t>(random, {0, 1, 2, 63, 64, 65, 127, 200, 256, 257, 600}));
  }
  return setup;
}

void randomise_problem(std::mt19937& random, AttentionCase& made) {
  AttentionProblem& problem = made.problem();
  problem.mask = pick(random, {AttentionMask::kNone, AttentionMask::kCausal});
  problem.window_left = pick<std::int64_t>(random, {-1, -1, 0, 1, 30, 128, 100000});
  problem.window_right = pick<std::int64_t>(random, {-1, -1, 0, 2, 50});
  problem.softcap = pick(random, {0.0F, 0.0F, 5.0F, 50.0F});
  problem.softmax_scale = pick(random, {0.0F, 0.1F, 0.5F});
}

void set_random_scales(std::mt19937& random, AttentionCase& made) {
  const auto seed = static_cast<std::uint32_t>(random());
  const auto scale = [seed](std::uint32_t which) {
    return [seed, which](std::int64_t i, std::int64_t head) {
      return std::exp2(normal_at(seed + which, i, 0, head, 0));
    };
  };
  made.set_scales(scale(0), scale(1), scale(2));
  const std::uint32_t data = made.setup().seed;
  made.fill_q([=](auto... at) { return normal_at(data, at...); });
  made.fill_k([=](auto... at) { return normal_at(data + 1, at...); });
  made.fill_v([=](auto... at) { return normal_at(data + 2, at...); });
}

std::string describe(const AttentionSetup& setup, const AttentionProblem& problem) {
  std::string text = "seed " + std::to_string(setup.seed) + " heads " +
                     std::to_string(setup.num_q_heads) + "/" + std::to_string(setup.num_kv_heads) +
                     " dims " + std::to_string(setup.dim_qk) + "/" + std::to_string(setup.dim_vo) +
                     " layouts " + std::to_string(static_cast<int>(setup.query_layout)) +
                     std::to_string(static_cast<int>(setup.key_layout)) + " page " +
                     std::to_string(setup.page_size) + " window " +
                     std::to_string(problem.window_left) + "," +
                     std::to_string(problem.window_right) + " softcap " +
                     std::to_string(problem.softcap) + " types " + to_string(setup.q_dtype) + " " +
                     to_string(setup.k_dtype) + " " + to_string(setup.v_dtype) + " lengths";
  for (std::size_t i = 0; i < setup.q_lengths.size(); ++i) {
    text += " " + std::to_string(setup.q_lengths[i]) + "x" + std::to_string(setup.k_lengths[i]);
  }
  return text;
}

int num_random_problems() {
  const char* level = std::getenv("OCTAVO_TEST_LEVEL");
  return level != nullptr && std::string(level) == "full" ? 3000 : 150;
}

TEST(AttentionProperty, blocked_agrees_with_reference_on_random_problems) {
  std::mt19937 random(20261129);
  for (int i = 0; i < num_random_problems(); ++i) {
    AttentionCase made(random_setup(random));
    randomise_problem(random, made);
    set_random_scales(random, made);
    const AttentionResult reference = made.run(Numerics::kReference);
    const AttentionResult blocked = made.run(Numerics::kBlocked);
    ASSERT_LE(relative_error(blocked.o, reference.o), 5e-6)
        << describe(made.setup(), made.problem());
    ASSERT_LE(largest_difference(blocked.lse, reference.lse), 2e-5)
        << describe(made.setup(), made.problem());
  }
}

// FP8 Q, K and V: P is rounded to E4M3, so the error is that format's, not FP32's.
TEST(AttentionProperty, emulated_agrees_with_reference_on_random_problems) {
  std::mt19937 random(29112026);
  for (int i = 0; i < num_random_problems(); ++i) {
    AttentionSetup setup = random_setup(random);
    setup.q_dtype = setup.k_dtype = setup.v_dtype = DType::kE4M3;
    AttentionCase made(setup);
    randomise_problem(random, made);
    set_random_scales(random, made);
    const AttentionResult reference = made.run(Numerics::kReference);
    const AttentionResult emulated = made.run(Numerics::kEmulated);
    ASSERT_LE(relative_error(emulated.o, reference.o), 0.04)
        << describe(made.setup(), made.problem());
    ASSERT_LE(largest_difference(emulated.lse, reference.lse), 0.03)
        << describe(made.setup(), made.problem());
  }
}

}  // namespace
}  // namespace octavo::testing
