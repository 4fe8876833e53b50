// SPDX-License-Identifier: Apache-2.0
#include "tensor_file.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "octavo/error.hpp"

namespace octavo::cli {
namespace {

// The format's names of element types.
const char* safetensors_name(DType dtype) {
  switch (dtype) {
    case DType::kE4M3: return "F8_E4M3";
    case DType::kE5M2: return "F8_E5M2";
    case DType::kUE8M0: return "F8_E8M0";
    case DType::kBF16: return "BF16";
    case DType::kF16: return "F16";
    case DType::kF32: return "F32";
    case DType::kI32: return "I32";
  }
  return "?";
}

}  // namespace

ReplacedFile::ReplacedFile(std::string path)
    : path_(std::move(path)), temporary_(fmt::format("{}.partial-{}", path_, getpid())) {
  file_ = std::fopen(temporary_.c_str(), "wb");
  if (file_ == nullptr) fail("cannot be created");
}

ReplacedFile::~ReplacedFile() {
  if (file_ == nullptr) return;
  std::fclose(file_);
  std::remove(temporary_.c_str());
}

void ReplacedFile::write(const void* data, std::size_t num_bytes) {
  if (num_bytes != 0 && std::fwrite(data, 1, num_bytes, file_) != num_bytes) {
    fail("cannot be written");
  }
}

void ReplacedFile::commit() {
  const bool closed = std::fclose(std::exchange(file_, nullptr)) == 0;
  if (!closed || std::rename(temporary_.c_str(), path_.c_str()) != 0) {
    const int cause = errno;
    std::remove(temporary_.c_str());
    errno = cause;
    fail("cannot be written");
  }
}

void ReplacedFile::fail(const char* what) const {
  throw Error(ErrorCode::kIo, fmt::format("{}: {} ({}). Give a path that can be written.", path_,
                                          what, std::strerror(errno)));
}

void save_tensors(const TensorMap& tensors, const std::string& path) {
  nlohmann::ordered_json header;
  std::size_t offset = 0;
  for (const auto& [name, tensor] : tensors) {
    const std::size_t end = offset + tensor->bytes().size();
    header[name] = {{"dtype", safetensors_name(tensor->dtype())},
                    {"shape", tensor->shape()},
                    {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  constexpr std::size_t kAlignment = 8;  // the format pads its header with spaces to 8 bytes
  text.resize((text.size() + kAlignment - 1) / kAlignment * kAlignment, ' ');
  const std::uint64_t header_bytes = text.size();
  ReplacedFile file(path);
  file.write(&header_bytes, sizeof header_bytes);
  file.write(text.data(), text.size());
  for (const auto& [name, tensor] : tensors) {
    file.write(tensor->bytes().data(), tensor->bytes().size());
  }
  file.commit();
}

LoadedTensors::LoadedTensors(const std::string& path)
    : path_(path), file_(llm::SafetensorsFile::open(path)) {}

HostTensor LoadedTensors::optional(const std::string& name) const {
  const llm::SafetensorsTensor* stored = file_.find(name);
  if (stored == nullptr) return {};
  if (!stored->dtype || stored->shape.empty() ||
      stored->shape.size() > static_cast<std::size_t>(kMaxRank)) {
    throw Error(ErrorCode::kBadFile,
                fmt::format("{}: tensor \"{}\" has type {} and {} dimensions; the command reads "
                            "types that Octavo computes with, in 1 to {} dimensions. Convert it.",
                            path_, name, stored->dtype_name, stored->shape.size(), kMaxRank));
  }
  HostTensor tensor(*stored->dtype, stored->shape);
  // The reader has checked that the bytes are those of the shape.
  std::copy(stored->bytes.begin(), stored->bytes.end(), tensor.mutable_bytes().begin());
  return tensor;
}

HostTensor LoadedTensors::required(const std::string& name) const {
  HostTensor tensor = optional(name);
  if (tensor.absent()) {
    throw Error(ErrorCode::kBadFile,
                fmt::format("{}: it has no tensor \"{}\". Write the file with --save of the same "
                            "verb.",
                            path_, name));
  }
  return tensor;
}

}  // namespace octavo::cli
