// SPDX-License-Identifier: Apache-2.0
// A GPU's description as a file: octavo doctor --device-out writes one, octavo explain and warmup
// read it (--device-file), so that plans can be looked at without the GPU.
#pragma once

#include <string>

#include "octavo/runtime.hpp"
#include "session.hpp"

namespace octavo::cli {

[[nodiscard]] Json to_json(const GpuDescription& gpu);

// Throws Error kIo.
void save_gpu(const GpuDescription& gpu, const std::string& path);
// Throws Error: kIo if the file cannot be read, kBadFile naming what breaks the format.
[[nodiscard]] GpuDescription load_gpu(const std::string& path);

// "NVIDIA H200: compute capability 9.0, 132 multiprocessors, ..."
[[nodiscard]] std::string text_of(const GpuDescription& gpu);

}  // namespace octavo::cli
