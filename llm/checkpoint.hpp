// SPDX-License-Identifier: Apache-2.0
// A Llama checkpoint, whatever file it came from: its configuration, and its tensors by the names
// that Hugging Face gives them, always with RoPE's half-rotated order of rows (element i of a head
// is turned with element i + head_dim/2). The formats are gguf_reader.hpp and safetensors_set.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "llm/fp8_weight.hpp"
#include "llm/gguf_reader.hpp"
#include "llm/llama_config.hpp"
#include "llm/safetensors_set.hpp"

namespace octavo::llm {

class Checkpoint {
 public:
  // `path` is a .gguf file; a .safetensors file with config.json beside it; or a folder with
  // config.json and model.safetensors or model.safetensors.index.json. Throws Error: kIo if a file
  // cannot be read, kBadFile if one breaks its format or the model is not one that is served.
  [[nodiscard]] static Checkpoint open(const std::filesystem::path& path);

  // Files already read.
  [[nodiscard]] static Checkpoint from_gguf(GgufFile file);
  [[nodiscard]] static Checkpoint from_safetensors(SafetensorsSet set, LlamaConfig config);

  [[nodiscard]] const LlamaConfig& config() const noexcept { return config_; }

  // Names are Hugging Face's, e.g. "model.layers.0.self_attn.q_proj.weight", "lm_head.weight".
  [[nodiscard]] bool contains(std::string_view name) const;

  // A matrix [rows, cols], row-major, or a vector if rows is 1. FP8 weights come multiplied by
  // their scales. Throws Error (kBadFile) if it is absent, has another shape or a type that is not
  // decoded.
  [[nodiscard]] std::vector<float> load_f32(std::string_view name, std::int64_t rows,
                                            std::int64_t cols) const;

  // The weight as stored if it is stored in FP8, nullopt if in another type. Throws Error
  // (kBadFile) if it is absent, or FP8 without a usable scale. The codes live as long as this
  // object.
  [[nodiscard]] std::optional<StoredFp8> fp8(std::string_view name) const;

  // Factors that RoPE's frequencies are divided by, [head_dim/2], where the file has them as a
  // tensor (Llama 3 in GGUF).
  [[nodiscard]] std::optional<std::vector<float>> rope_frequency_factors() const;

  // The GGUF file, which holds the tokenizer too; null for safetensors.
  [[nodiscard]] const GgufFile* gguf() const noexcept { return std::get_if<GgufFile>(&source_); }

  // Where the checkpoint was opened: the folder of tokenizer.json. Empty after from_...().
  [[nodiscard]] const std::filesystem::path& folder() const noexcept { return folder_; }

 private:
  Checkpoint(std::variant<GgufFile, SafetensorsSet> source, LlamaConfig config);

  std::variant<GgufFile, SafetensorsSet> source_;
  LlamaConfig config_;
  std::filesystem::path folder_;
};

// The GGUF name of a tensor: "blk.0.attn_q.weight" for "model.layers.0.self_attn.q_proj.weight".
// Empty for names that a Llama does not have.
[[nodiscard]] std::string gguf_tensor_name(std::string_view name);

}  // namespace octavo::llm
