// SPDX-License-Identifier: Apache-2.0
#include "llm/read_bandwidth.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include "llm/weight_buffer.hpp"
#include "octavo/error.hpp"
#include "octavo/runtime.hpp"

namespace octavo::llm {
namespace {

constexpr int kPasses = 8;

// Enough independent sums that additions never wait for one another.
constexpr std::size_t kLanes = 32;

std::uint64_t sum(const std::uint64_t* values, std::size_t count) {
  std::array<std::uint64_t, kLanes> lanes{};
  for (std::size_t i = 0; i + kLanes <= count; i += kLanes) {
    for (std::size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += values[i + lane];
  }
  std::uint64_t total = 0;
  for (const std::uint64_t lane : lanes) total += lane;
  return total;
}

}  // namespace

double measure_read_bandwidth(std::int64_t size_bytes, int num_threads) {
  if (size_bytes < kMinBandwidthBytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("read_bandwidth: {} bytes were given; at least {} are needed for a "
                            "measurement. Give the size of the weights.",
                            size_bytes, kMinBandwidthBytes));
  }
  using Clock = std::chrono::steady_clock;
  const std::size_t threads =
      static_cast<std::size_t>(num_threads > 0 ? num_threads : cpu_info().num_cores);
  const std::size_t part =
      static_cast<std::size_t>(size_bytes) / sizeof(std::uint64_t) / threads / kLanes * kLanes;
  const WeightBuffer buffer(part * threads * sizeof(std::uint64_t));
  std::atomic<std::uint64_t> total{0};  // so that no read is left out as useless
  std::array<Clock::time_point, kPasses + 1> times{};
  std::size_t pass = 0;
  std::barrier sync(static_cast<std::ptrdiff_t>(threads),
                    [&]() noexcept { times[pass++] = Clock::now(); });
  const auto work = [&](std::size_t thread_idx) {
    sync.arrive_and_wait();
    for (int i = 0; i < kPasses; ++i) {
      total += sum(buffer.as<std::uint64_t>() + thread_idx * part, part);
      sync.arrive_and_wait();
    }
  };
  {
    std::vector<std::jthread> others;
    for (std::size_t i = 1; i < threads; ++i) others.emplace_back(work, i);
    work(0);
  }
  double best_seconds = std::chrono::duration<double>(times[1] - times[0]).count();
  for (std::size_t i = 1; i < kPasses; ++i) {
    best_seconds =
        std::min(best_seconds, std::chrono::duration<double>(times[i + 1] - times[i]).count());
  }
  return static_cast<double>(buffer.size_bytes()) / best_seconds;
}

}  // namespace octavo::llm
