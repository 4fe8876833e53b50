// SPDX-License-Identifier: Apache-2.0
// The names of FIPS 180-4, sections 4.1.2, 4.2.2 and 6.2, are kept: W, a to h, K.
#include "base/sha256.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace octavo {
namespace {

constexpr int kRounds = 64;
constexpr int kWordBytes = 4;
constexpr int kBlockWords = 16;
constexpr int kByteBits = 8;

constexpr std::array<std::uint32_t, kRounds> kRoundConstants = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

template <typename Word>
void store_big_endian(Word word, std::byte* out) {
  for (std::size_t i = 0; i < sizeof(Word); ++i) {
    out[i] = static_cast<std::byte>(word >> (kByteBits * (sizeof(Word) - 1 - i)));
  }
}

}  // namespace

void Sha256::compress(const std::byte* block) {
  std::array<std::uint32_t, kRounds> w{};
  for (int t = 0; t < kBlockWords; ++t) {
    for (int i = 0; i < kWordBytes; ++i) {
      w[t] = (w[t] << kByteBits) | std::to_integer<std::uint32_t>(block[t * kWordBytes + i]);
    }
  }
  for (int t = kBlockWords; t < kRounds; ++t) {
    const std::uint32_t sigma0 =
        std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ (w[t - 15] >> 3);
    const std::uint32_t sigma1 =
        std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ (w[t - 2] >> 10);
    w[t] = sigma1 + w[t - 7] + sigma0 + w[t - 16];
  }
  auto [a, b, c, d, e, f, g, h] = state_;
  for (int t = 0; t < kRounds; ++t) {
    const std::uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
    const std::uint32_t choice = (e & f) ^ (~e & g);
    const std::uint32_t t1 = h + sum1 + choice + kRoundConstants[t] + w[t];
    const std::uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
    const std::uint32_t majority = (a & b) ^ (a & c) ^ (b & c);
    h = g;
    g = f;
    f = e;
    e = d + t1;
    d = c;
    c = b;
    b = a;
    a = t1 + sum0 + majority;
  }
  const std::array<std::uint32_t, 8> added = {a, b, c, d, e, f, g, h};
  for (std::size_t i = 0; i < state_.size(); ++i) state_[i] += added[i];
}

void Sha256::update(std::span<const std::byte> data) {
  message_bytes_ += data.size();
  while (!data.empty()) {
    const std::size_t count = std::min(kBlockBytes - block_bytes_, data.size());
    std::memcpy(block_.data() + block_bytes_, data.data(), count);
    block_bytes_ += count;
    data = data.subspan(count);
    if (block_bytes_ == kBlockBytes) {
      compress(block_.data());
      block_bytes_ = 0;
    }
  }
}

void Sha256::update_field(std::string_view text) {
  std::array<std::byte, sizeof(std::uint64_t)> size{};
  store_big_endian(static_cast<std::uint64_t>(text.size()), size.data());
  update(size);
  update(std::as_bytes(std::span(text)));
}

Sha256Digest Sha256::finish() {
  std::array<std::byte, sizeof(std::uint64_t)> message_bits{};
  store_big_endian(message_bytes_ * kByteBits, message_bits.data());
  constexpr std::array kEndMark = {std::byte{0x80}};
  constexpr std::array<std::byte, kBlockBytes> kZeros{};
  update(kEndMark);
  const std::size_t length_offset = kBlockBytes - message_bits.size();
  const std::size_t padding = (kBlockBytes + length_offset - block_bytes_) % kBlockBytes;
  update(std::span(kZeros).first(padding));
  update(message_bits);
  Sha256Digest digest{};
  for (std::size_t i = 0; i < state_.size(); ++i) {
    store_big_endian(state_[i], digest.data() + i * kWordBytes);
  }
  return digest;
}

Sha256Digest sha256(std::span<const std::byte> data) {
  Sha256 hash;
  hash.update(data);
  return hash.finish();
}

}  // namespace octavo
