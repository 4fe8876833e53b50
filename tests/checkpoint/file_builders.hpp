// SPDX-License-Identifier: Apache-2.0
// Small GGUF and safetensors files built in memory, temporary folders, and the check for errors
// that the tests of the checkpoint readers share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "llm/gguf_reader.hpp"
#include "octavo/error.hpp"

namespace octavo::test {

using Bytes = std::vector<std::byte>;

template <typename T>
void append(Bytes& bytes, T value) {
  static_assert(std::is_arithmetic_v<T>);
  const std::size_t at = bytes.size();
  bytes.resize(at + sizeof(T));
  std::memcpy(bytes.data() + at, &value, sizeof(T));
}

template <typename T>
[[nodiscard]] Bytes bytes_of(const std::vector<T>& values) {
  Bytes bytes;
  for (const T value : values) append(bytes, value);
  return bytes;
}

void append_string(Bytes& bytes, std::string_view text);  // u64 length, then the text

class GgufBuilder {
 public:
  std::uint32_t version = 3;
  std::uint64_t alignment = 32;  // of the data written; the key is the caller's business

  GgufBuilder& raw(std::string_view key, llm::GgufType type, const Bytes& payload);
  GgufBuilder& string(std::string_view key, std::string_view value);
  GgufBuilder& u32(std::string_view key, std::uint32_t value);
  GgufBuilder& f32(std::string_view key, float value);
  GgufBuilder& boolean(std::string_view key, bool value);
  GgufBuilder& string_array(std::string_view key, std::initializer_list<std::string_view> values);

  // The shape is row-major. The data are written at the next aligned offset, unless `offset` is
  // given.
  GgufBuilder& tensor(std::string_view name, std::uint32_t type, std::vector<std::uint64_t> shape,
                      const Bytes& data);
  GgufBuilder& tensor(std::string_view name, llm::GgmlType type, std::vector<std::uint64_t> shape,
                      const Bytes& data) {
    return tensor(name, static_cast<std::uint32_t>(type), std::move(shape), data);
  }
  GgufBuilder& tensor_at(std::uint64_t offset, std::string_view name, std::uint32_t type,
                         const std::vector<std::uint64_t>& shape);

  // No padding after the last tensor, so that each shorter prefix is a truncated file.
  [[nodiscard]] Bytes bytes() const;

 private:
  std::uint64_t num_values_ = 0;
  std::uint64_t num_tensors_ = 0;
  Bytes metadata_;
  Bytes infos_;
  Bytes data_;
};

// Metadata of a Llama: vocabulary 8, hidden 32, feed-forward 64, one layer, 4 query heads and 2
// key/value heads of 8.
[[nodiscard]] GgufBuilder llama_metadata();

class SafetensorsBuilder {
 public:
  SafetensorsBuilder& tensor(std::string_view name, std::string_view dtype,
                             const std::vector<std::int64_t>& shape, const Bytes& data);
  [[nodiscard]] Bytes bytes() const;

 private:
  std::string entries_;
  Bytes data_;
};

// A safetensors file with a header written by hand.
[[nodiscard]] Bytes safetensors_of(std::string_view header, const Bytes& data);

class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
  std::filesystem::path write(std::string_view name, std::span<const std::byte> bytes) const;
  std::filesystem::path write(std::string_view name, std::string_view text) const;

 private:
  std::filesystem::path path_;
};

// Fails unless the call throws Error with the code and a message that holds every part.
void expect_error(ErrorCode code, std::initializer_list<std::string_view> parts,
                  const std::function<void()>& call);

// True if the call returned, false if it threw Error; any other exception fails the test.
bool survives(const std::function<void()>& call);

}  // namespace octavo::test
