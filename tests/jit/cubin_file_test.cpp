// SPDX-License-Identifier: Apache-2.0
// Files of compiled kernels: whole ones come back as they were, damaged ones not at all.
#include "cuda/jit/cubin_file.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstring>

#include "base/sha256.hpp"
#include "jit/cache_folder.hpp"

namespace octavo {
namespace {

constexpr CubinKey kKey = {std::byte{1}, std::byte{2}, std::byte{3}};
const KernelSource kSource = {"octavo_probe", "the text of a kernel"};

// Makes the checksum right again, so that only the rule under test can refuse the file.
void seal(std::vector<std::byte>& bytes) {
  const auto content = std::span(bytes).first(bytes.size() - kSha256Bytes);
  const Sha256Digest digest = sha256(content);
  std::memcpy(bytes.data() + content.size(), digest.data(), digest.size());
}

TEST(CubinFile, ComesBackAsItWas) {
  for (const std::size_t cubin_bytes : {0, 1, 3000, 200000}) {
    const CompiledKernel kernel = stand_in_kernel(kSource, cubin_bytes);
    const auto back = decode_cubin_file(encode_cubin_file(kKey, kernel), kKey);
    ASSERT_TRUE(back.has_value());
    EXPECT_EQ(*back, kernel);
  }
}

TEST(CubinFile, RefusesEveryTruncationAndAnExtraByte) {
  std::vector<std::byte> bytes = encode_cubin_file(kKey, stand_in_kernel(kSource, 500));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    // A copy of exactly that length, so that the address sanitizer sees a read past it.
    const std::vector<std::byte> cut(bytes.begin(), bytes.begin() + static_cast<long>(length));
    ASSERT_FALSE(decode_cubin_file(cut, kKey).has_value()) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_cubin_file(bytes, kKey).has_value());
}

TEST(CubinFile, RefusesEveryFlippedByte) {
  std::vector<std::byte> bytes = encode_cubin_file(kKey, stand_in_kernel(kSource, 500));
  for (std::byte& byte : bytes) {
    byte ^= std::byte{0x10};
    ASSERT_FALSE(decode_cubin_file(bytes, kKey).has_value()) << &byte - bytes.data();
    byte ^= std::byte{0x10};
  }
  EXPECT_TRUE(decode_cubin_file(bytes, kKey).has_value());
}

TEST(CubinFile, RefusesAnotherKey) {
  const std::vector<std::byte> bytes = encode_cubin_file(kKey, stand_in_kernel(kSource));
  CubinKey other = kKey;
  other.back() ^= std::byte{1};
  EXPECT_FALSE(decode_cubin_file(bytes, other).has_value());
}

// Magic (8 bytes), key (16), bytes of the log (8), bytes of the cubin (8), resources, version.
constexpr std::size_t kLogBytesOffset = 24;
constexpr std::size_t kCubinBytesOffset = 32;
constexpr std::size_t kVersionOffset = 56;

TEST(CubinFile, BoundsSizesThatAChecksumVouchesFor) {
  const std::vector<std::byte> good = encode_cubin_file(kKey, stand_in_kernel(kSource));
  for (const std::size_t offset : {kLogBytesOffset, kCubinBytesOffset}) {
    for (const std::uint64_t size :
         {std::uint64_t{0}, std::uint64_t{1} << 20U, ~std::uint64_t{0}, std::uint64_t{1} << 63U}) {
      std::vector<std::byte> bytes = good;
      std::memcpy(bytes.data() + offset, &size, sizeof(size));
      seal(bytes);
      EXPECT_FALSE(decode_cubin_file(bytes, kKey).has_value()) << offset << " " << size;
    }
  }
  // Two sizes whose sum wraps round to the right one.
  std::vector<std::byte> bytes = good;
  std::uint64_t log_bytes = 0;
  std::uint64_t cubin_bytes = 0;
  std::memcpy(&log_bytes, bytes.data() + kLogBytesOffset, sizeof(log_bytes));
  std::memcpy(&cubin_bytes, bytes.data() + kCubinBytesOffset, sizeof(cubin_bytes));
  const std::uint64_t wrapped_log = ~std::uint64_t{0} - 9;
  const std::uint64_t wrapped_cubin = log_bytes + cubin_bytes - wrapped_log;
  std::memcpy(bytes.data() + kLogBytesOffset, &wrapped_log, sizeof(wrapped_log));
  std::memcpy(bytes.data() + kCubinBytesOffset, &wrapped_cubin, sizeof(wrapped_cubin));
  seal(bytes);
  EXPECT_FALSE(decode_cubin_file(bytes, kKey).has_value());

  bytes = good;
  seal(bytes);
  EXPECT_TRUE(decode_cubin_file(bytes, kKey).has_value()) << "seal() itself must do no harm";
}

TEST(CubinFile, RefusesAnotherFormatVersion) {
  std::vector<std::byte> bytes = encode_cubin_file(kKey, stand_in_kernel(kSource));
  const std::uint32_t version = kCubinFormatVersion + 1;
  std::memcpy(bytes.data() + kVersionOffset, &version, sizeof(version));
  seal(bytes);
  EXPECT_FALSE(decode_cubin_file(bytes, kKey).has_value());
}

TEST(CubinFile, ReadsNothingFromWhatIsNoFile) {
  const TemporaryFolder folder;
  EXPECT_FALSE(read_cubin_file(folder.path() / "missing", kKey).has_value());
  EXPECT_FALSE(read_cubin_file(folder.path(), kKey).has_value());
  const auto pipe = folder.path() / "pipe";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_FALSE(read_cubin_file(pipe, kKey).has_value());
}

TEST(CubinFile, WritesNothingBesideTheFile) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a" / "b" / "kernel.cubin";
  const CompiledKernel kernel = stand_in_kernel(kSource);
  ASSERT_EQ(write_cubin_file(path, kKey, kernel), WriteOutcome::kWritten);
  EXPECT_EQ(files_in(path.parent_path()), std::vector{path});
  const auto back = read_cubin_file(path, kKey);
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(*back, kernel);
}

TEST(CubinFile, LeavesNothingWhereItCannotReplaceTheName) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "kernel.cubin";
  std::filesystem::create_directory(path);
  EXPECT_EQ(write_cubin_file(path, kKey, stand_in_kernel(kSource)), WriteOutcome::kNotWritten);
  EXPECT_EQ(files_in(folder.path()), std::vector{path});
}

}  // namespace
}  // namespace octavo
