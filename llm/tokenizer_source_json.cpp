// SPDX-License-Identifier: Apache-2.0
// The tokenizer.json of HF's `tokenizers`. Every field that changes ids is either understood or
// refused; a missing field means what it means there.
#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <limits>
#include <nlohmann/json.hpp>

#include "llm/file_error.hpp"
#include "llm/mapped_file.hpp"
#include "llm/tokenizer_source.hpp"
#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kLargestFile = std::size_t{256} << 20;  // published ones have at most 35 MB
constexpr int kDeepestNesting = 32;                           // published ones reach 8
constexpr std::string_view kLlama3Regex =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3})"
    R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

class JsonSource {
 public:
  JsonSource(std::string_view text, std::string name) : name_(std::move(name)) { parse(text); }

  [[nodiscard]] TokenizerParts read();

 private:
  void parse(std::string_view text);

  [[nodiscard]] Error bad(std::string_view found, std::string_view rule) const {
    return bad_file(name_, found, rule, "Export the tokenizer again");
  }
  [[nodiscard]] Error unsupported(std::string_view found, std::string_view known) const {
    return Error(ErrorCode::kUnsupported,
                 fmt::format("{}: {}; {}. Use a model with a byte-level BPE tokenizer of a known "
                             "kind.",
                             name_, found, known));
  }

  // A field, or null when it is missing.
  [[nodiscard]] static const Json& field(const Json& object, const char* key);
  [[nodiscard]] std::string text(const Json& object, const char* key) const;
  [[nodiscard]] bool flag(const Json& object, const char* key, bool missing) const;
  [[nodiscard]] std::int32_t id(const Json& value, std::string_view what) const;
  void refuse_unless_default(const Json& object, const char* key,
                             std::initializer_list<Json> defaults) const;

  void read_model(TokenizerParts& parts) const;
  void read_merges(const Json& merges, TokenizerParts& parts) const;
  void read_vocabulary(TokenizerParts& parts) const;
  void read_added_token(const Json& added, TokenizerParts& parts) const;
  void place(TokenizerParts& parts, const std::string& token, std::int32_t token_id,
             TokenType type) const;
  [[nodiscard]] std::string pre_tokenizer() const;
  void read_post_processor(const Json& processor, TokenizerParts& parts) const;

  std::string name_;
  Json root_;
};

void JsonSource::parse(std::string_view text) {
  if (text.size() > kLargestFile) {
    throw bad(fmt::format("it has {} bytes", text.size()),
              fmt::format("a tokenizer.json has at most {}", kLargestFile));
  }
  const auto check_depth = [this](int depth, Json::parse_event_t, Json&) {
    if (depth > kDeepestNesting) {
      throw bad("objects and arrays are nested too deeply",
                fmt::format("at most {} levels are allowed", kDeepestNesting));
    }
    return true;
  };
  constexpr bool kWithExceptions = false;
  root_ = Json::parse(text.begin(), text.end(), check_depth, kWithExceptions);
  if (!root_.is_object()) throw bad("it is not a JSON object", "a tokenizer.json is one");
}

const Json& JsonSource::field(const Json& object, const char* key) {
  static const Json kMissing;
  if (!object.is_object()) return kMissing;
  const auto found = object.find(key);
  return found == object.end() ? kMissing : *found;
}

std::string JsonSource::text(const Json& object, const char* key) const {
  const Json& value = field(object, key);
  if (!value.is_string()) {
    throw bad(fmt::format("\"{}\" is missing or not a string", key), "it must be a string");
  }
  return value.get<std::string>();
}

bool JsonSource::flag(const Json& object, const char* key, bool missing) const {
  const Json& value = field(object, key);
  if (value.is_null()) return missing;
  if (!value.is_boolean()) {
    throw bad(fmt::format("\"{}\" is neither true nor false", key), "it must be one of them");
  }
  return value.get<bool>();
}

std::int32_t JsonSource::id(const Json& value, std::string_view what) const {
  constexpr std::int32_t kLargest = std::numeric_limits<std::int32_t>::max();
  if (!value.is_number_unsigned() || value.get<std::uint64_t>() > std::uint64_t{kLargest}) {
    throw bad(fmt::format("the id of {} is missing or no id", what),
              fmt::format("ids are whole numbers in [0, {}]", kLargest));
  }
  return static_cast<std::int32_t>(value.get<std::uint64_t>());
}

void JsonSource::refuse_unless_default(const Json& object, const char* key,
                                       std::initializer_list<Json> defaults) const {
  const Json& value = field(object, key);
  if (value.is_null() || std::find(defaults.begin(), defaults.end(), value) != defaults.end()) {
    return;
  }
  throw unsupported(fmt::format("\"{}\" is set", key), "this setting is not known");
}

TokenizerParts JsonSource::read() {
  TokenizerParts parts;
  parts.source = name_;
  const Json& normalizer = field(root_, "normalizer");
  if (!normalizer.is_null()) {
    throw unsupported(fmt::format("the normalizer is {}", printable(text(normalizer, "type"))),
                      "only text that is not normalized is known");
  }
  parts.pre_tokenizer = pre_tokenizer();
  const std::string decoder = text(field(root_, "decoder"), "type");
  if (decoder != "ByteLevel") {
    throw unsupported(fmt::format("the decoder is {}", printable(decoder)),
                      "only ByteLevel is known");
  }
  read_model(parts);
  read_vocabulary(parts);
  const Json& unknown = field(field(root_, "model"), "unk_token");
  if (!unknown.is_null()) {
    const std::string token = text(field(root_, "model"), "unk_token");
    const auto found = std::find(parts.tokens.begin(), parts.tokens.end(), token);
    if (found == parts.tokens.end()) {
      throw bad(fmt::format("\"unk_token\" is {}", printable(token)), "it must be a token");
    }
    parts.unknown = static_cast<std::int32_t>(found - parts.tokens.begin());
  }
  read_post_processor(field(root_, "post_processor"), parts);
  return parts;
}

void JsonSource::read_model(TokenizerParts& parts) const {
  const Json& model = field(root_, "model");
  const std::string type = text(model, "type");
  if (type != "BPE") {
    throw unsupported(fmt::format("the model is {}", printable(type)), "only BPE is known");
  }
  refuse_unless_default(model, "dropout", {0.0});
  refuse_unless_default(model, "continuing_subword_prefix", {""});
  refuse_unless_default(model, "end_of_word_suffix", {""});
  refuse_unless_default(model, "fuse_unk", {false});
  refuse_unless_default(model, "byte_fallback", {false});
  parts.whole_words_first = flag(model, "ignore_merges", false);
  read_merges(field(model, "merges"), parts);
}

void JsonSource::read_merges(const Json& merges, TokenizerParts& parts) const {
  if (!merges.is_array()) throw bad("\"merges\" is missing", "it must be an array");
  parts.merges.reserve(merges.size());
  for (const Json& merge : merges) {
    if (merge.is_string()) {
      parts.merges.push_back(merge.get<std::string>());
    } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() &&
               merge[1].is_string()) {
      parts.merges.push_back(merge[0].get<std::string>() + " " + merge[1].get<std::string>());
    } else {
      throw bad(
          fmt::format("merge {} is neither a string nor a pair of strings", parts.merges.size()),
          "a merge is one of them");
    }
  }
}

void JsonSource::read_vocabulary(TokenizerParts& parts) const {
  const Json& vocabulary = field(field(root_, "model"), "vocab");
  if (!vocabulary.is_object()) throw bad("\"vocab\" is missing", "it must be an object");
  const Json& added_tokens = field(root_, "added_tokens");
  if (!added_tokens.is_null() && !added_tokens.is_array()) {
    throw bad("\"added_tokens\" is no array", "it must be one");
  }
  // Ids must have no gaps, so an added token that is not in `vocab` makes the vocabulary longer.
  std::size_t count = vocabulary.size();
  for (const Json& added : added_tokens) {
    if (!vocabulary.contains(text(added, "content"))) ++count;
  }
  parts.tokens.assign(count, {});
  parts.token_types.assign(count, TokenType::kNormal);
  for (const auto& [token, token_id] : vocabulary.items()) {
    place(parts, token, id(token_id, printable(token)), TokenType::kNormal);
  }
  for (const Json& added : added_tokens) read_added_token(added, parts);
}

void JsonSource::read_added_token(const Json& added, TokenizerParts& parts) const {
  const std::string token = text(added, "content");
  refuse_unless_default(added, "single_word", {false});
  refuse_unless_default(added, "lstrip", {false});
  refuse_unless_default(added, "rstrip", {false});
  const bool special = flag(added, "special", false);
  place(parts, token, id(field(added, "id"), printable(token)),
        special ? TokenType::kControl : TokenType::kUserDefined);
}

void JsonSource::place(TokenizerParts& parts, const std::string& token, std::int32_t token_id,
                       TokenType type) const {
  const auto index = static_cast<std::size_t>(token_id);
  if (token.empty()) throw bad(fmt::format("token {} is empty", token_id), "a token has bytes");
  if (index >= parts.tokens.size()) {
    throw bad(fmt::format("token {} has id {}", printable(token), token_id),
              fmt::format("the ids of {} tokens lie in [0, {})", parts.tokens.size(),
                          parts.tokens.size()));
  }
  std::string& slot = parts.tokens[index];
  if (!slot.empty() && slot != token) {
    throw bad(fmt::format("tokens {} and {} both have id {}", printable(slot), printable(token),
                          token_id),
              "an id belongs to one token");
  }
  slot = token;
  parts.token_types[index] = type;
}

std::string JsonSource::pre_tokenizer() const {
  const Json& described = field(root_, "pre_tokenizer");
  std::vector<Json> steps;
  if (described.is_object() && field(described, "type") == "Sequence") {
    const Json& list = field(described, "pretokenizers");
    if (!list.is_array()) throw bad("\"pretokenizers\" is missing", "it must be an array");
    steps.assign(list.begin(), list.end());
  } else if (!described.is_null()) {
    steps.push_back(described);
  }
  std::string types;
  for (const Json& step : steps) types += (types.empty() ? "" : ", ") + text(step, "type");
  const Json last = steps.empty() ? Json() : steps.back();
  const bool plain = !flag(last, "add_prefix_space", true);
  const bool splits = flag(last, "use_regex", true);
  if (plain && splits && types == "ByteLevel") return "gpt-2";
  if (plain && splits && types == "Digits, ByteLevel" &&
      flag(steps[0], "individual_digits", false)) {
    return "smollm";
  }
  if (plain && !splits && types == "Split, ByteLevel" &&
      field(field(steps[0], "pattern"), "Regex") == kLlama3Regex &&
      field(steps[0], "behavior") == "Isolated" && !flag(steps[0], "invert", false)) {
    return "llama-bpe";
  }
  throw unsupported(
      fmt::format("the pre-tokenizer is {} with settings that are not known", printable(types)),
      "known are ByteLevel (gpt-2), Digits with ByteLevel (smollm) and Split by Llama 3's "
      "expression with ByteLevel (llama-bpe), all without add_prefix_space");
}

// Only whether bos is put before a text matters here: Llama 3 says so by a template.
void JsonSource::read_post_processor(const Json& processor, TokenizerParts& parts) const {
  if (processor.is_null()) return;
  const std::string type = text(processor, "type");
  if (type == "ByteLevel") return;  // trims offsets; ids stay
  if (type == "Sequence") {
    const Json& list = field(processor, "processors");
    if (!list.is_array()) throw bad("\"processors\" is missing", "it must be an array");
    for (const Json& step : list) read_post_processor(step, parts);
    return;
  }
  const Json& single = field(processor, "single");
  const bool bos_first = type == "TemplateProcessing" && single.is_array() && single.size() == 2 &&
                         single[0].contains("SpecialToken") && single[1].contains("Sequence");
  if (!bos_first) {
    throw unsupported(fmt::format("the post-processor is {}", printable(type)),
                      "known are ByteLevel and TemplateProcessing with one token before the text");
  }
  const std::string bos = text(field(single[0], "SpecialToken"), "id");
  const auto found = std::find(parts.tokens.begin(), parts.tokens.end(), bos);
  if (found == parts.tokens.end()) {
    throw bad(fmt::format("the post-processor adds {}", printable(bos)), "it must be a token");
  }
  parts.bos = static_cast<std::int32_t>(found - parts.tokens.begin());
  parts.add_bos = true;
}

}  // namespace

TokenizerParts tokenizer_parts_from_json(std::string_view text, std::string source) {
  return JsonSource(text, std::move(source)).read();
}

TokenizerParts tokenizer_parts_from_json_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  return tokenizer_parts_from_json(text, path.string());
}

}  // namespace octavo::llm
