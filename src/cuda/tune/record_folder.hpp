// SPDX-License-Identifier: Apache-2.0
// A folder of tuning records, one file each: written whole or not at all, checked when read.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "base/whole_file.hpp"
#include "octavo/error.hpp"
#include "octavo/tuning.hpp"

namespace octavo::cuda {

class RecordFolder {
 public:
  // Empty: nothing is there, and nothing is kept.
  explicit RecordFolder(std::filesystem::path folder) : folder_(std::move(folder)) {}

  // The record of exactly these, if there is a sound one.
  [[nodiscard]] std::optional<TuningRecord> find(std::string_view environment,
                                                 std::string_view problem) const;
  WriteOutcome put(const TuningRecord& record) const;
  // In the order of their problems.
  [[nodiscard]] TuningStore all() const;

 private:
  [[nodiscard]] std::filesystem::path path_of(std::string_view environment,
                                              std::string_view problem) const;

  std::filesystem::path folder_;
};

// In the folder that the environment names.
[[nodiscard]] Result<RecordFolder> default_record_folder();

// octavo/tuning.hpp's export and import.
[[nodiscard]] std::string export_records(const TuningStore& store);
[[nodiscard]] Result<int> import_records(std::string_view text);

}  // namespace octavo::cuda
