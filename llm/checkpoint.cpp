// SPDX-License-Identifier: Apache-2.0
// The common face of GGUF and safetensors checkpoints. See checkpoint.hpp.
#include "llm/checkpoint.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <span>
#include <utility>

#include "llm/element_decode.hpp"
#include "llm/file_error.hpp"
#include "llm/mapped_file.hpp"

namespace octavo::llm {
namespace {

constexpr std::uint64_t kMaxConfigBytes = std::uint64_t{16} << 20;
constexpr std::string_view kLayerPrefix = "model.layers.";

struct NamePair {
  std::string_view hugging_face;
  std::string_view gguf;
};
constexpr NamePair kTopNames[] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"lm_head.weight", "output.weight"},
};
// Without ".weight" or ".bias".
constexpr NamePair kLayerNames[] = {
    {"input_layernorm", "attn_norm"}, {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},   {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},   {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
};

void check_shape(std::span<const std::int64_t> shape, std::int64_t rows, std::int64_t cols,
                 std::string_view name, std::string_view file) {
  const bool matrix = shape.size() == 2 && shape[0] == rows && shape[1] == cols;
  const bool vector = rows == 1 && shape.size() == 1 && shape[0] == cols;
  if (matrix || vector) return;
  throw bad_file(file,
                 fmt::format("tensor {} has shape [{}]", printable(name), fmt::join(shape, ", ")),
                 rows == 1 ? fmt::format("the model's configuration needs [{}]", cols)
                           : fmt::format("the model's configuration needs [{}, {}]", rows, cols),
                 "Check that configuration and weights belong together");
}

const GgufTensor& required_tensor(const GgufFile& file, std::string_view name) {
  const std::string gguf_name = gguf_tensor_name(name);
  const GgufTensor* tensor = gguf_name.empty() ? nullptr : file.find(gguf_name);
  if (tensor == nullptr) {
    throw bad_file(file.name(),
                   fmt::format("there is no tensor {} ({})", printable(gguf_name), printable(name)),
                   "the model needs it", "Fetch or convert the file again");
  }
  return *tensor;
}

// The number of heads whose rows GGUF stores in adjacent order, 0 for tensors that have no such
// rows.
std::int64_t permuted_heads(std::string_view name, const LlamaConfig& config) {
  if (name.find(".self_attn.q_proj.") != std::string_view::npos) return config.num_heads;
  if (name.find(".self_attn.k_proj.") != std::string_view::npos) return config.num_kv_heads;
  return 0;
}

// NOTE: converters to GGUF permute the rows of Q and K so that RoPE turns adjacent pairs: row 2*i +
// s of a head was row s*d/2 + i. Undone here, once, so that the model knows one form only.
std::int64_t gguf_row(std::int64_t row, std::int64_t head_dim) noexcept {
  const std::int64_t half = head_dim / 2;
  const std::int64_t in_head = row % head_dim;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

std::vector<float> load_gguf(const GgufFile& file, const LlamaConfig& config, std::string_view name,
                             std::int64_t rows, std::int64_t cols) {
  const GgufTensor& tensor = required_tensor(file, name);
  const std::optional<GgmlBlockSize> block = ggml_block_size(tensor.type);
  if (!block) {
    throw bad_file(
        file.name(),
        fmt::format("tensor {} has type {}", printable(tensor.name), ggml_type_name(tensor.type)),
        fmt::format("{} are decoded", ggml_decodable_types()),
        "Use a file in one of these, e.g. Q8_0 or F16");
  }
  check_shape(tensor.shape, rows, cols, tensor.name, file.name());
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  const std::int64_t heads = permuted_heads(name, config);
  if (heads == 0) {
    decode_ggml(tensor.type, tensor.bytes, out);
    return out;
  }
  // A bias has one element where a matrix has a row.
  const bool bias = tensor.shape.size() == 1;
  const std::int64_t num_rows = bias ? cols : rows;
  const std::int64_t row_elems = bias ? 1 : cols;
  if (num_rows != heads * config.head_dim || row_elems % block->elems != 0) {
    throw bad_file(
        file.name(),
        fmt::format("tensor {} has {} rows of {}", printable(tensor.name), num_rows, row_elems),
        fmt::format("{} heads of {} rows in whole blocks are needed", heads, config.head_dim),
        "Convert the model again");
  }
  const auto row_bytes = static_cast<std::size_t>(row_elems / block->elems * block->bytes);
  const std::span<float> all(out);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto from = static_cast<std::size_t>(gguf_row(row, config.head_dim));
    decode_ggml(tensor.type, tensor.bytes.subspan(from * row_bytes, row_bytes),
                all.subspan(static_cast<std::size_t>(row * row_elems),
                            static_cast<std::size_t>(row_elems)));
  }
  return out;
}

std::vector<float> load_safetensors(const SafetensorsSet& set, const LlamaConfig& config,
                                    std::string_view name, std::int64_t rows, std::int64_t cols) {
  const SafetensorsTensor& tensor = set.at(name);
  const std::string& file = set.file_of(name);
  check_shape(tensor.shape, rows, cols, name, file);
  if (tensor.dtype && is_fp8(*tensor.dtype)) {
    return dequantize(read_fp8(set, name, config.declared_scales));
  }
  if (!tensor.dtype || !is_value_type(*tensor.dtype)) {
    throw bad_file(file, fmt::format("tensor {} has dtype {}", printable(name), tensor.dtype_name),
                   "F32, F16, BF16, F8_E4M3 and F8_E5M2 are served for weights",
                   "Use a checkpoint in one of these");
  }
  if (const std::optional<std::string> scale = find_scale_name(set, name); scale) {
    throw bad_file(file,
                   fmt::format("tensor {} has dtype {} and a scale {}", printable(name),
                               tensor.dtype_name, printable(*scale)),
                   "only FP8 weights have scales", "Remove the scale, or store the FP8 codes");
  }
  std::vector<float> out(static_cast<std::size_t>(rows * cols));
  decode_elements(*tensor.dtype, tensor.bytes, out);
  return out;
}

LlamaConfig read_config(const std::filesystem::path& folder) {
  const std::filesystem::path path = folder / "config.json";
  const MappedFile mapping(path);
  const std::span<const std::byte> bytes = mapping.bytes();
  if (bytes.size() > kMaxConfigBytes) {
    throw bad_file(path.string(), fmt::format("the file has {} bytes", bytes.size()),
                   fmt::format("a configuration has at most {} bytes", kMaxConfigBytes),
                   "Check that this is the file meant");
  }
  return llama_config_from_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()},
                                path.string());
}

SafetensorsSet open_folder(const std::filesystem::path& folder) {
  std::error_code ignored;
  const std::filesystem::path single = folder / "model.safetensors";
  if (std::filesystem::exists(single, ignored)) return SafetensorsSet::open_file(single);
  const std::filesystem::path index = folder / "model.safetensors.index.json";
  if (std::filesystem::exists(index, ignored)) return SafetensorsSet::open_index(index);
  throw Error(
      ErrorCode::kIo,
      fmt::format("{}: there is neither model.safetensors nor model.safetensors.index.json; a "
                  "model's folder holds one of them and config.json. Give the path of such a "
                  "folder, or of a .gguf or .safetensors file.",
                  folder.string()));
}

}  // namespace

std::string gguf_tensor_name(std::string_view name) {
  for (const NamePair& pair : kTopNames) {
    if (pair.hugging_face == name) return std::string(pair.gguf);
  }
  if (!name.starts_with(kLayerPrefix)) return {};
  name.remove_prefix(kLayerPrefix.size());
  const std::size_t dot = name.find('.');
  const std::string_view layer = name.substr(0, dot);
  const bool digits = !layer.empty() && std::all_of(layer.begin(), layer.end(),
                                                    [](char c) { return c >= '0' && c <= '9'; });
  if (!digits || dot == std::string_view::npos) return {};
  name.remove_prefix(dot + 1);
  const std::size_t last_dot = name.rfind('.');
  if (last_dot == std::string_view::npos) return {};
  const std::string_view suffix = name.substr(last_dot);
  if (suffix != ".weight" && suffix != ".bias") return {};
  for (const NamePair& pair : kLayerNames) {
    if (pair.hugging_face == name.substr(0, last_dot)) {
      return fmt::format("blk.{}.{}{}", layer, pair.gguf, suffix);
    }
  }
  return {};
}

Checkpoint::Checkpoint(std::variant<GgufFile, SafetensorsSet> source, LlamaConfig config)
    : source_(std::move(source)), config_(std::move(config)) {}

Checkpoint Checkpoint::from_gguf(GgufFile file) {
  LlamaConfig config = llama_config_from_gguf(file);
  return {std::move(file), std::move(config)};
}

Checkpoint Checkpoint::from_safetensors(SafetensorsSet set, LlamaConfig config) {
  return {std::move(set), std::move(config)};
}

Checkpoint Checkpoint::open(const std::filesystem::path& path) {
  std::error_code ignored;
  const bool is_folder = std::filesystem::is_directory(path, ignored);
  const std::filesystem::path folder = is_folder ? path : path.parent_path();
  const std::filesystem::path extension = path.extension();
  if (!is_folder && extension != ".gguf" && extension != ".safetensors") {
    throw Error(
        ErrorCode::kIo,
        fmt::format("{}: this is neither a folder nor named .gguf or .safetensors; models are "
                    "read from these. Give the path of such a file or folder.",
                    path.string()));
  }
  const auto open_any = [&] {
    if (!is_folder && extension == ".gguf") return from_gguf(GgufFile::open(path));
    SafetensorsSet set = is_folder ? open_folder(path) : SafetensorsSet::open_file(path);
    return from_safetensors(std::move(set), read_config(folder));
  };
  Checkpoint checkpoint = open_any();
  checkpoint.folder_ = folder;
  return checkpoint;
}

bool Checkpoint::contains(std::string_view name) const {
  if (const auto* set = std::get_if<SafetensorsSet>(&source_)) return set->find(name) != nullptr;
  const std::string gguf_name = gguf_tensor_name(name);
  return !gguf_name.empty() && gguf()->find(gguf_name) != nullptr;
}

std::vector<float> Checkpoint::load_f32(std::string_view name, std::int64_t rows,
                                        std::int64_t cols) const {
  if (const auto* set = std::get_if<SafetensorsSet>(&source_)) {
    return load_safetensors(*set, config_, name, rows, cols);
  }
  return load_gguf(*gguf(), config_, name, rows, cols);
}

std::optional<StoredFp8> Checkpoint::fp8(std::string_view name) const {
  const auto* set = std::get_if<SafetensorsSet>(&source_);
  if (set == nullptr) {
    (void)required_tensor(*gguf(), name);
    return std::nullopt;
  }
  const SafetensorsTensor& tensor = set->at(name);
  if (!tensor.dtype || !is_fp8(*tensor.dtype)) return std::nullopt;
  return read_fp8(*set, name, config_.declared_scales);
}

std::optional<std::vector<float>> Checkpoint::rope_frequency_factors() const {
  constexpr std::string_view kName = "rope_freqs.weight";
  const GgufFile* file = gguf();
  const GgufTensor* tensor = file == nullptr ? nullptr : file->find(kName);
  if (tensor == nullptr) return std::nullopt;
  if (tensor->type != GgmlType::kF32) {
    throw bad_file(file->name(),
                   fmt::format("tensor {} has type {}", kName, ggml_type_name(tensor->type)),
                   "frequency factors are F32", "Convert the model again");
  }
  const std::int64_t count = config_.head_dim / 2;
  check_shape(tensor->shape, 1, count, kName, file->name());
  std::vector<float> factors(static_cast<std::size_t>(count));
  decode_elements(DType::kF32, tensor->bytes, factors);
  for (std::size_t i = 0; i < factors.size(); ++i) {
    if (factors[i] > 0.0F && factors[i] <= std::numeric_limits<float>::max()) continue;
    throw bad_file(file->name(), fmt::format("{} is {} at index {}", kName, factors[i], i),
                   "frequency factors are finite and positive", "Fetch or convert the file again");
  }
  return factors;
}

}  // namespace octavo::llm
