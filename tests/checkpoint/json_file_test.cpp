// SPDX-License-Identifier: Apache-2.0
// Bounded JSON: what is refused, and that errors say where.
#include "llm/json_file.hpp"

#include <gtest/gtest.h>

#include <string>

#include "checkpoint/file_builders.hpp"

namespace octavo::llm {
namespace {

using nlohmann::json;
using test::expect_error;

TEST(JsonFile, documents_equal_the_librarys_own_parse) {
  for (const std::string text :
       {R"({"a": [1, -2, 3.5, null, true, "x\u00e9\n"], "b": {"c": {}, "d": []}})", "[]", "3",
        "null", "\"text\"", "[[[[]]], {\"\": 18446744073709551615}]"}) {
    EXPECT_EQ(parse_json(text, "t"), json::parse(text)) << text;
  }
}

TEST(JsonFile, errors_have_line_and_column) {
  expect_error(ErrorCode::kBadFile,
               {"t.json", "line 3, column 9", "while parsing value - invalid literal"},
               [] { (void)parse_json("{\n  \"a\": 1,\n  \"b\": nope\n}", "t.json"); });
  expect_error(ErrorCode::kBadFile, {"line 1"}, [] { (void)parse_json("", "t.json"); });
  expect_error(ErrorCode::kBadFile, {"line 2"}, [] { (void)parse_json("[1,\n2", "t.json"); });
  expect_error(ErrorCode::kBadFile, {"line 1, column 4"},
               [] { (void)parse_json("[] x", "t.json"); });
  expect_error(ErrorCode::kBadFile, {"line 1"}, [] { (void)parse_json("[1e999]", "t.json"); });
  expect_error(ErrorCode::kBadFile, {"line 1"}, [] { (void)parse_json("[\"\xff\"]", "t.json"); });
}

TEST(JsonFile, depth_and_duplicates_are_refused) {
  const std::string deep(100000, '[');
  expect_error(ErrorCode::kBadFile, {"64 deep"}, [&] { (void)parse_json(deep, "t.json"); });
  expect_error(ErrorCode::kBadFile, {"\"a\" occurs twice"},
               [] { (void)parse_json(R"({"a": 1, "b": 2, "a": 3})", "t.json"); });
  EXPECT_NO_THROW((void)parse_json(R"({"a": {"a": 1}, "b": {"a": 2}})", "t.json"));
}

TEST(JsonFile, sizes_are_bounded) {
  const test::TemporaryFolder folder;
  const auto path = folder.write("t.json", "[1, 2, 3]");
  constexpr std::uint64_t kExact = 9;
  EXPECT_EQ(read_json_file(path, kExact).size(), 3U);
  expect_error(ErrorCode::kBadFile, {"9 bytes", "at most 8"},
               [&] { (void)read_json_file(path, kExact - 1); });
}

TEST(JsonFields, absent_null_and_wrong_types) {
  const json object = json::parse(R"({"i": 5, "f": 5.0, "s": "x", "n": null, "b": false,
                                      "big": 18446744073709551615, "l": [1]})");
  const JsonFields fields(object, "t.json", "outer");
  EXPECT_EQ(fields.integer("i"), 5);
  EXPECT_EQ(fields.number("i"), 5.0);
  EXPECT_EQ(fields.boolean("b"), false);
  EXPECT_EQ(fields.string("s"), "x");
  EXPECT_EQ(fields.integer("n"), std::nullopt);
  EXPECT_EQ(fields.string("absent"), std::nullopt);
  expect_error(ErrorCode::kBadFile, {"t.json", "outer.f is", "5.0", "an integer"},
               [&] { (void)fields.integer("f"); });
  expect_error(ErrorCode::kBadFile, {"outer.big", "below 2^63"},
               [&] { (void)fields.integer("big"); });
  expect_error(ErrorCode::kBadFile, {"outer.s", "true or false"},
               [&] { (void)fields.boolean("s"); });
  expect_error(ErrorCode::kBadFile, {"outer.l is array", "a string"},
               [&] { (void)fields.string("l"); });
  expect_error(ErrorCode::kBadFile, {"outer.b", "a number"}, [&] { (void)fields.number("b"); });
  expect_error(ErrorCode::kBadFile, {"array", "must be an object"},
               [&] { (void)JsonFields(object["l"], "t.json", ""); });
}

}  // namespace
}  // namespace octavo::llm
