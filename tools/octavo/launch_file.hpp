// SPDX-License-Identifier: Apache-2.0
// How a kernel that Octavo did not write is launched: a JSON file beside its PTX.
//
//   {"grid": [32, 32, 1], "block": [256, 1, 1], "cluster": [1, 1, 1], "shared_bytes": 0,
//    "flop": 3.4e10,
//    "arguments": [{"buffer": "f32", "count": 4096, "fill": "normal"},
//                  {"buffer": "f32", "count": 4096, "fill": "poison", "output": true},
//                  {"i32": 4096}, {"f32": 0.5}, {"u64": 0}]}
//
// One argument for each of the kernel's parameters, in order; parameters of 4 or 8 bytes, then.
// buffer: f32, bf16, f16, e4m3, e5m2 or i32; fill: normal, uniform (0 to 1), ones, zeros or poison
// (every byte 0xFF); what is an output is compared. cluster, shared_bytes (dynamic) and flop may be
// left out. Beside Triton's own metadata (NAME.json: num_warps, shared) so may block, and the
// pointers that Triton adds at the end. For a kernel of Octavo's: {"m": 4096, "n": 4096, "k":
// 4096}, which is also what counts without a file.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "measure/gpu_kernel.hpp"
#include "octavo/dtype.hpp"

namespace octavo::cli {

enum class BufferFill : std::uint8_t { kNormal, kUniform, kOnes, kZeros, kPoison };

[[nodiscard]] constexpr const char* to_string(BufferFill fill) noexcept {
  switch (fill) {
    case BufferFill::kNormal: return "normal";
    case BufferFill::kUniform: return "uniform";
    case BufferFill::kOnes: return "ones";
    case BufferFill::kZeros: return "zeros";
    case BufferFill::kPoison: return "poison";
  }
  return "?";
}

struct LaunchBuffer {
  DType dtype;
  std::int64_t count;
  BufferFill fill;
  bool is_output;
};
using LaunchArgument = std::variant<LaunchBuffer, std::int32_t, float, std::uint64_t>;

struct KernelLaunch {
  measure::LaunchShape shape;
  double flop = 0;
  std::vector<LaunchArgument> arguments;
};

struct ProductExtents {
  std::int64_t m = 4096;
  std::int64_t n = 4096;
  std::int64_t k = 4096;
};

// Of FILE.ptx: FILE.launch.json, and FILE.json where Triton wrote one. Nothing without the first.
// `parameter_bytes`: of the entry. Throws Error kIo or kBadFile, also if an argument has not its
// parameter's size, or nothing is an output.
[[nodiscard]] std::optional<KernelLaunch> read_launch(
    const std::filesystem::path& ptx, const std::vector<std::size_t>& parameter_bytes);
[[nodiscard]] ProductExtents read_product_extents(const std::filesystem::path& ptx);

}  // namespace octavo::cli
