// SPDX-License-Identifier: Apache-2.0
// safetensors files and shards: what is written is read, and hostile files give errors.
#include "llm/safetensors_reader.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

#include "checkpoint/file_builders.hpp"
#include "llm/safetensors_set.hpp"

namespace octavo::llm {
namespace {

using test::Bytes;
using test::bytes_of;
using test::expect_error;
using test::safetensors_of;
using test::SafetensorsBuilder;

SafetensorsFile parse(const Bytes& bytes) { return SafetensorsFile::parse(bytes, "t.safetensors"); }

SafetensorsBuilder small_file() {
  SafetensorsBuilder builder;
  builder.tensor("b", "BF16", {1, 2}, bytes_of<std::uint16_t>({0x3F80, 0xC040}))
      .tensor("a.weight", "F32", {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}))
      .tensor("scalar", "F16", {}, bytes_of<std::uint16_t>({0x3C00}))
      .tensor("empty", "I64", {0, 5}, {})
      .tensor("codes", "F8_E4M3", {3}, bytes_of<std::uint8_t>({0x38, 0x40, 0x7E}));
  return builder;
}

TEST(SafetensorsReader, round_trip) {
  const Bytes bytes = small_file().bytes();
  const SafetensorsFile file = parse(bytes);
  EXPECT_EQ(file.tensors().size(), 5U);
  const SafetensorsTensor* a = file.find("a.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->dtype, DType::kF32);
  EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(Bytes(a->bytes.begin(), a->bytes.end()), bytes_of<float>({1, 2, 3, 4, 5, 6}));
  EXPECT_TRUE(file.find("scalar")->shape.empty());
  EXPECT_EQ(file.find("scalar")->bytes.size(), 2U);
  EXPECT_EQ(file.find("empty")->bytes.size(), 0U);
  EXPECT_EQ(file.find("empty")->dtype, std::nullopt);
  EXPECT_EQ(file.find("codes")->bytes.back(), std::byte{0x7E});
  EXPECT_EQ(file.find("absent"), nullptr);
}

TEST(SafetensorsReader, metadata_and_padding_are_allowed) {
  const Bytes bytes = safetensors_of(
      R"({"__metadata__":{"format":"pt"},"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}   )",
      Bytes(1));
  EXPECT_EQ(parse(bytes).tensors().size(), 1U);
}

TEST(SafetensorsReader, bad_headers_are_errors) {
  const auto refuse = [](std::string_view header, std::size_t data_bytes,
                         std::initializer_list<std::string_view> parts) {
    const Bytes bytes = safetensors_of(header, Bytes(data_bytes));
    expect_error(ErrorCode::kBadFile, parts, [&] { (void)parse(bytes); });
  };
  refuse("", 0, {"t.safetensors", "not JSON"});
  refuse("[]", 0, {"array", "object"});
  refuse("{\n\"x\"", 0, {"line 2"});
  refuse(R"({"x":3})", 0, {"\"x\"", "object"});
  refuse(R"({"x":{"shape":[1],"data_offsets":[0,1]}})", 1, {"\"x\".dtype is missing"});
  refuse(R"({"x":{"dtype":"U8","data_offsets":[0,1]}})", 1, {"\"x\".shape is missing"});
  refuse(R"({"x":{"dtype":"U8","shape":[1]}})", 1, {"data_offsets is missing"});
  refuse(R"({"x":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1, {"dtype is", "a string"});
  refuse(R"({"x":{"dtype":"U8","shape":7,"data_offsets":[0,1]}})", 1, {"shape is", "an array"});
  refuse(R"({"x":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, {"shape is", "-1"});
  refuse(R"({"x":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, {"shape is", "1.0"});
  refuse(R"({"x":{"dtype":"U8","shape":[1,1,1,1,1,1,1,1,1],"data_offsets":[0,1]}})", 1, {"rank 9"});
  refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, {"array of two"});
  refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, {"[1, 0]", "in order"});
  refuse(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1, {"[0, 2] of 1 bytes"});
  refuse(R"({"x":{"dtype":"F32","shape":[2],"data_offsets":[0,4]}})", 4,
         {"[2]", "4 bytes", "8 bytes"});
  refuse(R"({"x":{"dtype":"F32","shape":[1099511627776,1099511627776],"data_offsets":[0,0]}})", 0,
         {"2^64"});
  refuse(R"({"x":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,0]}})", 0,
         {"2^40"});
  refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
         R"("x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
         2, {"\"x\" occurs twice"});
  refuse(R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
         R"("y":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
         3, {"\"y\"", "overlap"});
  refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
         R"("y":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
         3, {"\"y\"", "gap"});
  refuse(R"({"x":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 2, {"end at byte 1 of 2"});
  refuse(R"({"x":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1, {"\"x\"", "\"F4\""});
  refuse(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})",
                     std::string(1025, 'n')),
         1, {"1025 bytes"});
}

TEST(SafetensorsReader, header_length_is_bounded) {
  for (const std::uint64_t length :
       {std::uint64_t{1000}, std::uint64_t{100'000'001}, std::uint64_t{1} << 63, UINT64_MAX}) {
    Bytes bytes = small_file().bytes();
    std::memcpy(bytes.data(), &length, sizeof(length));
    expect_error(ErrorCode::kBadFile, {std::to_string(length), "100000000"},
                 [&] { (void)parse(bytes); });
  }
}

TEST(SafetensorsReader, every_truncation_is_an_error) {
  const Bytes whole = small_file().bytes();
  ASSERT_NO_THROW((void)parse(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    expect_error(ErrorCode::kBadFile, {"t.safetensors: "}, [&] { (void)parse(cut); });
    if (HasFailure()) FAIL() << "at " << size << " bytes";
  }
}

TEST(SafetensorsReader, every_changed_byte_gives_a_file_or_an_error) {
  const Bytes whole = small_file().bytes();
  std::mt19937 random(11);
  int refused = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (int repeat = 0; repeat < 4; ++repeat) {
      Bytes changed = whole;
      changed[at] ^= static_cast<std::byte>(random() % 255 + 1);
      refused += test::survives([&] { (void)parse(changed); }) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 100);
}

// FNUZ bytes mean other numbers: 0x38 is half as much, 0x80 is NaN, 0x7F a number.
TEST(SafetensorsReader, C08_fnuz_is_refused_by_name) {
  for (const std::string_view dtype : {"F8_E4M3FNUZ", "F8_E5M2FNUZ"}) {
    SafetensorsBuilder builder;
    builder.tensor("w", dtype, {4}, bytes_of<std::uint8_t>({0x38, 0x40, 0x80, 0x7F}))
        .tensor("w_scale", "F32", {1}, bytes_of<float>({0.5F}));
    const Bytes bytes = builder.bytes();
    expect_error(ErrorCode::kBadFile, {"\"w\"", dtype, "F8_E4M3 or F8_E5M2", "halve the scales"},
                 [&] { (void)parse(bytes); });
  }
}

TEST(SafetensorsSet, index_finds_tensors_in_shards) {
  const test::TemporaryFolder folder;
  folder.write("one.safetensors",
               SafetensorsBuilder().tensor("a", "F32", {1}, bytes_of<float>({1})).bytes());
  folder.write("two.safetensors",
               SafetensorsBuilder().tensor("b", "F32", {1}, bytes_of<float>({2})).bytes());
  const auto index =
      folder.write("model.safetensors.index.json",
                   R"({"metadata":{},"weight_map":{"b":"two.safetensors","a":"one.safetensors"}})");
  const SafetensorsSet set = SafetensorsSet::open_index(index);
  const SafetensorsSet copy = set;  // copies must not point into the original
  EXPECT_EQ(copy.at("b").name, "b");
  EXPECT_NE(copy.file_of("b").find("two.safetensors"), std::string::npos);
  EXPECT_EQ(set.find("c"), nullptr);
  expect_error(ErrorCode::kBadFile, {"index.json", "\"c\""}, [&] { (void)set.at("c"); });
}

TEST(SafetensorsSet, index_must_not_leave_its_folder) {
  const test::TemporaryFolder folder;
  for (const std::string_view shard :
       {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors", "..", ".", "",
        ".hidden.safetensors", "a\\\\b.safetensors", "config.json", "a\\u0000.safetensors"}) {
    const auto index =
        folder.write("i.json", fmt::format(R"({{"weight_map":{{"t":"{}"}}}})", shard));
    expect_error(ErrorCode::kBadFile, {"i.json", "plain file name"},
                 [&] { (void)SafetensorsSet::open_index(index); });
  }
}

TEST(SafetensorsSet, bad_indexes_are_errors) {
  const test::TemporaryFolder folder;
  folder.write("one.safetensors",
               SafetensorsBuilder().tensor("a", "F32", {1}, bytes_of<float>({1})).bytes());
  const auto refuse = [&](ErrorCode code, std::string_view text,
                          std::initializer_list<std::string_view> parts) {
    const auto index = folder.write("i.json", text);
    expect_error(code, parts, [&] { (void)SafetensorsSet::open_index(index); });
  };
  refuse(ErrorCode::kBadFile, "{}", {"weight_map is missing"});
  refuse(ErrorCode::kBadFile, R"({"weight_map":[]})", {"weight_map is array"});
  refuse(ErrorCode::kBadFile, R"({"weight_map":{"a":1}})", {"weight_map is"});
  refuse(ErrorCode::kBadFile, R"({"weight_map":{"z":"one.safetensors"}})",
         {"\"z\"", "one.safetensors", "does not hold it"});
  refuse(ErrorCode::kIo, R"({"weight_map":{"a":"absent.safetensors"}})", {"absent.safetensors"});
}

TEST(SafetensorsSet, a_tensor_in_two_files_is_refused) {
  const Bytes bytes = small_file().bytes();
  std::vector<SafetensorsFile> files{SafetensorsFile::parse(bytes, "one"),
                                     SafetensorsFile::parse(bytes, "two")};
  expect_error(ErrorCode::kBadFile, {"two", "also stands in one"},
               [&] { (void)SafetensorsSet::from_files(files); });
}

}  // namespace
}  // namespace octavo::llm
