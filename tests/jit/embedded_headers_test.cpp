// SPDX-License-Identifier: Apache-2.0
// The embedded texts are the files, byte for byte.
#include "cuda/jit/embedded_headers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace octavo {
namespace {

std::vector<std::string> names() {
  std::vector<std::string> result;
  for (const EmbeddedHeader& header : embedded_headers()) result.emplace_back(header.name);
  return result;
}

TEST(EmbeddedHeaders, AreNamedAsSourcesIncludeThemAndSorted) {
  EXPECT_THAT(names(), testing::IsSupersetOf({"kernels/contract/gemm_config.hpp",
                                              "octavo/dtype.hpp", "octavo/scale.hpp"}));
  EXPECT_TRUE(std::ranges::is_sorted(names()));
}

TEST(EmbeddedHeaders, HoldTheFilesTexts) {
  const std::filesystem::path root = OCTAVO_SOURCE_DIR;
  for (const EmbeddedHeader& header : embedded_headers()) {
    const std::string name = header.name;
    std::ifstream file(root / (name.starts_with("octavo/") ? "include/" + name : name));
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    EXPECT_EQ(header.text, text) << name << ": build again if it has just changed";
    EXPECT_EQ(header.text.data()[header.text.size()], '\0') << name;
  }
}

TEST(EmbeddedHeaders, LackNoHeaderUnderKernels) {
  const std::filesystem::path root = OCTAVO_SOURCE_DIR;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root / "kernels")) {
    const std::string extension = entry.path().extension().string();
    const std::string name = entry.path().lexically_relative(root).generic_string();
    if (name.starts_with("kernels/naive/") || (extension != ".hpp" && extension != ".cuh"))
      continue;
    EXPECT_THAT(names(), testing::Contains(name));
  }
}

}  // namespace
}  // namespace octavo
