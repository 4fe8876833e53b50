// SPDX-License-Identifier: Apache-2.0
// The GGUF container: what is written is read, and hostile files give errors, never crashes.
#include "llm/gguf_reader.hpp"

#include <gtest/gtest.h>

#include <random>

#include "checkpoint/file_builders.hpp"
#include "llm/checkpoint.hpp"

namespace octavo::llm {
namespace {

using test::append;
using test::append_string;
using test::Bytes;
using test::bytes_of;
using test::expect_error;
using test::GgufBuilder;

constexpr std::uint32_t kF32 = static_cast<std::uint32_t>(GgmlType::kF32);

GgufFile parse(const Bytes& bytes) { return GgufFile::parse(bytes, "test.gguf"); }

// Everything a caller may ask of a file that was accepted.
void use_everything(const GgufFile& file) {
  for (const std::string& key : file.keys()) {
    const auto each = {std::function<void()>([&] { (void)file.string(key); }),
                       std::function<void()>([&] { (void)file.uint(key); }),
                       std::function<void()>([&] { (void)file.number(key); }),
                       std::function<void()>([&] { (void)file.boolean(key); }),
                       std::function<void()>([&] { (void)file.string_array(key); }),
                       std::function<void()>([&] { (void)file.int_array(key); }),
                       std::function<void()>([&] { (void)file.float_array(key); })};
    for (const auto& call : each) test::survives(call);
  }
  test::survives([&] {
    const Checkpoint checkpoint = Checkpoint::from_gguf(file);
    (void)checkpoint.load_f32("model.layers.0.self_attn.q_proj.weight", 32, 32);
    (void)checkpoint.rope_frequency_factors();
  });
}

GgufBuilder every_type() {
  GgufBuilder builder;
  builder.raw("u8", GgufType::kUint8, bytes_of<std::uint8_t>({200}))
      .raw("i8", GgufType::kInt8, bytes_of<std::int8_t>({-5}))
      .raw("u16", GgufType::kUint16, bytes_of<std::uint16_t>({60000}))
      .raw("i16", GgufType::kInt16, bytes_of<std::int16_t>({-300}))
      .u32("u32", 4000000000U)
      .raw("i32", GgufType::kInt32, bytes_of<std::int32_t>({-7}))
      .f32("f32", 0.5F)
      .boolean("yes", true)
      .string("text", "h\xC3\xA9llo")
      .raw("u64", GgufType::kUint64, bytes_of<std::uint64_t>({UINT64_MAX}))
      .raw("i64", GgufType::kInt64, bytes_of<std::int64_t>({INT64_MIN}))
      .raw("f64", GgufType::kFloat64, bytes_of<double>({0.1}))
      .string_array("words", {"a", "", "ccc"});
  return builder;
}

TEST(GgufReader, round_trip_of_every_metadata_type) {
  const Bytes bytes = every_type().bytes();
  const GgufFile file = parse(bytes);
  EXPECT_EQ(file.uint("u8"), 200U);
  EXPECT_EQ(file.number("i8"), -5.0);
  EXPECT_EQ(file.uint("u16"), 60000U);
  EXPECT_EQ(file.number("i16"), -300.0);
  EXPECT_EQ(file.uint("u32"), 4000000000U);
  EXPECT_EQ(file.number("f32"), 0.5);
  EXPECT_EQ(file.boolean("yes"), true);
  EXPECT_EQ(file.string("text"), "h\xC3\xA9llo");
  EXPECT_EQ(file.uint("u64"), UINT64_MAX);
  EXPECT_EQ(file.number("i64"), static_cast<double>(INT64_MIN));
  EXPECT_EQ(file.number("f64"), 0.1);
  EXPECT_EQ(file.string_array("words"), (std::vector<std::string>{"a", "", "ccc"}));
  EXPECT_EQ(file.string("absent"), std::nullopt);
  EXPECT_EQ(file.uint("absent"), std::nullopt);
  EXPECT_TRUE(file.has("i32"));
  EXPECT_EQ(file.keys().size(), 13U);
}

TEST(GgufReader, wrong_types_are_errors_that_name_both) {
  const Bytes bytes = every_type().bytes();
  const GgufFile file = parse(bytes);
  expect_error(ErrorCode::kBadFile, {"test.gguf", "text", "string", "an integer"},
               [&] { (void)file.uint("text"); });
  expect_error(ErrorCode::kBadFile, {"i32", "not negative"}, [&] { (void)file.uint("i32"); });
  expect_error(ErrorCode::kBadFile, {"u32", "uint32", "a bool"},
               [&] { (void)file.boolean("u32"); });
  expect_error(ErrorCode::kBadFile, {"words", "an array of 3 string"},
               [&] { (void)file.string("words"); });
  expect_error(ErrorCode::kBadFile, {"words", "an array of integers"},
               [&] { (void)file.int_array("words"); });
  expect_error(ErrorCode::kBadFile, {"f32", "an array"}, [&] { (void)file.float_array("f32"); });
}

TEST(GgufReader, arrays_of_numbers_and_of_arrays) {
  Bytes integers;
  append(integers, static_cast<std::uint32_t>(GgufType::kInt16));
  append(integers, std::uint64_t{3});
  for (const std::int16_t value : {-1, 0, 300}) append(integers, value);
  Bytes floats;
  append(floats, static_cast<std::uint32_t>(GgufType::kFloat32));
  append(floats, std::uint64_t{2});
  append(floats, 0.25F);
  append(floats, -4.0F);
  Bytes nested;  // [[7, 8], [], ["x"]]
  append(nested, static_cast<std::uint32_t>(GgufType::kArray));
  append(nested, std::uint64_t{3});
  append(nested, static_cast<std::uint32_t>(GgufType::kUint8));
  append(nested, std::uint64_t{2});
  append(nested, std::uint8_t{7});
  append(nested, std::uint8_t{8});
  append(nested, static_cast<std::uint32_t>(GgufType::kFloat64));
  append(nested, std::uint64_t{0});
  append(nested, static_cast<std::uint32_t>(GgufType::kString));
  append(nested, std::uint64_t{1});
  append_string(nested, "x");
  GgufBuilder builder;
  builder.raw("integers", GgufType::kArray, integers)
      .raw("floats", GgufType::kArray, floats)
      .raw("nested", GgufType::kArray, nested)
      .string("after", "reached");
  const Bytes bytes = builder.bytes();
  const GgufFile file = parse(bytes);
  EXPECT_EQ(file.int_array("integers"), (std::vector<std::int64_t>{-1, 0, 300}));
  EXPECT_EQ(file.float_array("floats"), (std::vector<float>{0.25F, -4.0F}));
  EXPECT_EQ(file.string("after"), "reached");
  expect_error(ErrorCode::kBadFile, {"nested"}, [&] { (void)file.int_array("nested"); });
}

TEST(GgufReader, depth_of_arrays_is_bounded) {
  Bytes nested;
  for (int depth = 0; depth < 64; ++depth) {
    append(nested, static_cast<std::uint32_t>(GgufType::kArray));
    append(nested, std::uint64_t{1});
  }
  GgufBuilder builder;
  builder.raw("deep", GgufType::kArray, nested);
  expect_error(ErrorCode::kBadFile, {"deep", "depth"}, [&] { (void)parse(builder.bytes()); });
}

TEST(GgufReader, tensors_have_row_major_shapes_and_aligned_data) {
  for (const std::uint64_t alignment : {1U, 8U, 32U, 4096U}) {
    GgufBuilder builder;
    builder.alignment = alignment;
    builder.u32("general.alignment", static_cast<std::uint32_t>(alignment));
    builder.tensor("a", GgmlType::kF32, {2, 3}, bytes_of<float>({1, 2, 3, 4, 5, 6}));
    builder.tensor("b", GgmlType::kQ8_0, {1, 32}, Bytes(34, std::byte{1}));
    builder.tensor("c", GgmlType::kF16, {5}, Bytes(10, std::byte{2}));
    const Bytes bytes = builder.bytes();
    const GgufFile file = parse(bytes);
    ASSERT_EQ(file.tensors().size(), 3U);
    const GgufTensor* a = file.find("a");
    ASSERT_NE(a, nullptr);
    EXPECT_EQ(a->shape, (std::vector<std::int64_t>{2, 3}));
    std::vector<float> values(6);
    decode_ggml(a->type, a->bytes, values);
    EXPECT_EQ(values, (std::vector<float>{1, 2, 3, 4, 5, 6}));
    EXPECT_EQ(file.find("b")->bytes.size(), 34U);
    EXPECT_EQ(file.find("b")->bytes.front(), std::byte{1});
    EXPECT_EQ(file.find("c")->bytes.back(), std::byte{2});
    EXPECT_EQ(file.find("d"), nullptr);
  }
}

TEST(GgufReader, version_two_is_read_and_others_are_not) {
  GgufBuilder builder = every_type();
  builder.version = 2;
  EXPECT_EQ(parse(builder.bytes()).uint("u8"), 200U);
  for (const std::uint32_t version : {0U, 1U, 4U, 0x03000000U}) {
    builder.version = version;
    expect_error(ErrorCode::kBadFile, {std::to_string(version), "versions 2 and 3"},
                 [&] { (void)parse(builder.bytes()); });
  }
  expect_error(ErrorCode::kBadFile, {"big-endian"}, [&] { (void)parse(builder.bytes()); });
  Bytes other = every_type().bytes();
  other[0] = std::byte{'P'};
  expect_error(ErrorCode::kBadFile, {"letters GGUF"}, [&] { (void)parse(other); });
}

TEST(GgufReader, bad_tensor_infos_are_errors) {
  const Bytes row = bytes_of<float>({1, 2, 3, 4});
  const auto refuse = [](GgufBuilder builder, std::initializer_list<std::string_view> parts) {
    expect_error(ErrorCode::kBadFile, parts, [&] { (void)parse(builder.bytes()); });
  };
  refuse(GgufBuilder().tensor("t", kF32, {4}, row).tensor("t", kF32, {4}, row),
         {"\"t\" occurs twice"});
  refuse(GgufBuilder().tensor("t", kF32, {1, 1, 1, 1, 4}, row), {"rank 5"});
  refuse(GgufBuilder().tensor("t", kF32, {}, row), {"rank 0"});
  refuse(GgufBuilder().tensor("t", kF32, {0, 4}, row), {"dimension 1", "is 0"});
  refuse(GgufBuilder().tensor("t", kF32, {5}, row), {"[5]", "F32", "16 bytes", "offset 0"});
  refuse(GgufBuilder().tensor("t", kF32, {4}, row).tensor_at(16, "u", kF32, {1}),
         {"multiple of 32"});
  refuse(GgufBuilder().tensor("t", kF32, {4}, row).tensor_at(1U << 20, "u", kF32, {1}),
         {"\"u\"", "offset 1048576"});
  refuse(GgufBuilder().tensor("t", kF32, {4}, row).tensor_at(UINT64_MAX - 31, "u", kF32, {1}),
         {"\"u\""});
  constexpr std::uint64_t kHuge = std::uint64_t{1} << 40;
  refuse(GgufBuilder().tensor("t", kF32, {kHuge, kHuge, kHuge, kHuge}, row), {"does not fit"});
  refuse(GgufBuilder().tensor("t", kF32, {kHuge + 1}, row), {"2^40"});
  refuse(GgufBuilder().tensor("t", GgmlType::kQ4_0, {33}, Bytes(64)), {"33", "blocks of 32"});
  refuse(GgufBuilder().string("k", "1").string("k", "2"), {"\"k\" occurs twice"});
  refuse(GgufBuilder().tensor(std::string(257, 'n'), kF32, {4}, row), {"257"});
  refuse(GgufBuilder().u32("general.alignment", 24).tensor("t", kF32, {4}, row),
         {"alignment", "24"});
  refuse(GgufBuilder().u32("general.alignment", 0).tensor("t", kF32, {4}, row), {"alignment"});
  refuse(GgufBuilder().string("general.alignment", "32"), {"general.alignment", "string"});
}

TEST(GgufReader, bad_counts_are_errors_before_anything_is_allocated) {
  constexpr std::size_t kTensorCountAt = 8;
  constexpr std::size_t kValueCountAt = 16;
  for (const std::size_t at : {kTensorCountAt, kValueCountAt}) {
    for (const std::uint64_t count :
         {std::uint64_t{1000}, std::uint64_t{1} << 32, std::uint64_t{1} << 63, UINT64_MAX}) {
      Bytes bytes = every_type().bytes();
      std::memcpy(bytes.data() + at, &count, sizeof(count));
      expect_error(ErrorCode::kBadFile, {std::to_string(count)}, [&] { (void)parse(bytes); });
    }
  }
  for (const std::uint64_t count : {std::uint64_t{1} << 20, std::uint64_t{1} << 61, UINT64_MAX}) {
    for (const GgufType type : {GgufType::kUint8, GgufType::kFloat64, GgufType::kString,
                                GgufType::kArray, GgufType::kBool}) {
      Bytes payload;
      append(payload, static_cast<std::uint32_t>(type));
      append(payload, count);
      GgufBuilder builder;
      builder.raw("array", GgufType::kArray, payload);
      expect_error(ErrorCode::kBadFile, {"test.gguf"}, [&] { (void)parse(builder.bytes()); });
    }
    Bytes text;
    append(text, count);
    GgufBuilder builder;
    builder.raw("text", GgufType::kString, text);
    expect_error(ErrorCode::kBadFile, {"a string", std::to_string(count)},
                 [&] { (void)parse(builder.bytes()); });
  }
}

TEST(GgufReader, bad_values_are_errors) {
  const auto refuse = [](GgufBuilder builder, std::initializer_list<std::string_view> parts) {
    expect_error(ErrorCode::kBadFile, parts, [&] { (void)parse(builder.bytes()); });
  };
  refuse(GgufBuilder().raw("flag", GgufType::kBool, {std::byte{2}}), {"flag", "bool"});
  refuse(GgufBuilder().raw("odd", static_cast<GgufType>(13), Bytes(8)), {"odd", "13"});
  refuse(GgufBuilder().string("", "no name"), {"0 bytes"});
  // Text from the file is shown escaped and cut, so that it cannot forge a terminal's output.
  refuse(GgufBuilder().raw("\x1b[2J" + std::string(500, 'x'), GgufType::kBool, {std::byte{9}}),
         {"\\x1b[2J", "...\""});
}

GgufBuilder small_model() {
  GgufBuilder builder = test::llama_metadata();
  builder.string_array("tokenizer.ggml.tokens", {"a", "b", "c"});
  builder.tensor("blk.0.attn_norm.weight", GgmlType::kF32, {32}, Bytes(128, std::byte{0x3F}));
  builder.tensor("blk.0.attn_q.weight", GgmlType::kQ4_0, {32, 32}, Bytes(32 * 18, std::byte{0x21}));
  return builder;
}

TEST(GgufReader, every_truncation_is_an_error) {
  const Bytes whole = small_model().bytes();
  ASSERT_NO_THROW((void)parse(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // A copy of exactly that size, so that the sanitizer sees a read past the end.
    const Bytes cut(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    expect_error(ErrorCode::kBadFile, {"test.gguf: "}, [&] { (void)parse(cut); });
    if (HasFailure()) FAIL() << "at " << size << " bytes";
  }
}

TEST(GgufReader, every_changed_byte_gives_a_file_or_an_error) {
  const Bytes whole = small_model().bytes();
  std::mt19937 random(7);
  int refused = 0;
  constexpr std::size_t kDataBytes = 32 * 18;  // of the last tensor, where any byte is valid
  for (std::size_t at = 0; at < whole.size() - kDataBytes; ++at) {
    for (const unsigned change : {0xFFU, static_cast<unsigned>(random() % 255 + 1)}) {
      Bytes changed = whole;
      changed[at] ^= static_cast<std::byte>(change);
      refused += test::survives([&] { use_everything(parse(changed)); }) ? 0 : 1;
    }
  }
  EXPECT_GT(refused, 100);  // the header and the infos leave little room
}

TEST(GgufReader, files_are_mapped_and_missing_ones_are_io_errors) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("model.gguf", small_model().bytes());
  GgufFile file = GgufFile::open(path);
  const GgufFile moved = std::move(file);
  EXPECT_EQ(moved.string("general.architecture"), "llama");
  EXPECT_EQ(moved.find("blk.0.attn_norm.weight")->bytes[0], std::byte{0x3F});
  expect_error(ErrorCode::kIo, {"absent.gguf", "opened", "No such file"},
               [&] { (void)GgufFile::open(folder.path() / "absent.gguf"); });
  expect_error(ErrorCode::kIo, {"not a regular file"},
               [&] { (void)GgufFile::open(folder.path()); });
  expect_error(ErrorCode::kBadFile, {"empty.gguf"},
               [&] { (void)GgufFile::open(folder.write("empty.gguf", std::string_view())); });
}

}  // namespace
}  // namespace octavo::llm
