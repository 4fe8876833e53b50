// SPDX-License-Identifier: Apache-2.0
// safetensors files: whatever the bytes, opening them and loading every tensor returns or throws
// Error.
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>

#include "llm/checkpoint.hpp"
#include "llm/safetensors_set.hpp"
#include "octavo/error.hpp"

namespace {

using namespace octavo::llm;

void attempt(const std::function<void()>& call) {
  try {
    call();
  } catch (const octavo::Error&) {
  }
}

void load(const Checkpoint& checkpoint, const SafetensorsTensor& tensor) {
  const std::int64_t rows = tensor.shape.size() == 2 ? tensor.shape[0] : 1;
  const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
  attempt([&] { (void)checkpoint.load_f32(tensor.name, rows, cols); });
  attempt([&] {
    const std::optional<StoredFp8> weight = checkpoint.fp8(tensor.name);
    if (!weight) return;
    (void)dequantize(shard_rows(*weight, weight->rows / 2, weight->rows));
    (void)dequantize(shard_cols(*weight, weight->cols / 2, weight->cols));
  });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  attempt([&] {
    const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
    const SafetensorsFile file = SafetensorsFile::parse(bytes, "input.safetensors");
    const Checkpoint checkpoint =
        Checkpoint::from_safetensors(SafetensorsSet::from_files({file}), LlamaConfig{});
    for (const SafetensorsTensor& tensor : file.tensors()) load(checkpoint, tensor);
  });
  return 0;
}
