// SPDX-License-Identifier: Apache-2.0
#include "bench_suite.hpp"

#include <fmt/format.h>

#include <limits>
#include <nlohmann/json.hpp>

#include "json_file.hpp"

namespace octavo::cli {
namespace {

constexpr std::size_t kMaxProblems = 10000;
constexpr Bounds<std::int64_t> kExtents{1, std::int64_t{1} << 24U};
constexpr Bounds<std::int64_t> kBatches{0, std::int64_t{1} << 16U};
constexpr Bounds<std::int64_t> kSplits{0, std::int64_t{1} << 17U};
constexpr Bounds<std::int64_t> kSeeds{0, std::numeric_limits<std::int64_t>::max()};

class SuiteReader {
 public:
  explicit SuiteReader(std::string path) : file_(std::move(path), "suite") {}

  [[nodiscard]] BenchSuite read() const {
    const nlohmann::json root = file_.parse();
    if (!root.is_object())
      file_.fail("the file", "is not an object", "{\"suite\": ..., \"problems\": ...}");
    BenchSuite suite;
    for (const auto& [key, value] : root.items()) {
      if (key != "suite" && key != "problems" && key != "description") {
        file_.fail(key, "is not a key of a suite", "suite, problems, description");
      }
    }
    if (!root.contains("suite") || !root["suite"].is_string()) {
      file_.fail("suite", "is missing or not a string", "a name in double quotes");
    }
    suite.name = root["suite"];
    if (!root.contains("problems") || !root["problems"].is_array() ||
        root["problems"].size() > kMaxProblems) {
      file_.fail("problems", "is missing, not an array or too long",
                 fmt::format("an array of at most {} problems", kMaxProblems));
    }
    for (std::size_t i = 0; i < root["problems"].size(); ++i) {
      suite.problems.push_back(problem(root["problems"][i], fmt::format("problems[{}]", i)));
    }
    return suite;
  }

 private:
  [[nodiscard]] BenchProblem problem(const nlohmann::json& item, const std::string& where) const {
    if (!item.is_object())
      file_.fail(where, "is not an object", "{\"op\": \"gemm\", \"m\": 1, ...}");
    if (!item.contains("op") || item["op"] != "gemm") {
      file_.fail(where + ".op", "is missing or not served", "\"gemm\"");
    }
    for (const char* needed : {"m", "n", "k"}) {
      if (!item.contains(needed)) {
        file_.fail(where, fmt::format("has no {}", needed), "a product with m, n and k");
      }
    }
    BenchProblem result;
    GemmRequest& request = result.request;
    for (const auto& [key, value] : item.items()) {
      const std::string at = fmt::format("{}.{}", where, key);
      if (key == "op") {
      } else if (key == "m") {
        file_.read_integer(value, at, request.m, kExtents);
      } else if (key == "n") {
        file_.read_integer(value, at, request.n, kExtents);
      } else if (key == "k") {
        file_.read_integer(value, at, request.k, kExtents);
      } else if (key == "batch") {
        file_.read_integer(value, at, request.batch, kBatches);
      } else if (key == "splits") {
        file_.read_integer(value, at, request.num_splits, kSplits);
      } else if (key == "seed") {
        file_.read_integer(value, at, request.seed, kSeeds);
      } else if (key == "recipe") {
        file_.read_enum(value, at, request.recipe, kRecipes);
      } else if (key == "scales") {
        file_.read_enum(value, at, request.scale_dtype, kScaleTypes);
      } else if (key == "a_dtype") {
        file_.read_enum(value, at, request.a_dtype, kValueTypes);
      } else if (key == "b_dtype") {
        file_.read_enum(value, at, request.b_dtype, kValueTypes);
      } else if (key == "d_dtype") {
        file_.read_enum(value, at, request.d_dtype, kValueTypes);
      } else if (key == "accumulation") {
        file_.read_enum(value, at, request.accumulation, kAccumulations);
      } else if (key == "data") {
        file_.read_enum(value, at, request.data, kDistributions);
      } else if (key == "numerics") {
        file_.read_enum(value, at, result.numerics, kNumericsModes);
      } else if (key == "bias") {
        file_.read_bool(value, at, request.bias);
      } else if (key == "accumulate") {
        file_.read_bool(value, at, request.accumulate);
      } else {
        file_.fail(
            at, "is not a key of a problem",
            "one of op, m, n, k, batch, recipe, scales, a_dtype, b_dtype, d_dtype, accumulation, "
            "bias, accumulate, splits, data, seed, numerics");
      }
    }
    return result;
  }

  JsonFile file_;
};

}  // namespace

BenchSuite load_suite(const std::string& path) { return SuiteReader(path).read(); }

}  // namespace octavo::cli
