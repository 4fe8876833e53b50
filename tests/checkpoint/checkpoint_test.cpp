// SPDX-License-Identifier: Apache-2.0
// The common face of checkpoints: names, shapes, RoPE's row order, FP8 weights, and where files
// lie.
#include "llm/checkpoint.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <string>

#include "checkpoint/file_builders.hpp"

namespace octavo::llm {
namespace {

using test::Bytes;
using test::bytes_of;
using test::expect_error;
using test::GgufBuilder;
using test::SafetensorsBuilder;

constexpr std::int64_t kHidden = 32;
constexpr std::int64_t kHeadDim = 8;
constexpr std::string_view kConfig = R"({
    "architectures": ["LlamaForCausalLM"], "vocab_size": 8, "hidden_size": 32,
    "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 4,
    "num_key_value_heads": 2, "rms_norm_eps": 1e-05, "tie_word_embeddings": true})";

std::vector<float> draw(std::size_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// What converters to GGUF do to Q and K: [heads, 2, d/2, in] -> [heads, d/2, 2, in].
template <typename T>
std::vector<T> permute_for_gguf(const std::vector<T>& rows, std::size_t heads, std::size_t width) {
  constexpr std::size_t kHalf = kHeadDim / 2;
  std::vector<T> out(rows.size());
  for (std::size_t head = 0; head < heads; ++head) {
    for (std::size_t side = 0; side < 2; ++side) {
      for (std::size_t i = 0; i < kHalf; ++i) {
        for (std::size_t col = 0; col < width; ++col) {
          out[((head * kHalf + i) * 2 + side) * width + col] =
              rows[((head * 2 + side) * kHalf + i) * width + col];
        }
      }
    }
  }
  return out;
}

Checkpoint from(const Bytes& bytes) {
  return Checkpoint::from_gguf(GgufFile::parse(bytes, "model.gguf"));
}

constexpr const char* kQ = "model.layers.0.self_attn.q_proj.weight";
constexpr const char* kK = "model.layers.0.self_attn.k_proj.weight";
constexpr const char* kV = "model.layers.0.self_attn.v_proj.weight";

TEST(Checkpoint, gguf_names) {
  EXPECT_EQ(gguf_tensor_name("model.embed_tokens.weight"), "token_embd.weight");
  EXPECT_EQ(gguf_tensor_name("model.norm.weight"), "output_norm.weight");
  EXPECT_EQ(gguf_tensor_name("lm_head.weight"), "output.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.17.input_layernorm.weight"), "blk.17.attn_norm.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.17.post_attention_layernorm.weight"),
            "blk.17.ffn_norm.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.self_attn.q_proj.bias"), "blk.2.attn_q.bias");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.self_attn.o_proj.weight"), "blk.2.attn_output.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.mlp.gate_proj.weight"), "blk.2.ffn_gate.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.mlp.up_proj.weight"), "blk.2.ffn_up.weight");
  EXPECT_EQ(gguf_tensor_name("model.layers.2.mlp.down_proj.weight"), "blk.2.ffn_down.weight");
  for (const char* name : {"", "model.layers.", "model.layers.x.mlp.up_proj.weight",
                           "model.layers.1", "model.layers.1.", "model.layers.1.mlp.up_proj.scale",
                           "model.layers.1.other.weight", "model.layers..mlp.up_proj.weight"}) {
    EXPECT_EQ(gguf_tensor_name(name), "") << name;
  }
}

TEST(Checkpoint, gguf_q_and_k_come_back_half_rotated) {
  const std::vector<float> q = draw(32 * 32, 1);
  const std::vector<float> k = draw(16 * 32, 2);
  const std::vector<float> bias = draw(16, 3);
  GgufBuilder builder = test::llama_metadata();
  builder
      .tensor("blk.0.attn_q.weight", GgmlType::kF32, {32, 32}, bytes_of(permute_for_gguf(q, 4, 32)))
      .tensor("blk.0.attn_k.weight", GgmlType::kF32, {16, 32}, bytes_of(permute_for_gguf(k, 2, 32)))
      .tensor("blk.0.attn_v.weight", GgmlType::kF32, {16, 32}, bytes_of(k))
      .tensor("blk.0.attn_k.bias", GgmlType::kF32, {16}, bytes_of(permute_for_gguf(bias, 2, 1)));
  const Bytes bytes = builder.bytes();
  const Checkpoint checkpoint = from(bytes);
  EXPECT_EQ(checkpoint.load_f32(kQ, 32, 32), q);
  EXPECT_EQ(checkpoint.load_f32(kK, 16, 32), k);
  EXPECT_EQ(checkpoint.load_f32(kV, 16, 32), k);
  EXPECT_EQ(checkpoint.load_f32("model.layers.0.self_attn.k_proj.bias", 1, 16), bias);
}

TEST(Checkpoint, gguf_quantized_rows_are_unpermuted_whole) {
  // Row r of Q holds r in every element: its Q8_0 block has scale 1 and 32 times r.
  std::vector<std::uint8_t> rows;
  for (int row = 0; row < 32; ++row) {
    rows.push_back(0x00);
    rows.push_back(0x3C);
    rows.insert(rows.end(), 32, static_cast<std::uint8_t>(row));
  }
  GgufBuilder builder = test::llama_metadata();
  builder.tensor("blk.0.attn_q.weight", GgmlType::kQ8_0, {32, 32},
                 bytes_of(permute_for_gguf(rows, 4, 34)));
  const Bytes bytes = builder.bytes();
  const std::vector<float> loaded = from(bytes).load_f32(kQ, 32, 32);
  for (std::size_t i = 0; i < loaded.size(); ++i)
    ASSERT_EQ(loaded[i], static_cast<float>(i / 32)) << i;
}

// The purpose of the order: adjacent rotation of the file's rows and half rotation of the loaded
// rows give the same scores.
TEST(Checkpoint, rotations_of_both_orders_give_the_same_scores) {
  const std::vector<float> stored_q = draw(32 * 32, 4);
  const std::vector<float> stored_k = draw(16 * 32, 5);
  GgufBuilder builder = test::llama_metadata();
  builder.tensor("blk.0.attn_q.weight", GgmlType::kF32, {32, 32}, bytes_of(stored_q))
      .tensor("blk.0.attn_k.weight", GgmlType::kF32, {16, 32}, bytes_of(stored_k));
  const Bytes bytes = builder.bytes();
  const Checkpoint checkpoint = from(bytes);
  const std::vector<float> x = draw(kHidden, 6);

  const auto project_head = [&](const std::vector<float>& weight, int head) {
    std::vector<double> y(kHeadDim);
    for (std::size_t i = 0; i < y.size(); ++i) {
      const std::size_t row = static_cast<std::size_t>(head) * kHeadDim + i;
      for (std::size_t c = 0; c < x.size(); ++c) {
        y[i] += static_cast<double>(weight[row * x.size() + c]) * static_cast<double>(x[c]);
      }
    }
    return y;
  };
  const auto rotate = [](std::vector<double> y, double position, bool adjacent) {
    constexpr std::size_t kHalf = kHeadDim / 2;
    for (std::size_t i = 0; i < kHalf; ++i) {
      const double angle = position * std::pow(10000.0, -static_cast<double>(i) / kHalf);
      double& a = y[adjacent ? 2 * i : i];
      double& b = y[adjacent ? 2 * i + 1 : i + kHalf];
      const double turned = a * std::cos(angle) - b * std::sin(angle);
      b = a * std::sin(angle) + b * std::cos(angle);
      a = turned;
    }
    return y;
  };
  const std::vector<float> q = checkpoint.load_f32(kQ, 32, 32);
  const std::vector<float> k = checkpoint.load_f32(kK, 16, 32);
  for (int head = 0; head < 4; ++head) {
    double adjacent_score = 0;
    double half_score = 0;
    double unturned_score = 0;
    const auto q_adjacent = rotate(project_head(stored_q, head), 11, true);
    const auto k_adjacent = rotate(project_head(stored_k, head / 2), 3, true);
    const auto q_half = rotate(project_head(q, head), 11, false);
    const auto k_half = rotate(project_head(k, head / 2), 3, false);
    const auto q_wrong = rotate(project_head(stored_q, head), 11, false);
    const auto k_wrong = rotate(project_head(stored_k, head / 2), 3, false);
    for (std::size_t i = 0; i < q_half.size(); ++i) {
      adjacent_score += q_adjacent[i] * k_adjacent[i];
      half_score += q_half[i] * k_half[i];
      unturned_score += q_wrong[i] * k_wrong[i];
    }
    EXPECT_NEAR(half_score, adjacent_score, 1e-9 * (1 + std::abs(adjacent_score)));
    EXPECT_GT(std::abs(unturned_score - adjacent_score), 1e-3);  // the trap would be seen
  }
}

TEST(Checkpoint, gguf_types_and_shapes_are_checked_when_loaded) {
  constexpr std::uint32_t kQ4K = 12;
  constexpr const char* kUp = "model.layers.0.mlp.up_proj.weight";
  GgufBuilder builder = test::llama_metadata();
  builder.tensor("blk.0.ffn_up.weight", kQ4K, {64, 256}, Bytes(64 * 144))
      .tensor("blk.0.attn_q.weight", GgmlType::kF32, {32, 32}, Bytes(4096));
  const Bytes bytes = builder.bytes();
  const Checkpoint checkpoint = from(bytes);
  EXPECT_TRUE(checkpoint.contains(kUp));
  EXPECT_FALSE(checkpoint.contains("lm_head.weight"));
  EXPECT_FALSE(checkpoint.contains("nonsense"));
  EXPECT_EQ(checkpoint.fp8(kQ), std::nullopt);
  expect_error(ErrorCode::kBadFile, {"model.gguf", "blk.0.ffn_up.weight", "Q4_K", "Q8_0"},
               [&] { (void)checkpoint.load_f32(kUp, 64, 256); });
  expect_error(ErrorCode::kBadFile, {"blk.0.attn_q.weight", "[32, 32]", "[32, 16]"},
               [&] { (void)checkpoint.load_f32(kQ, 32, 16); });
  expect_error(ErrorCode::kBadFile, {"output.weight", "lm_head.weight"},
               [&] { (void)checkpoint.load_f32("lm_head.weight", 8, 32); });
  expect_error(ErrorCode::kBadFile, {"nonsense"}, [&] { (void)checkpoint.fp8("nonsense"); });
}

TEST(Checkpoint, gguf_frequency_factors) {
  const Bytes without = test::llama_metadata().bytes();
  EXPECT_EQ(from(without).rope_frequency_factors(), std::nullopt);
  const auto with = [](const std::vector<float>& factors) {
    GgufBuilder builder = test::llama_metadata();
    builder.tensor("rope_freqs.weight", GgmlType::kF32, {factors.size()}, bytes_of(factors));
    return builder.bytes();
  };
  const std::vector<float> factors{1.0F, 2.0F, 4.0F, 8.0F};
  const Bytes bytes = with(factors);
  EXPECT_EQ(from(bytes).rope_frequency_factors(), factors);
  for (const std::vector<float>& bad :
       {std::vector<float>{1, 2, 4}, std::vector<float>{1, 2, 0, 8},
        std::vector<float>{1, 2, NAN, 8}, std::vector<float>{1, 2, INFINITY, 8}}) {
    const Bytes bad_bytes = with(bad);
    expect_error(ErrorCode::kBadFile, {"rope_freqs.weight"},
                 [&] { (void)from(bad_bytes).rope_frequency_factors(); });
  }
}

SafetensorsBuilder small_weights() {
  SafetensorsBuilder builder;
  builder.tensor("model.norm.weight", "BF16", {32}, Bytes(64, std::byte{0x3F}))
      .tensor(kQ, "F8_E4M3", {32, 32}, Bytes(1024, std::byte{0x38}))
      .tensor(std::string(kQ) + "_scale", "F32", {32, 1}, bytes_of(std::vector<float>(32, 0.25F)))
      .tensor(kK, "F8_E4M3", {16, 32}, Bytes(512, std::byte{0x38}))
      .tensor(kV, "F16", {16, 32}, Bytes(1024));
  return builder;
}

TEST(Checkpoint, safetensors_fp8_weights) {
  const Bytes bytes = small_weights().bytes();
  const Checkpoint checkpoint = Checkpoint::from_safetensors(
      SafetensorsSet::from_files({SafetensorsFile::parse(bytes, "m.safetensors")}),
      llama_config_from_json(kConfig, "config.json"));
  EXPECT_EQ(checkpoint.gguf(), nullptr);
  EXPECT_EQ(checkpoint.load_f32(kQ, 32, 32), std::vector<float>(1024, 0.25F));
  const std::optional<StoredFp8> q = checkpoint.fp8(kQ);
  ASSERT_TRUE(q.has_value());
  EXPECT_EQ(q->rows, 32);
  EXPECT_EQ(q->cols, 32);
  EXPECT_EQ(q->row_stride, 32);
  EXPECT_EQ(q->granularity, ScaleGranularity::kRow);
  EXPECT_EQ(q->scales, std::vector<float>(32, 0.25F));
  EXPECT_EQ(q->codes[1023], 0x38);
  EXPECT_EQ(checkpoint.fp8(kV).has_value(), false);
  EXPECT_EQ(checkpoint.load_f32(kV, 16, 32), std::vector<float>(512, 0.0F));
  EXPECT_EQ(checkpoint.load_f32("model.norm.weight", 1, 32).size(), 32U);
  for (const auto& call : {std::function<void()>([&] { (void)checkpoint.load_f32(kK, 16, 32); }),
                           std::function<void()>([&] { (void)checkpoint.fp8(kK); })}) {
    expect_error(ErrorCode::kBadFile, {"k_proj.weight_scale_inv", "k_proj.weight_scale\""}, call);
  }
  expect_error(ErrorCode::kBadFile, {"v_proj", "[16, 32]", "[32, 16]"},
               [&] { (void)checkpoint.load_f32(kV, 32, 16); });
  expect_error(ErrorCode::kBadFile, {"absent"}, [&] { (void)checkpoint.load_f32("absent", 1, 1); });
}

TEST(Checkpoint, scales_of_other_weights_and_odd_dtypes_are_refused) {
  SafetensorsBuilder builder;
  builder.tensor("a", "BF16", {1, 2}, Bytes(4)).tensor("a_scale", "F32", {1}, Bytes(4));
  builder.tensor("b", "I64", {1, 2}, Bytes(16)).tensor("c", "F8_E8M0", {1, 2}, Bytes(2));
  const Bytes bytes = builder.bytes();
  const Checkpoint checkpoint = Checkpoint::from_safetensors(
      SafetensorsSet::from_files({SafetensorsFile::parse(bytes, "m.safetensors")}),
      llama_config_from_json(kConfig, "config.json"));
  expect_error(ErrorCode::kBadFile, {"\"a\"", "BF16", "a_scale"},
               [&] { (void)checkpoint.load_f32("a", 1, 2); });
  expect_error(ErrorCode::kBadFile, {"\"b\"", "I64"},
               [&] { (void)checkpoint.load_f32("b", 1, 2); });
  expect_error(ErrorCode::kBadFile, {"\"c\"", "F8_E8M0"},
               [&] { (void)checkpoint.load_f32("c", 1, 2); });
}

TEST(Checkpoint, opens_every_kind_of_path) {
  const test::TemporaryFolder folder;
  folder.write("config.json", kConfig);
  const auto file = folder.write("model.safetensors", small_weights().bytes());
  for (const std::filesystem::path& path : {file, folder.path()}) {
    Checkpoint checkpoint = Checkpoint::open(path);
    EXPECT_TRUE(checkpoint.config().tie_word_embeddings);
    EXPECT_EQ(checkpoint.folder(), folder.path());
    const StoredFp8 q = checkpoint.fp8(kQ).value();
    const Checkpoint moved = std::move(checkpoint);  // the mapping stays alive and in place
    EXPECT_EQ(q.codes[0], 0x38);
    EXPECT_EQ(moved.fp8(kQ).value().codes, q.codes);
  }
  std::filesystem::rename(file, folder.path() / "model-00001.safetensors");
  folder.write("model.safetensors.index.json",
               R"({"weight_map":{"model.norm.weight":"model-00001.safetensors"}})");
  const Checkpoint sharded = Checkpoint::open(folder.path());
  EXPECT_TRUE(sharded.contains("model.norm.weight"));
  EXPECT_FALSE(sharded.contains(kQ));  // the index says what the model has

  GgufBuilder builder = test::llama_metadata();
  builder.tensor("output_norm.weight", GgmlType::kF32, {32}, Bytes(128));
  const Checkpoint gguf = Checkpoint::open(folder.write("model.gguf", builder.bytes()));
  ASSERT_NE(gguf.gguf(), nullptr);
  EXPECT_EQ(gguf.load_f32("model.norm.weight", 1, 32), std::vector<float>(32, 0.0F));
}

TEST(Checkpoint, paths_that_are_no_model_are_io_errors) {
  const test::TemporaryFolder folder;
  expect_error(ErrorCode::kIo, {"neither model.safetensors nor"},
               [&] { (void)Checkpoint::open(folder.path()); });
  expect_error(ErrorCode::kIo, {"model.bin", ".gguf"},
               [&] { (void)Checkpoint::open(folder.path() / "model.bin"); });
  expect_error(ErrorCode::kIo, {"absent.gguf"},
               [&] { (void)Checkpoint::open(folder.path() / "absent.gguf"); });
  folder.write("model.safetensors", small_weights().bytes());
  expect_error(ErrorCode::kIo, {"config.json", "No such file"},
               [&] { (void)Checkpoint::open(folder.path()); });
}

}  // namespace
}  // namespace octavo::llm
