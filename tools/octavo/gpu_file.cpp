// SPDX-License-Identifier: Apache-2.0
#include "gpu_file.hpp"

#include <fmt/format.h>

#include <limits>

#include "json_file.hpp"
#include "result_file.hpp"

namespace octavo::cli {
namespace {

// Wide enough for any GPU, narrow enough that no plan overflows.
constexpr Bounds<std::int64_t> kComputeNumbers{0, 99};
constexpr Bounds<std::int64_t> kMultiprocessors{1, 4096};
constexpr Bounds<std::int64_t> kByteCounts{0, std::int64_t{1} << 50};
constexpr Bounds<std::int64_t> kClocksMhz{1, 100000};

}  // namespace

Json to_json(const GpuDescription& gpu) {
  return {{"name", gpu.name},
          {"compute_major", gpu.compute_major},
          {"compute_minor", gpu.compute_minor},
          {"num_multiprocessors", gpu.num_multiprocessors},
          {"memory_bytes", gpu.memory_bytes},
          {"l2_bytes", gpu.l2_bytes},
          {"clock_mhz", gpu.clock_mhz},
          {"driver", gpu.driver},
          {"cuda", gpu.cuda},
          {"nvrtc", gpu.nvrtc}};
}

void save_gpu(const GpuDescription& gpu, const std::string& path) {
  write_result(to_json(gpu), path);
}

GpuDescription load_gpu(const std::string& path) {
  const JsonFile file(path, "device file");
  const nlohmann::json root = file.parse();
  if (!root.is_object()) file.fail("the file", "is not an object", "what octavo doctor writes");
  for (const char* needed :
       {"name", "compute_major", "compute_minor", "num_multiprocessors", "clock_mhz"}) {
    if (!root.contains(needed)) file.fail(needed, "is missing", "there");
  }
  GpuDescription gpu;
  const auto read_int = [&](const nlohmann::json& value, const std::string& key, int& target,
                            Bounds<std::int64_t> bounds) {
    std::int64_t wide = 0;
    file.read_integer(value, key, wide, bounds);
    target = static_cast<int>(wide);
  };
  for (const auto& [key, value] : root.items()) {
    if (key == "name") {
      file.read_string(value, key, gpu.name);
    } else if (key == "compute_major") {
      read_int(value, key, gpu.compute_major, kComputeNumbers);
    } else if (key == "compute_minor") {
      read_int(value, key, gpu.compute_minor, kComputeNumbers);
    } else if (key == "num_multiprocessors") {
      read_int(value, key, gpu.num_multiprocessors, kMultiprocessors);
    } else if (key == "memory_bytes") {
      file.read_integer(value, key, gpu.memory_bytes, kByteCounts);
    } else if (key == "l2_bytes") {
      file.read_integer(value, key, gpu.l2_bytes, kByteCounts);
    } else if (key == "clock_mhz") {
      read_int(value, key, gpu.clock_mhz, kClocksMhz);
    } else if (key == "driver") {
      file.read_string(value, key, gpu.driver);
    } else if (key == "cuda") {
      file.read_string(value, key, gpu.cuda);
    } else if (key == "nvrtc") {
      file.read_string(value, key, gpu.nvrtc);
    } else {
      file.fail(key, "is not a key of a device file",
                "one of name, compute_major, compute_minor, num_multiprocessors, memory_bytes, "
                "l2_bytes, clock_mhz, driver, cuda, nvrtc");
    }
  }
  return gpu;
}

std::string text_of(const GpuDescription& gpu) {
  constexpr double kGibibyte = 1024.0 * 1024.0 * 1024.0;
  constexpr double kMebibyte = 1024.0 * 1024.0;
  std::string text =
      fmt::format("{}: compute capability {}.{}, {} multiprocessors, up to {} MHz", gpu.name,
                  gpu.compute_major, gpu.compute_minor, gpu.num_multiprocessors, gpu.clock_mhz);
  if (gpu.memory_bytes > 0) {
    text += fmt::format(", {:.0f} GiB", static_cast<double>(gpu.memory_bytes) / kGibibyte);
  }
  if (gpu.l2_bytes > 0) {
    text += fmt::format(", L2 {:.0f} MiB", static_cast<double>(gpu.l2_bytes) / kMebibyte);
  }
  if (!gpu.driver.empty()) text += ", driver " + gpu.driver;
  if (!gpu.cuda.empty()) text += ", CUDA " + gpu.cuda;
  if (!gpu.nvrtc.empty()) text += ", NVRTC " + gpu.nvrtc;
  return text;
}

}  // namespace octavo::cli
