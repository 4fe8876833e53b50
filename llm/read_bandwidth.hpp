// SPDX-License-Identifier: Apache-2.0
// How fast this machine reads memory now, with the threads a product would use: the bound that
// decoding speed is judged by (generate.hpp).
#pragma once

#include <cstdint>

namespace octavo::llm {

inline constexpr std::int64_t kMinBandwidthBytes = std::int64_t{1} << 20U;

// Bytes per second at which `num_threads` threads (0: one per core) sum a buffer of `size_bytes`,
// each thread its own part: the best of several passes over the whole of it. A buffer that fits
// into a cache measures that cache, so choose the size of what one wants to read.
// Throws Error (kInvalidArgument) for a size below kMinBandwidthBytes.
[[nodiscard]] double measure_read_bandwidth(std::int64_t size_bytes, int num_threads);

}  // namespace octavo::llm
