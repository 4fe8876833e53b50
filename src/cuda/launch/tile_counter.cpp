// SPDX-License-Identifier: Apache-2.0
#include "cuda/launch/tile_counter.hpp"

#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "kernels/contract/gemm_params.hpp"

namespace octavo::cuda {
namespace {

// Counters given out so far, to streams and to captured launches. The driver gives no number to two
// streams of a process, also of several devices; each device has counters of its own.
class TileCounters {
 public:
  int of_captured_launch() {
    const std::lock_guard lock(mutex_);
    return next();
  }

  int of_stream(std::uint64_t id) {
    const std::lock_guard lock(mutex_);
    const auto found = of_streams_.find(id);
    if (found != of_streams_.end()) return found->second;
    const int counter = next();
    if (counter >= 0) of_streams_.emplace(id, counter);
    return counter;
  }

 private:
  int next() { return num_given_ < kTileCounters ? num_given_++ : -1; }

  std::mutex mutex_;
  int num_given_ = 0;
  std::unordered_map<std::uint64_t, int> of_streams_;
};

}  // namespace

int tile_counter(const Driver& api, void* stream) {
  static TileCounters counters;
  int capturing = 0;  // CU_STREAM_CAPTURE_STATUS_NONE
  if (api.StreamIsCapturing(stream, &capturing) != 0) return -1;
  if (capturing != 0) return counters.of_captured_launch();
  std::uint64_t id = 0;
  if (api.StreamGetId(stream, &id) != 0) return -1;
  return counters.of_stream(id);
}

}  // namespace octavo::cuda
