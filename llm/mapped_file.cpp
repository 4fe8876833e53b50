// SPDX-License-Identifier: Apache-2.0
// Read-only mapping of a file. See mapped_file.hpp.
#include "llm/mapped_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <utility>

#include "octavo/error.hpp"

namespace octavo::llm {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  [[nodiscard]] int get() const noexcept { return fd_; }

 private:
  int fd_;
};

Error io_error(const std::filesystem::path& path, const char* action) {
  const std::string reason = std::generic_category().message(errno);
  return {ErrorCode::kIo,
          fmt::format("{}: the file could not be {} ({}); a model file must exist and be readable. "
                      "Check the path and its permissions.",
                      path.string(), action, reason)};
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  // O_NONBLOCK: opening a FIFO must fail the regular-file test below, not wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) throw io_error(path, "opened");
  struct stat status {};
  if (fstat(file.get(), &status) != 0) throw io_error(path, "examined");
  if (!S_ISREG(status.st_mode)) {
    throw Error(
        ErrorCode::kIo,
        fmt::format("{}: this is not a regular file; a model file is mapped into memory, so "
                    "it must be one. Give the path of the file itself.",
                    path.string()));
  }
  if (status.st_size == 0) return;
  const auto size = static_cast<std::size_t>(status.st_size);
  void* mapped = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (mapped == MAP_FAILED) throw io_error(path, "mapped into memory");
  data_ = mapped;
  size_bytes_ = size;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

}  // namespace octavo::llm
