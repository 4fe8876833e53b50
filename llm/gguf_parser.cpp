// SPDX-License-Identifier: Apache-2.0
// Parsing of GGUF files: header, metadata, tensor infos, data offsets. Every count is bounded by
// the bytes that are left before anything is done with it. See gguf_parser.hpp.
#include "llm/gguf_parser.hpp"

#include <fmt/format.h>

#include <string>
#include <utility>

#include "llm/file_error.hpp"

namespace octavo::llm {
namespace {

// The field sizes and limits of the GGUF specification (ggml, docs/gguf.md), and bounds of ours
// that no real model comes near.
constexpr std::uint32_t kMagic = 0x46554747;  // "GGUF", little-endian
constexpr std::uint32_t kOldestVersion = 2;
constexpr std::uint32_t kNewestVersion = 3;
constexpr std::uint64_t kMinValueBytes = 8 + 4 + 1;  // key length, type, a one-byte value
constexpr std::uint64_t kMinTensorInfoBytes =
    8 + 4 + 8 + 4 + 8;  // name length, rank, ne, type, offset
constexpr std::uint64_t kMaxMetadataValues = 1U << 16;
constexpr std::uint64_t kMaxTensors = 1U << 20;
constexpr std::uint64_t kMaxKeyBytes = 65535;
constexpr std::uint64_t kMaxTensorNameBytes = 256;
constexpr std::uint32_t kMaxTensorRank = 4;
constexpr std::uint64_t kMaxDimension = std::uint64_t{1} << 40;
constexpr int kMaxArrayDepth = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::uint64_t kMaxAlignment = 1U << 20;
constexpr std::string_view kFetchAgain = "The file is damaged; fetch it again";
constexpr std::string_view kConvertAgain =
    "The file is damaged or was written by a faulty tool; fetch or convert it again";

// Bytes of one value of a fixed-size type; 0 for strings and arrays.
std::uint64_t fixed_bytes(GgufType type) noexcept {
  switch (type) {
    case GgufType::kUint8:
    case GgufType::kInt8:
    case GgufType::kBool: return sizeof(std::uint8_t);
    case GgufType::kUint16:
    case GgufType::kInt16: return sizeof(std::uint16_t);
    case GgufType::kUint32:
    case GgufType::kInt32:
    case GgufType::kFloat32: return sizeof(std::uint32_t);
    case GgufType::kUint64:
    case GgufType::kInt64:
    case GgufType::kFloat64: return sizeof(std::uint64_t);
    case GgufType::kString:
    case GgufType::kArray: return 0;
  }
  return 0;
}

}  // namespace

std::string_view gguf_type_name(GgufType type) noexcept {
  switch (type) {
    case GgufType::kUint8: return "uint8";
    case GgufType::kInt8: return "int8";
    case GgufType::kUint16: return "uint16";
    case GgufType::kInt16: return "int16";
    case GgufType::kUint32: return "uint32";
    case GgufType::kInt32: return "int32";
    case GgufType::kFloat32: return "float32";
    case GgufType::kBool: return "bool";
    case GgufType::kString: return "string";
    case GgufType::kArray: return "array";
    case GgufType::kUint64: return "uint64";
    case GgufType::kInt64: return "int64";
    case GgufType::kFloat64: return "float64";
  }
  return "unknown";
}

void GgufFile::Parser::run() {
  read_header();
  read_metadata();
  read_tensor_infos();
  place_tensors();
}

void GgufFile::Parser::read_header() {
  const auto magic = cursor_.read<std::uint32_t>("the magic number");
  if (magic != kMagic) {
    throw bad_file(file_.name_, fmt::format("the first four bytes are 0x{:08x}", magic),
                   "a GGUF file begins with the letters GGUF",
                   "Check that the path names a GGUF model");
  }
  const auto version = cursor_.read<std::uint32_t>("the version");
  if (version < kOldestVersion || version > kNewestVersion) {
    const bool swapped = (version & 0xFFFFU) == 0 && version != 0;
    throw bad_file(
        file_.name_,
        fmt::format("GGUF version {}{}", version, swapped ? " (a big-endian file, it seems)" : ""),
        "versions 2 and 3, little-endian, are read", "Convert the model with a current tool");
  }
  num_tensors_ = cursor_.read<std::uint64_t>("the tensor count");
  num_values_ = cursor_.read<std::uint64_t>("the metadata count");
  if (num_values_ > kMaxMetadataValues || num_values_ > cursor_.remaining() / kMinValueBytes) {
    throw bad_file(file_.name_,
                   fmt::format("{} metadata values are announced and {} bytes are left",
                               num_values_, cursor_.remaining()),
                   fmt::format("a value takes at least {} bytes and there may be at most {}",
                               kMinValueBytes, kMaxMetadataValues),
                   kFetchAgain);
  }
  if (num_tensors_ > kMaxTensors || num_tensors_ > cursor_.remaining() / kMinTensorInfoBytes) {
    throw bad_file(file_.name_,
                   fmt::format("{} tensors are announced and {} bytes are left", num_tensors_,
                               cursor_.remaining()),
                   fmt::format("a tensor info takes at least {} bytes and there may be at most {}",
                               kMinTensorInfoBytes, kMaxTensors),
                   kFetchAgain);
  }
}

GgufType GgufFile::Parser::read_type(std::string_view key) {
  const auto number = cursor_.read<std::uint32_t>("a metadata type");
  if (number > static_cast<std::uint32_t>(GgufType::kFloat64)) {
    throw bad_file(file_.name_,
                   fmt::format("metadata key {} has type number {}", printable(key), number),
                   "GGUF types are 0 to 12", kFetchAgain);
  }
  return static_cast<GgufType>(number);
}

void GgufFile::Parser::check_bool(std::uint8_t stored, std::string_view key) const {
  if (stored <= 1) return;
  throw bad_file(file_.name_,
                 fmt::format("metadata key {} holds a bool of value {}", printable(key), stored),
                 "a bool is 0 or 1", kFetchAgain);
}

void GgufFile::Parser::skip_array_elements(GgufType type, std::uint64_t count, int depth,
                                           std::string_view key) {
  const std::uint64_t element_bytes = fixed_bytes(type);
  if (element_bytes != 0) {
    std::uint64_t total = 0;
    if (__builtin_mul_overflow(count, element_bytes, &total) || total > cursor_.remaining()) {
      throw bad_file(
          file_.name_,
          fmt::format("metadata key {} announces {} elements of {} and {} bytes are left",
                      printable(key), count, gguf_type_name(type), cursor_.remaining()),
          "an array must lie inside the file", kFetchAgain);
    }
    const std::span<const std::byte> elements = cursor_.take(total, "an array");
    if (type == GgufType::kBool) {
      for (const std::byte stored : elements) check_bool(static_cast<std::uint8_t>(stored), key);
    }
    return;
  }
  // Every string and every array takes bytes, so these loops end with the file at the latest.
  for (std::uint64_t i = 0; i < count; ++i) {
    if (type == GgufType::kString) {
      (void)cursor_.read_string("a string of an array");
      continue;
    }
    if (depth >= kMaxArrayDepth) {
      throw bad_file(file_.name_,
                     fmt::format("metadata key {} nests arrays more than {} deep", printable(key),
                                 kMaxArrayDepth),
                     "the depth of arrays is bounded", kConvertAgain);
    }
    const GgufType inner_type = read_type(key);
    const auto inner_count = cursor_.read<std::uint64_t>("an array's length");
    skip_array_elements(inner_type, inner_count, depth + 1, key);
  }
}

GgufFile::Value GgufFile::Parser::read_value(std::string_view key) {
  Value value;
  value.type = read_type(key);
  std::uint64_t begin = cursor_.position();
  if (value.type == GgufType::kArray) {
    value.element_type = read_type(key);
    value.count = cursor_.read<std::uint64_t>("an array's length");
    begin = cursor_.position();
    skip_array_elements(value.element_type, value.count, 1, key);
  } else if (value.type == GgufType::kString) {
    (void)cursor_.read_string("a string");
  } else {
    const std::span<const std::byte> stored = cursor_.take(fixed_bytes(value.type), "a value");
    if (value.type == GgufType::kBool) check_bool(static_cast<std::uint8_t>(stored[0]), key);
  }
  value.bytes = bytes_.subspan(begin, cursor_.position() - begin);
  return value;
}

void GgufFile::Parser::read_metadata() {
  for (std::uint64_t i = 0; i < num_values_; ++i) {
    const std::string_view key = cursor_.read_string("a metadata key");
    if (key.empty() || key.size() > kMaxKeyBytes) {
      throw bad_file(file_.name_, fmt::format("metadata key number {} has {} bytes", i, key.size()),
                     fmt::format("a key has 1 to {} bytes", kMaxKeyBytes), kFetchAgain);
    }
    const Value value = read_value(key);
    if (!file_.values_.emplace(key, value).second) {
      throw bad_file(file_.name_, fmt::format("metadata key {} occurs twice", printable(key)),
                     "keys are unique", kConvertAgain);
    }
  }
}

void GgufFile::Parser::read_tensor_infos() {
  for (std::uint64_t i = 0; i < num_tensors_; ++i) {
    const std::string_view name = cursor_.read_string("a tensor name");
    if (name.empty() || name.size() > kMaxTensorNameBytes) {
      throw bad_file(file_.name_, fmt::format("the name of tensor {} has {} bytes", i, name.size()),
                     fmt::format("a tensor name has 1 to {} bytes", kMaxTensorNameBytes),
                     kFetchAgain);
    }
    const auto rank = cursor_.read<std::uint32_t>("a tensor rank");
    if (rank == 0 || rank > kMaxTensorRank) {
      throw bad_file(file_.name_, fmt::format("tensor {} has rank {}", printable(name), rank),
                     fmt::format("ranks are 1 to {}", kMaxTensorRank), kFetchAgain);
    }
    GgufTensor tensor;
    tensor.name = name;
    tensor.shape.resize(rank);
    for (std::uint32_t d = 0; d < rank; ++d) {
      const auto extent = cursor_.read<std::uint64_t>("a tensor dimension");
      if (extent == 0 || extent > kMaxDimension) {
        throw bad_file(file_.name_,
                       fmt::format("dimension {} of tensor {} is {}", d, printable(name), extent),
                       "dimensions are 1 to 2^40", kFetchAgain);
      }
      // The file puts the fastest dimension first.
      tensor.shape[rank - 1 - d] = static_cast<std::int64_t>(extent);
    }
    tensor.type = static_cast<GgmlType>(cursor_.read<std::uint32_t>("a tensor type"));
    tensor_offsets_.push_back(cursor_.read<std::uint64_t>("a tensor offset"));
    if (!file_.tensor_index_.emplace(tensor.name, file_.tensors_.size()).second) {
      throw bad_file(file_.name_, fmt::format("tensor {} occurs twice", printable(name)),
                     "tensor names are unique", kConvertAgain);
    }
    file_.tensors_.push_back(std::move(tensor));
  }
}

void GgufFile::Parser::place_tensors() {
  const std::uint64_t alignment = file_.uint("general.alignment").value_or(kDefaultAlignment);
  if (alignment == 0 || alignment > kMaxAlignment || (alignment & (alignment - 1)) != 0) {
    throw bad_file(file_.name_, fmt::format("general.alignment is {}", alignment),
                   "it must be a power of two from 1 to 2^20", kConvertAgain);
  }
  const std::uint64_t data_begin = (cursor_.position() + alignment - 1) / alignment * alignment;
  const std::uint64_t data_bytes = data_begin <= bytes_.size() ? bytes_.size() - data_begin : 0;
  for (std::size_t i = 0; i < file_.tensors_.size(); ++i) {
    GgufTensor& tensor = file_.tensors_[i];
    const std::uint64_t offset = tensor_offsets_[i];
    if (offset % alignment != 0 || offset > data_bytes) {
      throw bad_file(file_.name_,
                     fmt::format("tensor {} begins at offset {} of {} bytes of data",
                                 printable(tensor.name), offset, data_bytes),
                     fmt::format("it must begin inside the data, at a multiple of {}", alignment),
                     kFetchAgain);
    }
    const std::optional<GgmlBlockSize> block = ggml_block_size(tensor.type);
    if (!block) continue;
    if (tensor.shape.back() % block->elems != 0) {
      throw bad_file(file_.name_,
                     fmt::format("tensor {} has rows of {} elements of {}", printable(tensor.name),
                                 tensor.shape.back(), ggml_type_name(tensor.type)),
                     fmt::format("a row is a whole number of blocks of {}", block->elems),
                     kConvertAgain);
    }
    std::uint64_t size = static_cast<std::uint64_t>(tensor.shape.back() / block->elems);
    bool overflow = __builtin_mul_overflow(size, static_cast<std::uint64_t>(block->bytes), &size);
    for (std::size_t d = 0; d + 1 < tensor.shape.size(); ++d) {
      overflow = overflow ||
                 __builtin_mul_overflow(size, static_cast<std::uint64_t>(tensor.shape[d]), &size);
    }
    if (overflow || size > data_bytes - offset) {
      throw bad_file(file_.name_,
                     fmt::format("tensor {} of shape [{}] and type {} does not fit in the {} bytes "
                                 "from its offset {}",
                                 printable(tensor.name), fmt::join(tensor.shape, ", "),
                                 ggml_type_name(tensor.type), data_bytes - offset, offset),
                     "a tensor must lie inside the file",
                     "The file is truncated or damaged; fetch it again");
    }
    tensor.bytes = bytes_.subspan(data_begin + offset, size);
  }
}

}  // namespace octavo::llm
