// SPDX-License-Identifier: Apache-2.0
#include "llm/tiny_model.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "llm/generate.hpp"
#include "octavo/quantize.hpp"

namespace octavo::test {
namespace {

std::filesystem::path tiny_folder() {
  return std::filesystem::path(OCTAVO_TEST_DATA) / "tiny_llama";
}

template <typename T>
std::vector<std::byte> bytes_of(const std::vector<T>& values) {
  std::vector<std::byte> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

}  // namespace

const llm::Checkpoint& tiny_checkpoint() {
  static const llm::Checkpoint checkpoint = llm::Checkpoint::open(tiny_folder());
  return checkpoint;
}

const llm::BpeTokenizer& tiny_tokenizer() {
  static const llm::BpeTokenizer tokenizer = llm::load_tokenizer(tiny_checkpoint());
  return tokenizer;
}

const std::vector<ReferencePrompt>& reference_prompts() {
  static const std::vector<ReferencePrompt> prompts = [] {
    std::ifstream file(tiny_folder() / "reference_logits.json");
    const nlohmann::json document = nlohmann::json::parse(file);
    std::vector<ReferencePrompt> list;
    for (const nlohmann::json& entry : document.at("prompts")) {
      list.push_back({.text = entry.at("text"),
                      .ids = entry.at("ids"),
                      .positions = entry.at("positions"),
                      .logits = entry.at("logits"),
                      .greedy_ids = entry.at("greedy_ids")});
    }
    return list;
  }();
  return prompts;
}

std::vector<float> run_all(const llm::LlamaModel& model, const std::vector<std::int32_t>& ids,
                           std::int64_t chunk) {
  llm::KvCache cache = model.make_cache();
  llm::DecoderScratch scratch = model.make_scratch(chunk, llm::LogitRows::kAll);
  std::vector<float> logits;
  for (std::size_t at = 0; at < ids.size(); at += static_cast<std::size_t>(chunk)) {
    const std::size_t count = std::min(static_cast<std::size_t>(chunk), ids.size() - at);
    const std::span<const float> rows =
        model.forward(std::span(ids).subspan(at, count), cache, scratch, llm::LogitRows::kAll);
    logits.insert(logits.end(), rows.begin(), rows.end());
  }
  return logits;
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    ab += static_cast<double>(a[i]) * static_cast<double>(b[i]);
    aa += static_cast<double>(a[i]) * static_cast<double>(a[i]);
    bb += static_cast<double>(b[i]) * static_cast<double>(b[i]);
  }
  return ab / std::sqrt(aa * bb);
}

EditedCheckpoint::EditedCheckpoint() {
  const llm::Checkpoint& checkpoint = tiny_checkpoint();
  const llm::LlamaConfig& c = checkpoint.config();
  const auto copy = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
    set_f32(name, rows == 1 ? std::vector<std::int64_t>{cols} : std::vector{rows, cols},
            checkpoint.load_f32(name, rows, cols));
  };
  copy("model.embed_tokens.weight", c.vocab_size, c.hidden_size);
  copy("model.norm.weight", 1, c.hidden_size);
  for (std::int64_t i = 0; i < c.num_layers; ++i) {
    const std::string layer = fmt::format("model.layers.{}.", i);
    copy(layer + "input_layernorm.weight", 1, c.hidden_size);
    copy(layer + "post_attention_layernorm.weight", 1, c.hidden_size);
    copy(layer + "self_attn.q_proj.weight", c.num_heads * c.head_dim, c.hidden_size);
    copy(layer + "self_attn.k_proj.weight", c.num_kv_heads * c.head_dim, c.hidden_size);
    copy(layer + "self_attn.v_proj.weight", c.num_kv_heads * c.head_dim, c.hidden_size);
    copy(layer + "self_attn.o_proj.weight", c.hidden_size, c.num_heads * c.head_dim);
    copy(layer + "mlp.gate_proj.weight", c.intermediate_size, c.hidden_size);
    copy(layer + "mlp.up_proj.weight", c.intermediate_size, c.hidden_size);
    copy(layer + "mlp.down_proj.weight", c.hidden_size, c.intermediate_size);
  }
}

std::vector<std::string> EditedCheckpoint::matrix_names() const {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : tensors_) {
    if (name.find("_proj.weight") != std::string::npos) names.push_back(name);
  }
  return names;
}

void EditedCheckpoint::set_f32(const std::string& name, std::vector<std::int64_t> shape,
                               const std::vector<float>& values) {
  tensors_[name] = {"F32", std::move(shape), bytes_of(values)};
}

void EditedCheckpoint::store_as_fp8(const std::string& name, Scales scales,
                                    std::string_view suffix) {
  Tensor& weight = tensors_.at(name);
  const std::int64_t rows = weight.shape[0];
  const std::int64_t cols = weight.shape[1];
  const ScaleGranularity granularity = scales == Scales::kTensor ? ScaleGranularity::kTensor
                                       : scales == Scales::kRow  ? ScaleGranularity::kRow
                                                                 : ScaleGranularity::kBlock128x128;
  const ScaleShape shape = scale_shape(granularity, rows, cols);
  std::vector<float> scale(static_cast<std::size_t>(shape.rows * shape.cols));
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(rows * cols));
  QuantizeProblem problem;
  problem.x =
      make_view(static_cast<const std::byte*>(weight.bytes.data()), DType::kF32, {rows, cols});
  problem.q = make_view(codes.data(), DType::kE4M3, {rows, cols});
  problem.granularity = granularity;
  problem.scale = scales == Scales::kBlock
                      ? make_view(scale.data(), DType::kF32, {shape.rows, shape.cols})
                      : make_view(scale.data(), DType::kF32, {shape.rows});
  (void)quantize(problem);
  weight = {"F8_E4M3", {rows, cols}, bytes_of(codes)};
  std::vector<std::int64_t> stored_shape;  // a scalar
  if (scales == Scales::kRow) stored_shape = {rows, 1};
  if (scales == Scales::kBlock) stored_shape = {shape.rows, shape.cols};
  tensors_[name + std::string(suffix)] = {"F32", stored_shape, bytes_of(scale)};
}

llm::Checkpoint EditedCheckpoint::open() {
  std::string header = "{";
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors_) {
    header += fmt::format("{}\"{}\":{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                          offset == 0 ? "" : ",", name, tensor.dtype, fmt::join(tensor.shape, ","),
                          offset, offset + tensor.bytes.size());
    offset += tensor.bytes.size();
  }
  header += "}";
  constexpr std::size_t kAlignment = 8;
  header.resize((header.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t header_bytes = header.size();
  file_.resize(sizeof(header_bytes));
  std::memcpy(file_.data(), &header_bytes, sizeof(header_bytes));
  const auto* text = reinterpret_cast<const std::byte*>(header.data());
  file_.insert(file_.end(), text, text + header.size());
  for (const auto& [name, tensor] : tensors_) {
    file_.insert(file_.end(), tensor.bytes.begin(), tensor.bytes.end());
  }
  std::vector<llm::SafetensorsFile> files;
  files.push_back(llm::SafetensorsFile::parse(file_, "edited.safetensors"));
  return llm::Checkpoint::from_safetensors(llm::SafetensorsSet::from_files(std::move(files)),
                                           tiny_checkpoint().config());
}

}  // namespace octavo::test
