// SPDX-License-Identifier: Apache-2.0
// config.json: whatever the text, reading it returns a configuration within its bounds or throws
// Error.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "llm/llama_config.hpp"
#include "octavo/error.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  try {
    const octavo::llm::LlamaConfig config =
        octavo::llm::llama_config_from_json(text, "config.json");
    const bool usable = config.num_layers > 0 && config.num_kv_heads > 0 &&
                        config.num_heads % config.num_kv_heads == 0 && config.head_dim > 0 &&
                        config.head_dim % 2 == 0 && config.rope_theta >= 1.0F &&
                        config.rms_norm_eps > 0.0F;
    if (!usable) std::abort();  // a finding
  } catch (const octavo::Error&) {
  }
  return 0;
}
