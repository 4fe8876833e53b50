// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/tuning_record.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <span>
#include <system_error>

#include "base/hex.hpp"
#include "base/sha256.hpp"

namespace octavo::cuda {
namespace {

constexpr std::string_view kFirstLine = "octavo-tuning 1";

// On one line whatever a driver calls a GPU.
std::string printable(std::string_view text) {
  std::string result(text);
  for (char& c : result) {
    if (c < ' ' || c > '~') c = '?';
  }
  return result;
}

std::string checksum_of(std::string_view text) {
  return hex_of(sha256(std::as_bytes(std::span(text))));
}

std::string body_of(const TuningRecord& record) {
  return fmt::format(
      "{}\nenvironment {}\nproblem {}\nkernel {}\nus {:.3f}\nmodel_kernel {}\nmodel_us {:.3f}\n"
      "candidates {}\n",
      kFirstLine, record.environment, record.problem, record.kernel, record.us, record.model_kernel,
      record.model_us, record.num_candidates);
}

// Takes a text apart line by line.
class RecordReader {
 public:
  explicit RecordReader(std::string_view text) : text_(text) {}

  Result<std::vector<TuningRecord>> read() {
    std::vector<TuningRecord> records;
    while (!text_.empty()) {
      TuningRecord record;
      const std::string_view first = next();
      if (first != kFirstLine) return refuse("is no record's first line", kFirstLine);
      if (!take("environment ", record.environment) || !take("problem ", record.problem) ||
          !take("kernel ", record.kernel) || !take_number("us ", record.us) ||
          !take("model_kernel ", record.model_kernel) ||
          !take_number("model_us ", record.model_us) ||
          !take_number("candidates ", record.num_candidates)) {
        return refuse("does not go on as a record does", expected_);
      }
      std::string sum;
      if (!take("sha256 ", sum) || sum != checksum_of(body_of(record))) {
        return refuse("does not hold the checksum of the lines before it",
                      "\"sha256 \" and 64 hexadecimal digits of an unchanged record");
      }
      records.push_back(std::move(record));
    }
    return records;
  }

 private:
  std::string_view next() {
    ++line_;
    const std::size_t end = std::min(text_.find('\n'), text_.size());
    const std::string_view line = text_.substr(0, end);
    text_.remove_prefix(std::min(end + 1, text_.size()));
    return line;
  }

  bool take(std::string_view word, std::string& to) {
    expected_ = word;
    const std::string_view line = next();
    if (!line.starts_with(word)) return false;
    to = line.substr(word.size());
    return to == printable(to);
  }

  template <typename Number>
  bool take_number(std::string_view word, Number& to) {
    std::string digits;
    if (!take(word, digits)) return false;
    const char* const end = digits.data() + digits.size();
    const auto [stop, status] = std::from_chars(digits.data(), end, to);
    if constexpr (std::is_floating_point_v<Number>) {
      if (!std::isfinite(to)) return false;
    }
    return status == std::errc() && stop == end && to > 0;
  }

  [[nodiscard]] Error refuse(std::string_view what, std::string_view rule) const {
    return {ErrorCode::kBadFile,
            fmt::format("tuning records: line {} {}; it must be {}. Export them again (octavo tune "
                        "--export).",
                        line_, what, rule)};
  }

  std::string_view text_;
  std::string_view expected_;
  int line_ = 0;
};

}  // namespace

std::int64_t row_bucket(std::int64_t m) {
  // The fewest rows of a tile beyond the few: within a bucket their number is the same.
  constexpr std::int64_t kLarge = 128;
  if (m > kLarge) return (m + kLarge - 1) / kLarge * kLarge;
  std::int64_t bucket = 8;
  while (bucket < m) bucket *= 2;
  return bucket;
}

std::string environment_key(const GpuDescription& gpu) {
  return printable(fmt::format("driver={} nvrtc={} octavo={}", gpu.driver, gpu.nvrtc, version()));
}

std::string problem_key(const GemmProblem& problem, const GpuDescription& gpu,
                        const GemmConfig& config) {
  const auto row = static_cast<std::size_t>(problem.a.rank - 2);
  return printable(fmt::format(
      "gemm gpu={} multiprocessors={} m<={} n={} k={} a={} b={} d={} recipe={} sum={}{}{} "
      "splits={}",
      gpu.name, gpu.num_multiprocessors, row_bucket(problem.a.shape[row]), problem.b.shape[row],
      problem.a.shape[row + 1], to_string(problem.a.dtype), to_string(problem.b.dtype),
      to_string(config.d), to_string(problem.recipe), to_string(problem.accumulation),
      config.accumulates ? " accumulate" : "", config.has_bias ? " bias" : "", config.num_splits));
}

std::string to_text(const TuningRecord& record) {
  const std::string body = body_of(record);
  return body + "sha256 " + checksum_of(body) + "\n";
}

Result<std::vector<TuningRecord>> parse_records(std::string_view text) {
  return RecordReader(text).read();
}

}  // namespace octavo::cuda
