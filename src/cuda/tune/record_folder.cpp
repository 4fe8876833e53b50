// SPDX-License-Identifier: Apache-2.0
#include "cuda/tune/record_folder.hpp"

#include <algorithm>
#include <span>
#include <system_error>
#include <tuple>
#include <vector>

#include "base/environment.hpp"
#include "base/hex.hpp"
#include "base/sha256.hpp"
#include "cuda/tune/tuning_record.hpp"

namespace octavo::cuda {
namespace {

constexpr std::string_view kSuffix = ".tuning";
constexpr std::uint64_t kMaxFileBytes = 64U << 10U;  // a record has less than 1 KB

// The one record of a file.
std::optional<TuningRecord> read_record(const std::filesystem::path& path) {
  const std::optional<std::vector<std::byte>> bytes = read_whole_file(path, kMaxFileBytes);
  if (!bytes) return std::nullopt;
  const Result<std::vector<TuningRecord>> records =
      parse_records({reinterpret_cast<const char*>(bytes->data()), bytes->size()});
  if (!records.ok() || records.value().size() != 1) return std::nullopt;
  return records.value().front();
}

}  // namespace

std::filesystem::path RecordFolder::path_of(std::string_view environment,
                                            std::string_view problem) const {
  Sha256 hash;
  hash.update_field(environment);
  hash.update_field(problem);
  constexpr std::size_t kBytes = 16;
  const Sha256Digest digest = hash.finish();
  const std::string name = hex_of(std::span(digest).first<kBytes>());
  return folder_ / (name + std::string(kSuffix));
}

std::optional<TuningRecord> RecordFolder::find(std::string_view environment,
                                               std::string_view problem) const {
  if (folder_.empty()) return std::nullopt;
  std::optional<TuningRecord> record = read_record(path_of(environment, problem));
  if (record && (record->environment != environment || record->problem != problem)) {
    return std::nullopt;
  }
  return record;
}

WriteOutcome RecordFolder::put(const TuningRecord& record) const {
  if (folder_.empty()) return WriteOutcome::kNotWritten;
  const std::string text = to_text(record);
  return write_whole_file(path_of(record.environment, record.problem),
                          std::as_bytes(std::span(text)));
}

TuningStore RecordFolder::all() const {
  TuningStore store;
  store.folder = folder_.string();
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder_, error), end; !error && entry != end;
       entry.increment(error)) {
    if (!entry->path().filename().string().ends_with(kSuffix)) continue;
    std::optional<TuningRecord> record = read_record(entry->path());
    if (record && entry->path() == path_of(record->environment, record->problem)) {
      store.records.push_back(std::move(*record));
    } else {
      ++store.num_unusable;
    }
  }
  std::sort(store.records.begin(), store.records.end(),
            [](const TuningRecord& x, const TuningRecord& y) {
              return std::tie(x.problem, x.environment) < std::tie(y.problem, y.environment);
            });
  return store;
}

Result<RecordFolder> default_record_folder() {
  if (!environment().ok()) return environment().error();
  const std::filesystem::path cache = environment().value().cache_dir;
  return RecordFolder(cache.empty() ? cache : cache / "tuning");
}

std::string export_records(const TuningStore& store) {
  std::string text;
  for (const TuningRecord& record : store.records) text += to_text(record);
  return text;
}

Result<int> import_records(std::string_view text) {
  const Result<std::vector<TuningRecord>> records = parse_records(text);
  if (!records.ok()) return records.error();
  const Result<RecordFolder> folder = default_record_folder();
  if (!folder.ok()) return folder.error();
  for (const TuningRecord& record : records.value()) {
    if (folder.value().put(record) != WriteOutcome::kWritten) {
      return Error(ErrorCode::kIo,
                   "tuning records: the store could not be written. Let OCTAVO_CACHE_DIR name a "
                   "folder that can be.");
    }
  }
  return static_cast<int>(records.value().size());
}

}  // namespace octavo::cuda
