// SPDX-License-Identifier: Apache-2.0
// GGUF files: whatever the bytes, opening them and using what was opened returns or throws Error.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "llm/checkpoint.hpp"
#include "llm/gguf_reader.hpp"
#include "llm/tokenizer_bpe.hpp"
#include "llm/tokenizer_source.hpp"
#include "octavo/error.hpp"

namespace {

using namespace octavo::llm;

void attempt(const std::function<void()>& call) {
  try {
    call();
  } catch (const octavo::Error&) {
  }
}

void use(const GgufFile& file) {
  for (const std::string& key : file.keys()) {
    attempt([&] { (void)file.string(key); });
    attempt([&] { (void)file.uint(key); });
    attempt([&] { (void)file.number(key); });
    attempt([&] { (void)file.boolean(key); });
    attempt([&] { (void)file.string_array(key); });
    attempt([&] { (void)file.int_array(key); });
    attempt([&] { (void)file.float_array(key); });
  }
  for (const GgufTensor& tensor : file.tensors()) {
    const std::optional<GgmlBlockSize> block = ggml_block_size(tensor.type);
    if (!block) continue;
    std::vector<float> out(tensor.bytes.size() / static_cast<std::size_t>(block->bytes) *
                           static_cast<std::size_t>(block->elems));
    decode_ggml(tensor.type, tensor.bytes, out);
  }
  attempt([&] { (void)BpeTokenizer::from_parts(tokenizer_parts_from_gguf(file)); });
  attempt([&] {
    const Checkpoint checkpoint = Checkpoint::from_gguf(file);
    const LlamaConfig& config = checkpoint.config();
    attempt([&] { (void)checkpoint.rope_frequency_factors(); });
    attempt([&] {
      (void)checkpoint.load_f32("model.layers.0.self_attn.q_proj.weight",
                                config.num_heads * config.head_dim, config.hidden_size);
    });
    attempt([&] { (void)checkpoint.load_f32("model.norm.weight", 1, config.hidden_size); });
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attempt([&] {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    use(GgufFile::parse(bytes, "input.gguf"));
  });
  return 0;
}
