// SPDX-License-Identifier: Apache-2.0
#include "cuda/jit/cubin_file.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>

#include "base/sha256.hpp"

namespace octavo {
namespace {

static_assert(std::endian::native == std::endian::little, "the fixed part is copied as it lies");

constexpr std::array<char, 8> kMagic = {'O', 'C', 'T', 'C', 'U', 'B', 'I', 'N'};

// The fixed part, without padding: it is written as it lies in memory.
struct FileHead {
  std::array<char, 8> magic;
  CubinKey key;
  std::uint64_t log_bytes;
  std::uint64_t cubin_bytes;
  std::array<std::int32_t, 4> resources;
  std::uint32_t version;
  std::uint32_t reserved;
};
static_assert(sizeof(FileHead) == sizeof(kMagic) + kCubinKeyBytes + 2 * sizeof(std::uint64_t) +
                                      4 * sizeof(std::int32_t) + 2 * sizeof(std::uint32_t));

// Far above any kernel (tens of KB), far below what could trouble a machine.
constexpr std::uint64_t kMaxFileBytes = 64U << 20U;

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

std::vector<std::byte> encode_cubin_file(const CubinKey& key, const CompiledKernel& kernel) {
  const KernelResources& resources = kernel.resources;
  const FileHead head = {kMagic,
                         key,
                         kernel.log.size(),
                         kernel.cubin.size(),
                         {resources.registers, resources.stack_bytes, resources.spill_store_bytes,
                          resources.spill_load_bytes},
                         kCubinFormatVersion,
                         0};
  const std::size_t body_bytes = sizeof(head) + kernel.log.size() + kernel.cubin.size();
  std::vector<std::byte> bytes(body_bytes + kSha256Bytes);
  auto end = bytes.begin();
  const auto append = [&end](std::span<const std::byte> part) {
    end = std::copy(part.begin(), part.end(), end);
  };
  append(std::as_bytes(std::span(&head, 1)));
  append(std::as_bytes(std::span(kernel.log)));
  append(kernel.cubin);
  const Sha256Digest digest = sha256(std::span(bytes).first(body_bytes));
  append(digest);
  return bytes;
}

std::optional<CompiledKernel> decode_cubin_file(std::span<const std::byte> bytes,
                                                const CubinKey& key) {
  FileHead head;
  if (bytes.size() < sizeof(head) + kSha256Bytes) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof(head));
  const std::size_t body_bytes = bytes.size() - sizeof(head) - kSha256Bytes;
  if (head.magic != kMagic || head.version != kCubinFormatVersion || head.key != key ||
      head.log_bytes > body_bytes || head.cubin_bytes != body_bytes - head.log_bytes) {
    return std::nullopt;
  }
  const auto content = bytes.first(bytes.size() - kSha256Bytes);
  const Sha256Digest digest = sha256(content);
  if (!std::ranges::equal(digest, bytes.last(kSha256Bytes))) return std::nullopt;
  const auto log = content.subspan(sizeof(head), head.log_bytes);
  const auto cubin = content.last(head.cubin_bytes);
  CompiledKernel kernel;
  kernel.log.assign(reinterpret_cast<const char*>(log.data()), log.size());
  kernel.cubin.assign(cubin.begin(), cubin.end());
  const auto& [registers, stack, spill_stores, spill_loads] = head.resources;
  kernel.resources = {registers, stack, spill_stores, spill_loads};
  return kernel;
}

std::optional<CompiledKernel> read_cubin_file(const std::filesystem::path& path,
                                              const CubinKey& key) {
  // Not to wait for a writer if someone put a pipe there.
  FileDescriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat state {};
  if (!file.open() || ::fstat(file.get(), &state) != 0 || !S_ISREG(state.st_mode) ||
      state.st_size < 0 || static_cast<std::uint64_t>(state.st_size) > kMaxFileBytes) {
    return std::nullopt;
  }
  std::vector<std::byte> bytes(static_cast<std::size_t>(state.st_size));
  if (!read_all(file.get(), bytes)) return std::nullopt;
  return decode_cubin_file(bytes, key);
}

WriteOutcome write_cubin_file(const std::filesystem::path& path, const CubinKey& key,
                              const CompiledKernel& kernel) {
  std::error_code status;
  std::filesystem::create_directories(path.parent_path(), status);
  const std::optional<std::filesystem::path> temporary = temporary_name(path);
  if (!temporary) return WriteOutcome::kNotWritten;
  // ORDER: fsync comes before rename, so that after a crash of the machine the name leads to the
  // whole content or to what was there before. The checksum catches file systems that ignore it.
  if (write_and_close(*temporary, encode_cubin_file(key, kernel)) &&
      std::rename(temporary->c_str(), path.c_str()) == 0) {
    return WriteOutcome::kWritten;
  }
  (void)::unlink(temporary->c_str());
  return WriteOutcome::kNotWritten;
}

}  // namespace octavo
