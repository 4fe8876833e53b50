// SPDX-License-Identifier: Apache-2.0
#include "base/whole_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>

namespace octavo {
namespace {

class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  ~FileDescriptor() { (void)close_now(); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool open() const { return descriptor_ >= 0; }
  // Some file systems report a failed write only here.
  bool close_now() {
    const int status = open() ? ::close(descriptor_) : 0;
    descriptor_ = -1;
    return status == 0;
  }

 private:
  int descriptor_;
};

bool write_all(int descriptor, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// False also if the file became shorter meanwhile.
bool read_all(int descriptor, std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::read(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
  return true;
}

// Unlike any other writer's, in this process, on this machine and on others that share the folder.
std::optional<std::filesystem::path> temporary_name(const std::filesystem::path& path) {
  std::uint64_t random = 0;
  if (getrandom(&random, sizeof(random), 0) != static_cast<ssize_t>(sizeof(random))) {
    return std::nullopt;
  }
  return path.string() + fmt::format(".tmp.{}.{:016x}", ::getpid(), random);
}

bool write_and_close(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  constexpr int kPermissions = 0644;
  FileDescriptor file(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kPermissions));
  return file.open() && write_all(file.get(), bytes) && ::fsync(file.get()) == 0 &&
         file.close_now();
}

}  // namespace

WriteOutcome write_whole_file(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  std::error_code status;
  std::filesystem::create_directories(path.parent_path(), status);
  const std::optional<std::filesystem::path> temporary = temporary_name(path);
  if (!temporary) return WriteOutcome::kNotWritten;
  // ORDER: fsync comes before rename, so that after a crash of the machine the name leads to the
  // whole content or to what was there before. Checksums catch file systems that ignore it.
  if (write_and_close(*temporary, bytes) && std::rename(temporary->c_str(), path.c_str()) == 0) {
    return WriteOutcome::kWritten;
  }
  (void)::unlink(temporary->c_str());
  return WriteOutcome::kNotWritten;
}

std::optional<std::vector<std::byte>> read_whole_file(const std::filesystem::path& path,
                                                      std::uint64_t max_bytes) {
  // Not to wait for a writer if someone put a pipe there.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat state {};
  if (!file.open() || ::fstat(file.get(), &state) != 0 || !S_ISREG(state.st_mode) ||
      state.st_size < 0 || static_cast<std::uint64_t>(state.st_size) > max_bytes) {
    return std::nullopt;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(state.st_size));
  if (!read_all(file.get(), bytes)) return std::nullopt;
  return bytes;
}

}  // namespace octavo
