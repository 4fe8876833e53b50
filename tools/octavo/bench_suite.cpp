// SPDX-License-Identifier: Apache-2.0
#include "bench_suite.hpp"

#include <fmt/format.h>

#include <fstream>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>

#include "octavo/error.hpp"

namespace octavo::cli {
namespace {

constexpr std::size_t kMaxSuiteBytes = std::size_t{1} << 20U;
constexpr std::size_t kMaxProblems = 10000;
constexpr std::int64_t kMaxExtent = std::int64_t{1} << 24U;

class SuiteReader {
 public:
  explicit SuiteReader(std::string path) : path_(std::move(path)) {}

  [[nodiscard]] BenchSuite read() const {
    const nlohmann::json root = parse(text());
    if (!root.is_object())
      fail("the file", "is not an object", "{\"suite\": ..., \"problems\": ...}");
    BenchSuite suite;
    for (const auto& [key, value] : root.items()) {
      if (key != "suite" && key != "problems" && key != "description") {
        fail(key, "is not a key of a suite", "suite, problems, description");
      }
    }
    if (!root.contains("suite") || !root["suite"].is_string()) {
      fail("suite", "is missing or not a string", "a name in double quotes");
    }
    suite.name = root["suite"];
    if (!root.contains("problems") || !root["problems"].is_array() ||
        root["problems"].size() > kMaxProblems) {
      fail("problems", "is missing, not an array or too long",
           fmt::format("an array of at most {} problems", kMaxProblems));
    }
    for (std::size_t i = 0; i < root["problems"].size(); ++i) {
      suite.problems.push_back(problem(root["problems"][i], fmt::format("problems[{}]", i)));
    }
    return suite;
  }

 private:
  [[noreturn]] void fail(const std::string& where, const std::string& what,
                         const std::string& rule) const {
    throw Error(ErrorCode::kBadFile, fmt::format("{}: {} {}; it must be {}. Correct the suite.",
                                                 path_, where, what, rule));
  }

  [[nodiscard]] std::string text() const {
    std::ifstream file(path_, std::ios::binary);
    if (!file) {
      throw Error(ErrorCode::kIo, path_ +
                                      ": the suite could not be opened; it must be a readable "
                                      "file. Check the path.");
    }
    std::string text(kMaxSuiteBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxSuiteBytes) {
      fail("the file", "is too long", fmt::format("at most {} bytes", kMaxSuiteBytes));
    }
    return text;
  }

  // nlohmann's message holds line and column of the first fault.
  [[nodiscard]] nlohmann::json parse(const std::string& text) const {
    // A depth limit: the parser recurses for destruction of nested arrays.
    constexpr int kMaxDepth = 16;
    try {
      return nlohmann::json::parse(
          text, [this](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
            if (depth > kMaxDepth) fail("the file", "is nested too deeply", "at most 16 levels");
            return true;
          });
    } catch (const nlohmann::json::exception& error) {
      throw Error(ErrorCode::kBadFile,
                  fmt::format("{}: {}. Correct the JSON.", path_, error.what()));
    }
  }

  template <typename Enum, std::size_t kNumValues>
  void read_enum(const nlohmann::json& value, const std::string& where, Enum& target,
                 const std::array<Enum, kNumValues>& values) const {
    std::string known;
    for (const Enum candidate : values) {
      if (value.is_string() && value.get<std::string>() == to_string(candidate)) {
        target = candidate;
        return;
      }
      known += (known.empty() ? "" : ", ") + std::string(to_string(candidate));
    }
    fail(where, "is " + value.dump(), "one of " + known);
  }

  void read_integer(const nlohmann::json& value, const std::string& where, std::int64_t& target,
                    std::int64_t low, std::int64_t high) const {
    const bool whole = value.is_number_integer() &&
                       !(value.is_number_unsigned() &&
                         value.get<std::uint64_t>() >
                             static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()));
    if (!whole || value.get<std::int64_t>() < low || value.get<std::int64_t>() > high) {
      fail(where, "is " + value.dump(), fmt::format("a whole number from {} to {}", low, high));
    }
    target = value.get<std::int64_t>();
  }

  void read_bool(const nlohmann::json& value, const std::string& where, bool& target) const {
    if (!value.is_boolean()) fail(where, "is " + value.dump(), "true or false");
    target = value.get<bool>();
  }

  [[nodiscard]] BenchProblem problem(const nlohmann::json& item, const std::string& where) const {
    if (!item.is_object()) fail(where, "is not an object", "{\"op\": \"gemm\", \"m\": 1, ...}");
    if (!item.contains("op") || item["op"] != "gemm") {
      fail(where + ".op", "is missing or not served", "\"gemm\"");
    }
    for (const char* needed : {"m", "n", "k"}) {
      if (!item.contains(needed)) {
        fail(where, fmt::format("has no {}", needed), "a product with m, n and k");
      }
    }
    BenchProblem result;
    GemmRequest& request = result.request;
    for (const auto& [key, value] : item.items()) {
      const std::string at = where + "." + key;
      if (key == "op") {
      } else if (key == "m") {
        read_integer(value, at, request.m, 1, kMaxExtent);
      } else if (key == "n") {
        read_integer(value, at, request.n, 1, kMaxExtent);
      } else if (key == "k") {
        read_integer(value, at, request.k, 1, kMaxExtent);
      } else if (key == "batch") {
        read_integer(value, at, request.batch, 0, std::int64_t{1} << 16U);
      } else if (key == "splits") {
        read_integer(value, at, request.num_splits, 1, std::int64_t{1} << 17U);
      } else if (key == "seed") {
        read_integer(value, at, request.seed, 0, std::numeric_limits<std::int64_t>::max());
      } else if (key == "recipe") {
        read_enum(value, at, request.recipe, kRecipes);
      } else if (key == "scales") {
        read_enum(value, at, request.scale_dtype, kScaleTypes);
      } else if (key == "a_dtype") {
        read_enum(value, at, request.a_dtype, kValueTypes);
      } else if (key == "b_dtype") {
        read_enum(value, at, request.b_dtype, kValueTypes);
      } else if (key == "d_dtype") {
        read_enum(value, at, request.d_dtype, kValueTypes);
      } else if (key == "accumulation") {
        read_enum(value, at, request.accumulation, kAccumulations);
      } else if (key == "data") {
        read_enum(value, at, request.data, kDistributions);
      } else if (key == "numerics") {
        read_enum(value, at, result.numerics, kNumericsModes);
      } else if (key == "bias") {
        read_bool(value, at, request.bias);
      } else if (key == "accumulate") {
        read_bool(value, at, request.accumulate);
      } else {
        fail(at, "is not a key of a problem",
             "one of op, m, n, k, batch, recipe, scales, a_dtype, b_dtype, d_dtype, accumulation, "
             "bias, accumulate, splits, data, seed, numerics");
      }
    }
    return result;
  }

  std::string path_;
};

}  // namespace

BenchSuite load_suite(const std::string& path) { return SuiteReader(path).read(); }

}  // namespace octavo::cli
