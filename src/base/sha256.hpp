// SPDX-License-Identifier: Apache-2.0
// SHA-256 (FIPS 180-4): names and checks cached files. Not for secrets.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace octavo {

inline constexpr std::size_t kSha256Bytes = 32;
using Sha256Digest = std::array<std::byte, kSha256Bytes>;

class Sha256 {
 public:
  void update(std::span<const std::byte> data);

  // Text preceded by its length, so that two fields cannot be taken for two others that read the
  // same when joined.
  void update_field(std::string_view text);

  // Ends the message; the object must not be used afterwards.
  [[nodiscard]] Sha256Digest finish();

 private:
  static constexpr std::size_t kBlockBytes = 64;

  void compress(const std::byte* block);

  std::array<std::uint32_t, 8> state_ = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                         0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  std::array<std::byte, kBlockBytes> block_{};
  std::size_t block_bytes_ = 0;
  std::uint64_t message_bytes_ = 0;
};

[[nodiscard]] Sha256Digest sha256(std::span<const std::byte> data);

}  // namespace octavo
