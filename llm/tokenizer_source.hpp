// SPDX-License-Identifier: Apache-2.0
// Reads the parts of a tokenizer from a HF tokenizer.json or from GGUF metadata. Only byte-level
// BPE is known; whatever else such a file asks for is refused by name rather than left out, because
// a tokenizer that is almost right gives a model quietly worse text. Next: tokenizer_bpe.hpp.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "llm/tokenizer_parts.hpp"

namespace octavo::llm {

class GgufFile;

// All three throw Error: kIo if the file cannot be read, kBadFile if it breaks its format,
// kUnsupported for a model, normalizer, pre-tokenizer, post-processor or decoder not known.
// `source` names the text in errors. A tokenizer.json has no field for eos: it stays empty.
[[nodiscard]] TokenizerParts tokenizer_parts_from_json(std::string_view text, std::string source);
[[nodiscard]] TokenizerParts tokenizer_parts_from_json_file(const std::filesystem::path& path);
[[nodiscard]] TokenizerParts tokenizer_parts_from_gguf(const GgufFile& file);

}  // namespace octavo::llm
