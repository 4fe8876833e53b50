// SPDX-License-Identifier: Apache-2.0
// See file_builders.hpp.
#include "checkpoint/file_builders.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>

namespace octavo::test {
namespace {

constexpr std::uint32_t kGgufMagic = 0x46554747;

Bytes info(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& shape,
           std::uint64_t offset) {
  Bytes bytes;
  append_string(bytes, name);
  append(bytes, static_cast<std::uint32_t>(shape.size()));
  for (auto extent = shape.rbegin(); extent != shape.rend(); ++extent) append(bytes, *extent);
  append(bytes, type);
  append(bytes, offset);
  return bytes;
}

void append_bytes(Bytes& to, const Bytes& from) { to.insert(to.end(), from.begin(), from.end()); }

}  // namespace

void append_string(Bytes& bytes, std::string_view text) {
  append(bytes, static_cast<std::uint64_t>(text.size()));
  for (const char c : text) bytes.push_back(static_cast<std::byte>(c));
}

GgufBuilder& GgufBuilder::raw(std::string_view key, llm::GgufType type, const Bytes& payload) {
  append_string(metadata_, key);
  append(metadata_, static_cast<std::uint32_t>(type));
  append_bytes(metadata_, payload);
  ++num_values_;
  return *this;
}

GgufBuilder& GgufBuilder::string(std::string_view key, std::string_view value) {
  Bytes payload;
  append_string(payload, value);
  return raw(key, llm::GgufType::kString, payload);
}

GgufBuilder& GgufBuilder::u32(std::string_view key, std::uint32_t value) {
  return raw(key, llm::GgufType::kUint32, bytes_of<std::uint32_t>({value}));
}

GgufBuilder& GgufBuilder::f32(std::string_view key, float value) {
  return raw(key, llm::GgufType::kFloat32, bytes_of<float>({value}));
}

GgufBuilder& GgufBuilder::boolean(std::string_view key, bool value) {
  return raw(key, llm::GgufType::kBool, {std::byte{value}});
}

GgufBuilder& GgufBuilder::string_array(std::string_view key,
                                       std::initializer_list<std::string_view> values) {
  Bytes payload;
  append(payload, static_cast<std::uint32_t>(llm::GgufType::kString));
  append(payload, static_cast<std::uint64_t>(values.size()));
  for (const std::string_view value : values) append_string(payload, value);
  return raw(key, llm::GgufType::kArray, payload);
}

GgufBuilder& GgufBuilder::tensor(std::string_view name, std::uint32_t type,
                                 std::vector<std::uint64_t> shape, const Bytes& data) {
  data_.resize((data_.size() + alignment - 1) / alignment * alignment);
  append_bytes(infos_, info(name, type, shape, data_.size()));
  append_bytes(data_, data);
  ++num_tensors_;
  return *this;
}

GgufBuilder& GgufBuilder::tensor_at(std::uint64_t offset, std::string_view name, std::uint32_t type,
                                    const std::vector<std::uint64_t>& shape) {
  append_bytes(infos_, info(name, type, shape, offset));
  ++num_tensors_;
  return *this;
}

Bytes GgufBuilder::bytes() const {
  Bytes file;
  append(file, kGgufMagic);
  append(file, version);
  append(file, num_tensors_);
  append(file, num_values_);
  append_bytes(file, metadata_);
  append_bytes(file, infos_);
  if (!data_.empty()) file.resize((file.size() + alignment - 1) / alignment * alignment);
  append_bytes(file, data_);
  return file;
}

GgufBuilder llama_metadata() {
  GgufBuilder builder;
  builder.string("general.architecture", "llama")
      .u32("llama.block_count", 1)
      .u32("llama.context_length", 128)
      .u32("llama.embedding_length", 32)
      .u32("llama.feed_forward_length", 64)
      .u32("llama.attention.head_count", 4)
      .u32("llama.attention.head_count_kv", 2)
      .f32("llama.attention.layer_norm_rms_epsilon", 1e-5F)
      .f32("llama.rope.freq_base", 10000.0F)
      .u32("llama.vocab_size", 8)
      .u32("tokenizer.ggml.bos_token_id", 1)
      .u32("tokenizer.ggml.eos_token_id", 2);
  return builder;
}

SafetensorsBuilder& SafetensorsBuilder::tensor(std::string_view name, std::string_view dtype,
                                               const std::vector<std::int64_t>& shape,
                                               const Bytes& data) {
  entries_ += fmt::format(R"({}"{}":{{"dtype":"{}","shape":[{}],"data_offsets":[{},{}]}})",
                          entries_.empty() ? "" : ",", name, dtype, fmt::join(shape, ","),
                          data_.size(), data_.size() + data.size());
  append_bytes(data_, data);
  return *this;
}

Bytes SafetensorsBuilder::bytes() const { return safetensors_of("{" + entries_ + "}", data_); }

Bytes safetensors_of(std::string_view header, const Bytes& data) {
  Bytes file;
  append_string(file, header);
  append_bytes(file, data);
  return file;
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "octavo-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) ADD_FAILURE() << "no temporary folder " << pattern;
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::filesystem::path TemporaryFolder::write(std::string_view name,
                                             std::span<const std::byte> bytes) const {
  const std::filesystem::path path = path_ / name;
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
  file.close();
  if (!file) ADD_FAILURE() << "could not write " << path;
  return path;
}

std::filesystem::path TemporaryFolder::write(std::string_view name, std::string_view text) const {
  return write(name, std::as_bytes(std::span(text)));
}

void expect_error(ErrorCode code, std::initializer_list<std::string_view> parts,
                  const std::function<void()>& call) {
  try {
    call();
    ADD_FAILURE() << "no error was thrown";
  } catch (const Error& error) {
    EXPECT_STREQ(to_string(error.code()), to_string(code)) << error.what();
    for (const std::string_view part : parts) {
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos)
          << "\"" << part << "\" is not in: " << error.what();
    }
  } catch (const std::exception& other) {
    ADD_FAILURE() << "a standard exception escaped: " << other.what();
  }
}

bool survives(const std::function<void()>& call) {
  try {
    call();
    return true;
  } catch (const Error&) {
    return false;
  } catch (const std::exception& other) {
    ADD_FAILURE() << "a standard exception escaped: " << other.what();
    return false;
  }
}

}  // namespace octavo::test
