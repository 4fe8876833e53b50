// SPDX-License-Identifier: Apache-2.0
// Shards and their index. See safetensors_set.hpp.
#include "llm/safetensors_set.hpp"

#include <fmt/format.h>

#include <utility>

#include "llm/file_error.hpp"
#include "llm/json_file.hpp"

namespace octavo::llm {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxShards = 4096;
constexpr std::size_t kMaxShardNameBytes = 255;  // of one file name on the usual file systems

void check_shard_name(std::string_view shard, std::string_view index) {
  constexpr std::string_view kSuffix = ".safetensors";
  const bool plain = shard.size() <= kMaxShardNameBytes && shard.size() > kSuffix.size() &&
                     shard.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos &&
                     shard.front() != '.' && shard.ends_with(kSuffix);
  if (plain) return;
  throw bad_file(
      index, fmt::format("weight_map names the shard {}", printable(shard)),
      "a shard is a plain file name that ends in .safetensors, in the index's own folder",
      "Correct the index; do not use one of unknown origin");
}

}  // namespace

SafetensorsSet SafetensorsSet::from_files(std::vector<SafetensorsFile> files) {
  SafetensorsSet set;
  set.files_ = std::move(files);
  for (std::size_t f = 0; f < set.files_.size(); ++f) {
    const std::span<const SafetensorsTensor> tensors = set.files_[f].tensors();
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      const auto [place, inserted] = set.locations_.emplace(tensors[t].name, Location{f, t});
      if (inserted) continue;
      throw bad_file(set.files_[f].name(),
                     fmt::format("tensor {} also stands in {}", printable(tensors[t].name),
                                 set.files_[place->second.file_idx].name()),
                     "a tensor stands in one shard", "Remove one of the two files");
    }
  }
  if (!set.files_.empty()) set.name_ = set.files_.front().name();
  return set;
}

SafetensorsSet SafetensorsSet::open_file(const std::filesystem::path& path) {
  std::vector<SafetensorsFile> files;
  files.push_back(SafetensorsFile::open(path));
  return from_files(std::move(files));
}

SafetensorsSet SafetensorsSet::open_index(const std::filesystem::path& index_path) {
  const std::string index = index_path.string();
  const json document = read_json_file(index_path);
  const JsonFields fields(document, index, "");
  const json* weight_map = fields.find("weight_map");
  if (weight_map == nullptr) fields.throw_missing("weight_map");
  if (!weight_map->is_object()) fields.throw_type_error("weight_map", *weight_map, "an object");

  SafetensorsSet set;
  set.name_ = index;
  std::map<std::string, std::size_t, std::less<>> file_idx_of;
  for (const auto& [tensor_name, shard] : weight_map->items()) {
    if (!shard.is_string()) fields.throw_type_error("weight_map", shard, "a map of file names");
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (!file_idx_of.contains(shard_name)) {
      check_shard_name(shard_name, index);
      if (set.files_.size() == kMaxShards) {
        throw bad_file(index, fmt::format("weight_map names more than {} shards", kMaxShards),
                       "the number of shards is bounded", "Check that this is the index meant");
      }
      set.files_.push_back(SafetensorsFile::open(index_path.parent_path() / shard_name));
      file_idx_of.emplace(shard_name, set.files_.size() - 1);
    }
    const std::size_t file_idx = file_idx_of.find(shard_name)->second;
    const SafetensorsFile& file = set.files_[file_idx];
    const SafetensorsTensor* tensor = file.find(tensor_name);
    if (tensor == nullptr) {
      throw bad_file(index,
                     fmt::format("tensor {} is listed in shard {}, which does not hold it",
                                 printable(tensor_name), shard_name),
                     "index and shards must agree",
                     "Fetch the model again, all files of one version");
    }
    const auto tensor_idx = static_cast<std::size_t>(tensor - file.tensors().data());
    set.locations_.emplace(tensor_name, Location{file_idx, tensor_idx});
  }
  return set;
}

const SafetensorsTensor* SafetensorsSet::find(std::string_view tensor_name) const noexcept {
  const auto found = locations_.find(tensor_name);
  if (found == locations_.end()) return nullptr;
  return &files_[found->second.file_idx].tensors()[found->second.tensor_idx];
}

const SafetensorsTensor& SafetensorsSet::at(std::string_view tensor_name) const {
  const SafetensorsTensor* tensor = find(tensor_name);
  if (tensor == nullptr) {
    throw bad_file(name_, fmt::format("there is no tensor {}", printable(tensor_name)),
                   "the model needs it", "Check that the files belong together and are complete");
  }
  return *tensor;
}

const std::string& SafetensorsSet::file_of(std::string_view tensor_name) const noexcept {
  const auto found = locations_.find(tensor_name);
  return found == locations_.end() ? name_ : files_[found->second.file_idx].name();
}

}  // namespace octavo::llm
