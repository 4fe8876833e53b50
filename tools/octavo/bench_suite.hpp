// SPDX-License-Identifier: Apache-2.0
// A suite file: {"suite": name, "problems": [{"op": "gemm", "m": 1, ...}, ...]}. Every key of a
// problem but op, m, n and k may be left out; an unknown one is an error.
#pragma once

#include <string>
#include <vector>

#include "gemm_request.hpp"

namespace octavo::cli {

struct BenchProblem {
  GemmRequest request;
  Numerics numerics = Numerics::kDefault;
};

struct BenchSuite {
  std::string name;
  std::vector<BenchProblem> problems;
};

// Throws Error: kIo if the file cannot be read, kBadFile naming line and column, or the key, of
// what breaks the format.
[[nodiscard]] BenchSuite load_suite(const std::string& path);

}  // namespace octavo::cli
