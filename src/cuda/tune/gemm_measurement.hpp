// SPDX-License-Identifier: Apache-2.0
// One product in device memory of its own, to be timed and checked with any kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "cuda/driver.hpp"
#include "cuda/prepared_gemm.hpp"
#include "octavo/device_memory.hpp"
#include "octavo/gemm.hpp"

namespace octavo::cuda {

class GemmMeasurement {
 public:
  // A product of the problem's extents, types and modes, its operands dense and random. Throws
  // Error kEnvironment if they do not fit.
  GemmMeasurement(const DeviceInfo& device, const GemmProblem& problem, double window_ms);
  GemmMeasurement(const GemmMeasurement&) = delete;
  GemmMeasurement& operator=(const GemmMeasurement&) = delete;
  ~GemmMeasurement();

  // The product as it is measured: what kernels must be planned for.
  [[nodiscard]] const GemmProblem& problem() const { return sets_.front().problem; }

  // Throws Error kInternal if the kernel gives other bits than the CPU's emulation.
  void check(const PreparedGemm& kernel);
  // The bytes of D after one launch.
  [[nodiscard]] std::vector<std::uint8_t> result(const PreparedGemm& kernel);
  // Microseconds of one product: a window of launches over input sets that the second-level cache
  // does not hold, after a window of the same work that does not count.
  [[nodiscard]] double microseconds(const PreparedGemm& kernel);

 private:
  struct Set {
    DeviceMemory a, b, d, a_scale, b_scale;
    GemmProblem problem;
  };

  void make_sets(const GemmProblem& problem);
  void release() const;  // stream and events, after what is on the stream
  void fill(DeviceMemory& memory, const DeviceMemory& pool) const;
  void launch(const PreparedGemm& kernel, const Set& set) const;
  void launch_on_poison(const PreparedGemm& kernel, const Set& set) const;  // and wait
  [[nodiscard]] double window_ms(const PreparedGemm& kernel, std::int64_t launches) const;
  void wait() const;

  const DeviceInfo& device_;
  const Driver& api_;
  double window_ms_;
  void* stream_ = nullptr;
  void* begin_ = nullptr;
  void* end_ = nullptr;
  std::vector<std::uint8_t> codes_;
  std::vector<float> scales_;
  DeviceMemory bias_;
  std::vector<Set> sets_;
};

}  // namespace octavo::cuda
