// SPDX-License-Identifier: Apache-2.0
// SM clock and power of a GPU, sampled beside a run. Where NVML is missing, so are the figures.
#pragma once

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

namespace octavo::measure {

using Clock = std::chrono::steady_clock;

struct TimeWindow {
  Clock::time_point begin;
  Clock::time_point end;
};

struct ClockAndPower {
  double sm_clock_mhz = 0;
  double power_w = 0;
  std::size_t num_samples = 0;  // 0: nothing is known
};

class NvmlSampler {
 public:
  explicit NvmlSampler(const std::string& bus_id) {
    void* library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (library == nullptr) return;
    int (*init)() = nullptr;
    int (*handle_of)(const char*, void**) = nullptr;
    int (*driver_version)(char*, unsigned) = nullptr;
    int (*power_limit)(void*, unsigned*) = nullptr;
    const auto find = [library](const char* name, auto& function) {
      function =
          reinterpret_cast<std::remove_reference_t<decltype(function)>>(dlsym(library, name));
      return function != nullptr;
    };
    if (!find("nvmlInit_v2", init) || !find("nvmlDeviceGetHandleByPciBusId_v2", handle_of) ||
        !find("nvmlDeviceGetClockInfo", clock_) || !find("nvmlDeviceGetPowerUsage", power_) ||
        init() != 0) {
      return;
    }
    (void)find("nvmlDeviceGetFieldValues", field_values_);
    if (std::array<char, 96> text{};
        find("nvmlSystemGetDriverVersion", driver_version) &&
        driver_version(text.data(), static_cast<unsigned>(text.size() - 1)) == 0) {
      driver_ = text.data();
    }
    if (handle_of(bus_id.c_str(), &device_) != 0) return;
    if (unsigned milliwatts = 0; find("nvmlDeviceGetEnforcedPowerLimit", power_limit) &&
                                 power_limit(device_, &milliwatts) == 0) {
      power_limit_w_ = milliwatts * kWattsPerMilliwatt;
    }
    thread_ = std::thread([this] { sample(); });
  }
  NvmlSampler(const NvmlSampler&) = delete;
  NvmlSampler& operator=(const NvmlSampler&) = delete;
  ~NvmlSampler() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
  }

  [[nodiscard]] const std::string& driver() const { return driver_; }
  [[nodiscard]] double power_limit_w() const { return power_limit_w_; }

  // Medians over the samples that fall into any of the windows.
  [[nodiscard]] ClockAndPower medians(const std::vector<TimeWindow>& windows) const {
    std::vector<double> clocks;
    std::vector<double> powers;
    const std::lock_guard lock(mutex_);
    for (const Sample& sample : samples_) {
      const bool inside =
          std::any_of(windows.begin(), windows.end(), [&sample](const TimeWindow& window) {
            return sample.at >= window.begin && sample.at <= window.end;
          });
      if (!inside) continue;
      clocks.push_back(sample.sm_clock_mhz);
      powers.push_back(sample.power_w);
    }
    return {median(clocks), median(powers), clocks.size()};
  }

 private:
  struct Sample {
    Clock::time_point at;
    double sm_clock_mhz;
    double power_w;
  };
  // nvmlFieldValue_t of nvml.h, its value as 64 bits.
  struct FieldValue {
    unsigned field;
    unsigned scope;
    long long timestamp;
    long long latency_us;
    int value_type;
    int code;
    std::uint64_t value;
  };
  static constexpr double kWattsPerMilliwatt = 1e-3;
  static constexpr int kSmClock = 1;  // NVML_CLOCK_SM
  // NVML_FI_DEV_POWER_INSTANT. nvmlDeviceGetPowerUsage is an average over a second on Hopper,
  // longer than a window.
  static constexpr unsigned kInstantPower = 186;

  static double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
  }

  double power_w() const {
    if (field_values_ != nullptr) {
      FieldValue field{};
      field.field = kInstantPower;
      if (field_values_(device_, 1, &field) == 0 && field.code == 0) {
        return static_cast<double>(static_cast<unsigned>(field.value)) * kWattsPerMilliwatt;
      }
    }
    unsigned milliwatts = 0;
    return power_(device_, &milliwatts) == 0 ? milliwatts * kWattsPerMilliwatt : 0;
  }

  void sample() {
    constexpr auto kPeriod = std::chrono::milliseconds(10);
    while (!stop_) {
      unsigned mhz = 0;
      const int code = clock_(device_, kSmClock, &mhz);
      const double watts = power_w();
      if (code == 0) {
        const std::lock_guard lock(mutex_);
        samples_.push_back({Clock::now(), static_cast<double>(mhz), watts});
      }
      std::this_thread::sleep_for(kPeriod);
    }
  }

  int (*clock_)(void*, int, unsigned*) = nullptr;
  int (*power_)(void*, unsigned*) = nullptr;
  int (*field_values_)(void*, int, FieldValue*) = nullptr;
  void* device_ = nullptr;
  std::string driver_;
  double power_limit_w_ = 0;
  mutable std::mutex mutex_;
  std::vector<Sample> samples_;
  std::atomic<bool> stop_ = false;
  std::thread thread_;
};

}  // namespace octavo::measure
