// SPDX-License-Identifier: Apache-2.0
#include "launch_file.hpp"

#include <fmt/format.h>

#include <array>
#include <limits>
#include <string>
#include <system_error>

#include "json_file.hpp"
#include "octavo/error.hpp"

namespace octavo::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::array kFills{BufferFill::kNormal, BufferFill::kUniform, BufferFill::kOnes,
                            BufferFill::kZeros, BufferFill::kPoison};
constexpr std::array kTypes{DType::kF32,  DType::kBF16, DType::kF16,
                            DType::kE4M3, DType::kE5M2, DType::kI32};
constexpr std::int64_t kMostElements = std::int64_t{1} << 32U;
constexpr std::int64_t kMostBlocks = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kMostSharedBytes = 227 * 1024;

fs::path beside(const fs::path& ptx, const char* ending) {
  fs::path path = ptx;
  return path.replace_extension(ending);
}

bool is_file(const fs::path& path) {
  std::error_code failed;
  return fs::is_regular_file(path, failed);
}

class LaunchReader {
 public:
  explicit LaunchReader(const fs::path& path) : file_(path.string(), "launch") {}

  KernelLaunch read(const fs::path& metadata, const std::vector<std::size_t>& parameter_bytes) {
    const nlohmann::json document = file_.parse();
    if (!document.is_object() || !document.contains("grid") || !document.contains("arguments")) {
      file_.fail("the document", "lacks grid or arguments", "an object that has both");
    }
    KernelLaunch launch;
    read_extents(document["grid"], "grid", kMostBlocks, launch.shape.grid);
    if (document.contains("cluster")) {
      read_extents(document["cluster"], "cluster", 16, launch.shape.cluster);
    }
    bool has_block = document.contains("block");
    if (has_block) read_extents(document["block"], "block", 1024, launch.shape.block);
    if (document.contains("shared_bytes")) {
      launch.shape.shared_bytes = read_shared(file_, document["shared_bytes"], "shared_bytes");
    }
    if (document.contains("flop")) {
      if (!document["flop"].is_number()) file_.fail("flop", "is no number", "a number");
      launch.flop = document["flop"].get<double>();
    }
    const nlohmann::json& arguments = document["arguments"];
    if (!arguments.is_array()) file_.fail("arguments", "is no list", "a list");
    for (std::size_t i = 0; i < arguments.size(); ++i) {
      launch.arguments.push_back(read_argument(arguments[i], fmt::format("arguments[{}]", i)));
    }
    const bool is_triton = is_file(metadata);
    if (is_triton) {
      read_triton(metadata, has_block, document.contains("shared_bytes"), launch);
      has_block = true;
      while (launch.arguments.size() < parameter_bytes.size()) {
        launch.arguments.emplace_back(std::uint64_t{0});
      }
    }
    if (!has_block) file_.fail("block", "is missing", "[x, y, z]");
    if (launch.arguments.size() != parameter_bytes.size()) {
      file_.fail("arguments", fmt::format("has {} entries", launch.arguments.size()),
                 fmt::format("one for each of the kernel's {} parameters", parameter_bytes.size()));
    }
    bool has_output = false;
    for (std::size_t i = 0; i < parameter_bytes.size(); ++i) {
      const LaunchArgument& argument = launch.arguments[i];
      const bool has_four =
          std::holds_alternative<std::int32_t>(argument) || std::holds_alternative<float>(argument);
      const std::size_t bytes = has_four ? 4 : 8;
      if (parameter_bytes[i] != bytes) {
        file_.fail(fmt::format("arguments[{}]", i), fmt::format("has {} bytes", bytes),
                   parameter_bytes[i] == 0
                       ? std::string("of a kernel whose parameters have known types")
                       : fmt::format("as long as its parameter, which has {}", parameter_bytes[i]));
      }
      const auto* buffer = std::get_if<LaunchBuffer>(&argument);
      has_output = has_output || (buffer != nullptr && buffer->is_output);
    }
    if (!has_output) file_.fail("arguments", "has no output", "a list with \"output\": true in it");
    return launch;
  }

  ProductExtents read_extents_of_product() {
    const nlohmann::json document = file_.parse();
    if (!document.is_object()) file_.fail("the document", "is no object", "an object");
    ProductExtents extents;
    constexpr Bounds<std::int64_t> kExtent{1, 1 << 20};
    for (const auto& [name, value] : {std::pair<const char*, std::int64_t*>{"m", &extents.m},
                                      {"n", &extents.n},
                                      {"k", &extents.k}}) {
      if (document.contains(name)) file_.read_integer(document[name], name, *value, kExtent);
    }
    return extents;
  }

 private:
  void read_extents(const nlohmann::json& value, const std::string& where, std::int64_t most,
                    std::array<unsigned, 3>& target) const {
    if (!value.is_array() || value.size() != target.size()) {
      file_.fail(where, "is no list of three", "[x, y, z]");
    }
    for (std::size_t i = 0; i < target.size(); ++i) {
      std::int64_t extent = 0;
      file_.read_integer(value[i], fmt::format("{}[{}]", where, i), extent, {1, most});
      target[i] = static_cast<unsigned>(extent);
    }
  }

  static unsigned read_shared(const JsonFile& file, const nlohmann::json& value,
                              const std::string& where) {
    std::int64_t bytes = 0;
    file.read_integer(value, where, bytes, {0, kMostSharedBytes});
    return static_cast<unsigned>(bytes);
  }

  [[nodiscard]] LaunchArgument read_argument(const nlohmann::json& value,
                                             const std::string& where) const {
    const auto has = [&value](const char* key) { return value.is_object() && value.contains(key); };
    if (has("buffer")) {
      LaunchBuffer buffer{DType::kF32, 0, BufferFill::kZeros, false};
      file_.read_enum(value["buffer"], where + ".buffer", buffer.dtype, kTypes);
      if (!has("count")) file_.fail(where + ".count", "is missing", "a number of elements");
      file_.read_integer(value["count"], where + ".count", buffer.count, {1, kMostElements});
      if (has("fill")) file_.read_enum(value["fill"], where + ".fill", buffer.fill, kFills);
      if (has("output")) file_.read_bool(value["output"], where + ".output", buffer.is_output);
      return buffer;
    }
    if (has("i32")) {
      std::int64_t number = 0;
      file_.read_integer(
          value["i32"], where + ".i32", number,
          {std::numeric_limits<std::int32_t>::min(), std::numeric_limits<std::int32_t>::max()});
      return static_cast<std::int32_t>(number);
    }
    if (has("u64")) {
      std::int64_t number = 0;
      file_.read_integer(value["u64"], where + ".u64", number,
                         {0, std::numeric_limits<std::int64_t>::max()});
      return static_cast<std::uint64_t>(number);
    }
    if (has("f32") && value["f32"].is_number()) return value["f32"].get<float>();
    file_.fail(where, "is " + value.dump(), "a buffer, i32, f32 or u64");
  }

  static void read_triton(const fs::path& metadata, bool has_block, bool has_shared,
                          KernelLaunch& launch) {
    const JsonFile file(metadata.string(), "metadata");
    const nlohmann::json document = file.parse();
    const auto has = [&document](const char* key) {
      return document.is_object() && document.contains(key);
    };
    if (!has_block) {
      if (!has("num_warps")) file.fail("num_warps", "is missing", "what Triton writes");
      std::int64_t warps = 0;
      constexpr std::int64_t kMostWarps = 32;
      file.read_integer(document["num_warps"], "num_warps", warps, {1, kMostWarps});
      launch.shape.block = {static_cast<unsigned>(warps) * 32, 1, 1};
    }
    if (!has_shared && has("shared")) {
      launch.shape.shared_bytes = read_shared(file, document["shared"], "shared");
    }
  }

  JsonFile file_;
};

}  // namespace

std::optional<KernelLaunch> read_launch(const fs::path& ptx,
                                        const std::vector<std::size_t>& parameter_bytes) {
  const fs::path path = beside(ptx, ".launch.json");
  if (!is_file(path)) return std::nullopt;
  return LaunchReader(path).read(beside(ptx, ".json"), parameter_bytes);
}

ProductExtents read_product_extents(const fs::path& ptx) {
  const fs::path path = beside(ptx, ".launch.json");
  return is_file(path) ? LaunchReader(path).read_extents_of_product() : ProductExtents{};
}

}  // namespace octavo::cli
