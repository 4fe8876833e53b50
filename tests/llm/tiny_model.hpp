// SPDX-License-Identifier: Apache-2.0
// The tiny Llama of tests/data, its reference logits, and copies of its checkpoint with tensors
// replaced.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "llm/checkpoint.hpp"
#include "llm/llama_model.hpp"
#include "llm/tokenizer_bpe.hpp"

namespace octavo::test {

[[nodiscard]] const llm::Checkpoint& tiny_checkpoint();
[[nodiscard]] const llm::BpeTokenizer& tiny_tokenizer();

struct ReferencePrompt {
  std::string text;
  std::vector<std::int32_t> ids;
  std::vector<std::int64_t> positions;     // of the rows of `logits`
  std::vector<std::vector<float>> logits;  // [positions, vocab], rounded from FP64
  std::vector<std::int32_t> greedy_ids;
};
[[nodiscard]] const std::vector<ReferencePrompt>& reference_prompts();

// All logits [tokens, vocab] of one forward pass over `ids`, in chunks of `chunk` tokens.
[[nodiscard]] std::vector<float> run_all(const llm::LlamaModel& model,
                                         const std::vector<std::int32_t>& ids, std::int64_t chunk);

[[nodiscard]] double cosine(const std::vector<float>& a, const std::vector<float>& b);

// A checkpoint in memory.
class EditedCheckpoint {
 public:
  // Starts with the tiny Llama's tensors, as F32.
  EditedCheckpoint();

  [[nodiscard]] std::vector<std::string> matrix_names() const;  // of the decoder layers
  void set_f32(const std::string& name, std::vector<std::int64_t> shape,
               const std::vector<float>& values);
  void remove(const std::string& name) { tensors_.erase(name); }
  enum class Scales { kTensor, kRow, kBlock };
  // Stores the matrix in E4M3 with a scale tensor name + suffix.
  void store_as_fp8(const std::string& name, Scales scales, std::string_view suffix);

  // The bytes belong to this object, which must outlive the result.
  [[nodiscard]] llm::Checkpoint open();

 private:
  struct Tensor {
    std::string dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor> tensors_;
  std::vector<std::byte> file_;
};

}  // namespace octavo::test
