// SPDX-License-Identifier: Apache-2.0
#include "llm/elementwise.hpp"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <vector>

namespace octavo::llm {
namespace {

// Independent partial sums: one FP32 chain of additions would cost its latency per element, and
// compilers may not split it by themselves.
constexpr std::int64_t kLanes = 16;

float sum_of_squares(const float* x, std::int64_t count) noexcept {
  std::array<float, kLanes> lanes{};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t lane = 0; lane < kLanes; ++lane) {
      const float value = x[i + lane];
      lanes[static_cast<std::size_t>(lane)] += value * value;
    }
  }
  for (; i < count; ++i) lanes[0] += x[i] * x[i];
  float total = 0;
  for (const float lane : lanes) total += lane;
  return total;
}

}  // namespace

void to_bf16(std::span<const float> x, std::uint16_t* out) noexcept {
  for (std::size_t i = 0; i < x.size(); ++i) out[i] = to_bf16(x[i]);
}

void rms_norm(const float* x, std::int64_t rows, std::span<const float> weight, float epsilon,
              float* out) noexcept {
  const auto width = static_cast<std::int64_t>(weight.size());
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* in = x + row * width;
    float* result = out + row * width;
    const float mean = sum_of_squares(in, width) / static_cast<float>(width);
    const float factor = 1.0F / std::sqrt(mean + epsilon);
    for (std::int64_t i = 0; i < width; ++i) {
      result[i] = in[i] * factor * weight[static_cast<std::size_t>(i)];
    }
  }
}

void add(float* x, const float* y, std::int64_t count) noexcept {
  for (std::int64_t i = 0; i < count; ++i) x[i] += y[i];
}

void silu_mul(const float* gate_up, std::int64_t rows, std::int64_t width, float* out) noexcept {
  for (std::int64_t row = 0; row < rows; ++row) {
    const float* gate = gate_up + row * 2 * width;
    const float* up = gate + width;
    float* result = out + row * width;
    for (std::int64_t i = 0; i < width; ++i) {
      result[i] = gate[i] / (1.0F + exp_approx(-gate[i])) * up[i];
    }
  }
}

float max_finite_magnitude(std::span<const float> x) noexcept {
  float largest = 0;
  for (const float value : x) {
    const float magnitude = std::fabs(value);
    // False for NaN too.
    if (magnitude <= std::numeric_limits<float>::max()) largest = std::max(largest, magnitude);
  }
  return largest;
}

double log_sum_exp(std::span<const float> x) noexcept {
  if (x.empty()) return -std::numeric_limits<double>::infinity();
  float largest = x[0];
  for (const float value : x) largest = std::max(largest, value);
  // FP32 sums of a short block, FP64 between blocks: fast enough for a vocabulary per token, and
  // the error stays that of exp_approx.
  constexpr std::size_t kBlock = 256;
  double total = 0;
  for (std::size_t begin = 0; begin < x.size(); begin += kBlock) {
    const std::size_t end = std::min(x.size(), begin + kBlock);
    std::array<float, kLanes> lanes{};
    std::size_t i = begin;
    for (; i + kLanes <= end; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        lanes[lane] += exp_approx(x[i + lane] - largest);
      }
    }
    for (; i < end; ++i) lanes[0] += exp_approx(x[i] - largest);
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return static_cast<double>(largest) + std::log(total);
}

std::vector<double> rope_frequencies(const LlamaConfig& config, std::span<const float> factors) {
  const auto half = static_cast<std::size_t>(config.head_dim / 2);
  const RopeScaling& scaling = config.rope_scaling;
  std::vector<double> frequencies(half);
  for (std::size_t i = 0; i < half; ++i) {
    const double exponent = static_cast<double>(2 * i) / static_cast<double>(config.head_dim);
    double frequency = std::pow(static_cast<double>(config.rope_theta), -exponent);
    if (scaling.kind == RopeScalingKind::kLinear) {
      frequency /= static_cast<double>(scaling.factor);
    } else if (scaling.kind == RopeScalingKind::kLlama3) {
      // Llama 3.1: wavelengths shorter than original / high stay, those longer than original / low
      // are stretched by factor, and between the two the frequency is interpolated.
      const double wavelength = 2 * std::numbers::pi / frequency;
      const auto original = static_cast<double>(scaling.original_max_positions);
      const auto low = static_cast<double>(scaling.low_freq_factor);
      const auto high = static_cast<double>(scaling.high_freq_factor);
      const double stretched = frequency / static_cast<double>(scaling.factor);
      if (wavelength > original / low) {
        frequency = stretched;
      } else if (wavelength >= original / high) {
        const double share = (original / wavelength - low) / (high - low);
        frequency = (1 - share) * stretched + share * frequency;
      }
    }
    if (!factors.empty()) frequency /= static_cast<double>(factors[i]);
    frequencies[i] = frequency;
  }
  return frequencies;
}

void rope_angles(std::span<const double> frequencies, std::int64_t first, std::int64_t count,
                 float* cosine, float* sine) noexcept {
  std::size_t at = 0;
  for (std::int64_t position = first; position < first + count; ++position) {
    for (const double frequency : frequencies) {
      const double angle = static_cast<double>(position) * frequency;
      cosine[at] = static_cast<float>(std::cos(angle));
      sine[at] = static_cast<float>(std::sin(angle));
      ++at;
    }
  }
}

void apply_rope(const HeadRows& rows, const float* cosine, const float* sine) noexcept {
  const std::int64_t half = rows.head_dim / 2;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    const float* c = cosine + row * half;
    const float* s = sine + row * half;
    for (std::int64_t head = 0; head < rows.heads; ++head) {
      float* low = rows.x + row * rows.row_stride + head * rows.head_dim;
      float* high = low + half;
      for (std::int64_t i = 0; i < half; ++i) {
        const float a = low[i];
        const float b = high[i];
        low[i] = a * c[i] - b * s[i];
        high[i] = b * c[i] + a * s[i];
      }
    }
  }
}

void rotate_heads(const HeadRows& rows) noexcept {
  const std::int64_t run = rows.head_dim & -rows.head_dim;
  const float norm = 1.0F / std::sqrt(static_cast<float>(run));
  const std::int64_t width = rows.heads * rows.head_dim;
  for (std::int64_t row = 0; row < rows.rows; ++row) {
    float* x = rows.x + row * rows.row_stride;
    // Butterflies of the fast Walsh-Hadamard transform; a run never crosses into the next.
    for (std::int64_t half = 1; half < run; half *= 2) {
      for (std::int64_t first = 0; first < width; first += 2 * half) {
        for (std::int64_t i = first; i < first + half; ++i) {
          const float sum = x[i] + x[i + half];
          x[i + half] = x[i] - x[i + half];
          x[i] = sum;
        }
      }
    }
    for (std::int64_t i = 0; i < width; ++i) x[i] *= norm;
  }
}

}  // namespace octavo::llm
