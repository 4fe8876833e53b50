// SPDX-License-Identifier: Apache-2.0
// Parsing of safetensors files. See safetensors_reader.hpp.
#include "llm/safetensors_reader.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "llm/file_error.hpp"
#include "llm/json_file.hpp"

namespace octavo::llm {
namespace {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little,
              "checkpoint files are little-endian and are read in place");

// The safetensors specification bounds the header; the other bounds are ours.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxTensors = std::size_t{1} << 20;
constexpr std::size_t kMaxNameBytes = 1024;
constexpr std::size_t kMaxRank = 8;
constexpr std::uint64_t kMaxDimension = std::uint64_t{1} << 40;
constexpr std::string_view kFetchAgain = "The file is truncated or damaged; fetch it again";

struct DtypeRow {
  std::string_view name;
  std::uint64_t bytes;
  std::optional<DType> dtype;
};
constexpr DtypeRow kDtypes[] = {
    {"F32", 4, DType::kF32},      {"F16", 2, DType::kF16},      {"BF16", 2, DType::kBF16},
    {"F8_E4M3", 1, DType::kE4M3}, {"F8_E5M2", 1, DType::kE5M2}, {"F8_E8M0", 1, DType::kUE8M0},
    {"I32", 4, DType::kI32},      {"F64", 8, std::nullopt},     {"I64", 8, std::nullopt},
    {"U64", 8, std::nullopt},     {"U32", 4, std::nullopt},     {"I16", 2, std::nullopt},
    {"U16", 2, std::nullopt},     {"I8", 1, std::nullopt},      {"U8", 1, std::nullopt},
    {"BOOL", 1, std::nullopt},
};

// One entry of the header before its data has been placed.
struct Entry {
  SafetensorsTensor tensor;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class HeaderReader {
 public:
  HeaderReader(std::string_view file, std::uint64_t data_bytes)
      : file_(file), data_bytes_(data_bytes) {}

  [[nodiscard]] Entry read(const std::string& name, const json& description) const {
    if (name.empty() || name.size() > kMaxNameBytes) {
      throw bad_file(file_, fmt::format("a tensor name has {} bytes", name.size()),
                     fmt::format("names have 1 to {} bytes", kMaxNameBytes), kFetchAgain);
    }
    const std::string path = printable(name);
    const JsonFields fields(description, file_, path);
    Entry entry;
    entry.tensor.name = name;
    const std::uint64_t element_bytes = read_dtype(fields, entry.tensor);
    const std::uint64_t size = read_shape(fields, element_bytes, entry.tensor);
    read_offsets(fields, entry);
    if (entry.end - entry.begin != size) {
      throw bad_file(file_,
                     fmt::format("{} of dtype {} and shape [{}] has {} bytes of data", path,
                                 entry.tensor.dtype_name, fmt::join(entry.tensor.shape, ", "),
                                 entry.end - entry.begin),
                     fmt::format("it needs {} bytes", size), kFetchAgain);
    }
    return entry;
  }

 private:
  static std::uint64_t unsigned_number(const JsonFields& fields, const char* key,
                                       const json& value) {
    if (!value.is_number_unsigned())
      fields.throw_type_error(key, value, "integers that are not negative");
    return value.get<std::uint64_t>();
  }

  static const json& required_array(const JsonFields& fields, const char* key) {
    const json* value = fields.find(key);
    if (value == nullptr) fields.throw_missing(key);
    if (!value->is_array()) fields.throw_type_error(key, *value, "an array");
    return *value;
  }

  [[nodiscard]] std::uint64_t read_dtype(const JsonFields& fields,
                                         SafetensorsTensor& tensor) const {
    const std::optional<std::string> name = fields.string("dtype");
    if (!name) fields.throw_missing("dtype");
    tensor.dtype_name = *name;
    for (const DtypeRow& row : kDtypes) {
      if (row.name != *name) continue;
      tensor.dtype = row.dtype;
      return row.bytes;
    }
    const bool fnuz = name->find("FNUZ") != std::string::npos;
    throw bad_file(
        file_, fmt::format("tensor {} has dtype {}", printable(tensor.name), printable(*name)),
        fnuz ? "FP8 must be the OCP formats, F8_E4M3 or F8_E5M2; FNUZ bytes mean half as much, and "
               "0x80 is NaN there"
             : "F32, F16, BF16, F8_E4M3, F8_E5M2, F8_E8M0 and the plain integer types are known",
        fnuz ? "Convert the checkpoint to the OCP format (double the values, halve the scales)"
             : "Convert the checkpoint to one of these types");
  }

  [[nodiscard]] std::uint64_t read_shape(const JsonFields& fields, std::uint64_t element_bytes,
                                         SafetensorsTensor& tensor) const {
    const json& shape = required_array(fields, "shape");
    if (shape.size() > kMaxRank) {
      throw bad_file(file_,
                     fmt::format("tensor {} has rank {}", printable(tensor.name), shape.size()),
                     fmt::format("ranks are 0 to {}", kMaxRank), kFetchAgain);
    }
    std::uint64_t size = element_bytes;
    for (const json& extent : shape) {
      const std::uint64_t value = unsigned_number(fields, "shape", extent);
      if (value > kMaxDimension || __builtin_mul_overflow(size, value, &size)) {
        throw bad_file(
            file_,
            fmt::format("tensor {} has shape {}", printable(tensor.name), printable(shape.dump())),
            "a dimension is at most 2^40, and the size in bytes below 2^64", kFetchAgain);
      }
      tensor.shape.push_back(static_cast<std::int64_t>(value));
    }
    return size;
  }

  void read_offsets(const JsonFields& fields, Entry& entry) const {
    const json& offsets = required_array(fields, "data_offsets");
    if (offsets.size() != 2) fields.throw_type_error("data_offsets", offsets, "an array of two");
    entry.begin = unsigned_number(fields, "data_offsets", offsets[0]);
    entry.end = unsigned_number(fields, "data_offsets", offsets[1]);
    if (entry.begin > entry.end || entry.end > data_bytes_) {
      throw bad_file(file_,
                     fmt::format("tensor {} has data_offsets [{}, {}] of {} bytes of data",
                                 printable(entry.tensor.name), entry.begin, entry.end, data_bytes_),
                     "offsets must be in order and inside the data", kFetchAgain);
    }
  }

  std::string_view file_;
  std::uint64_t data_bytes_;
};

// The specification wants the data covered exactly: bytes that no tensor or two tensors own could
// smuggle something, or mean a truncated header.
void check_cover(const std::vector<Entry>& entries, std::uint64_t data_bytes,
                 std::string_view file) {
  std::uint64_t position = 0;
  for (const Entry& entry : entries) {
    if (entry.begin != position) {
      throw bad_file(
          file,
          fmt::format("the data of tensor {} begin at {}, {} the end of those before at {}",
                      printable(entry.tensor.name), entry.begin,
                      entry.begin < position ? "before" : "after", position),
          "tensors must follow each other without overlap or gap", kFetchAgain);
    }
    position = entry.end;
  }
  if (position != data_bytes) {
    throw bad_file(
        file, fmt::format("the tensors end at byte {} of {} bytes of data", position, data_bytes),
        "the data end with the last tensor", kFetchAgain);
  }
}

}  // namespace

SafetensorsFile SafetensorsFile::open(const std::filesystem::path& path) {
  auto mapping = std::make_shared<const MappedFile>(path);
  SafetensorsFile file = parse(mapping->bytes(), path.string());
  file.mapping_ = std::move(mapping);
  return file;
}

SafetensorsFile SafetensorsFile::parse(std::span<const std::byte> bytes, std::string name) {
  SafetensorsFile file;
  file.name_ = std::move(name);
  std::uint64_t header_bytes = 0;
  if (bytes.size() < sizeof(header_bytes)) {
    throw bad_file(file.name_, fmt::format("the file has {} bytes", bytes.size()),
                   "a safetensors file begins with the 8-byte length of its header", kFetchAgain);
  }
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const std::span<const std::byte> rest = bytes.subspan(sizeof(header_bytes));
  if (header_bytes > rest.size() || header_bytes > kMaxHeaderBytes) {
    throw bad_file(
        file.name_,
        fmt::format("the header is announced with {} bytes and {} are left", header_bytes,
                    rest.size()),
        fmt::format("it must lie inside the file and have at most {} bytes", kMaxHeaderBytes),
        "Check that this is a safetensors file; if so it is damaged, fetch it again");
  }
  const std::span<const std::byte> data = rest.subspan(header_bytes);
  const json header = parse_json(
      {reinterpret_cast<const char*>(rest.data()), static_cast<std::size_t>(header_bytes)},
      file.name_);
  if (!header.is_object() || header.size() > kMaxTensors) {
    throw bad_file(file.name_,
                   fmt::format("the header is of JSON type {} with {} members", header.type_name(),
                               header.size()),
                   fmt::format("it must be an object with at most {}", kMaxTensors), kFetchAgain);
  }
  const HeaderReader reader(file.name_, data.size());
  std::vector<Entry> entries;
  for (const auto& [tensor_name, description] : header.items()) {
    if (tensor_name == "__metadata__") continue;
    entries.push_back(reader.read(tensor_name, description));
  }
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  check_cover(entries, data.size(), file.name_);
  for (Entry& entry : entries) {
    entry.tensor.bytes = data.subspan(entry.begin, entry.end - entry.begin);
    file.tensor_index_.emplace(entry.tensor.name, file.tensors_.size());
    file.tensors_.push_back(std::move(entry.tensor));
  }
  return file;
}

const SafetensorsTensor* SafetensorsFile::find(std::string_view tensor_name) const noexcept {
  const auto found = tensor_index_.find(tensor_name);
  return found == tensor_index_.end() ? nullptr : &tensors_[found->second];
}

}  // namespace octavo::llm
