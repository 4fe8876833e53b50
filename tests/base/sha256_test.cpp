// SPDX-License-Identifier: Apache-2.0
// Vectors: FIPS 180-4's examples (NIST, "SHA256.pdf" and "SHA2_Additional.pdf").
#include "base/sha256.hpp"

#include <gtest/gtest.h>

#include <span>
#include <string>
#include <string_view>

#include "fmt/format.h"

namespace octavo {
namespace {

std::string hex(const Sha256Digest& digest) {
  std::string text;
  for (const std::byte value : digest) text += fmt::format("{:02x}", std::to_integer<int>(value));
  return text;
}

std::string hex_of(std::string_view text) { return hex(sha256(std::as_bytes(std::span(text)))); }

TEST(Sha256, MatchesThePublishedVectors) {
  EXPECT_EQ(hex_of(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(hex_of("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(hex_of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq"),
            "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
  EXPECT_EQ(hex_of(std::string(1000000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, MatchesTheVectorsOfZerosRoundTheBlockLength) {
  EXPECT_EQ(hex_of(std::string(55, '\0')),
            "02779466cdec163811d078815c633f21901413081449002f24aa3e80f0b88ef7");
  EXPECT_EQ(hex_of(std::string(56, '\0')),
            "d4817aa5497628e7c77e6b606107042bbba3130888c5f47a375e6179be789fbb");
  EXPECT_EQ(hex_of(std::string(57, '\0')),
            "65a16cb7861335d5ace3c60718b5052e44660726da4cd13bb745381b235a1785");
  EXPECT_EQ(hex_of(std::string(64, '\0')),
            "f5a5fd42d16a20302798ef6ed309979b43003d2320d9f0e8ea9831a92759fb4b");
}

TEST(Sha256, IsTheSameHoweverTheMessageIsCut) {
  const std::string text(200, 'x');
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(text)).first(cut));
    hash.update(std::as_bytes(std::span(text)).subspan(cut));
    ASSERT_EQ(hex(hash.finish()), hex_of(text)) << cut;
  }
}

TEST(Sha256, FieldsAreNotMerelyJoined) {
  Sha256 first;
  first.update_field("ab");
  first.update_field("c");
  Sha256 second;
  second.update_field("a");
  second.update_field("bc");
  EXPECT_NE(hex(first.finish()), hex(second.finish()));
}

}  // namespace
}  // namespace octavo
