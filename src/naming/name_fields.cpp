// SPDX-License-Identifier: Apache-2.0
#include "naming/name_fields.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <set>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include "naming/kernel_name.hpp"

namespace octavo {
namespace {

template <typename Value>
using Words = std::vector<std::pair<std::string_view, Value>>;

const Words<DType>& types() {
  static const Words<DType> words{{"e4m3", DType::kE4M3},
                                  {"e5m2", DType::kE5M2},
                                  {"bf16", DType::kBF16},
                                  {"f16", DType::kF16},
                                  {"f32", DType::kF32}};
  return words;
}
const Words<ScaleRecipe>& recipes() {
  static const Words<ScaleRecipe> words{{"none", ScaleRecipe::kNone},
                                        {"tensor", ScaleRecipe::kTensor},
                                        {"row", ScaleRecipe::kRow},
                                        {"block", ScaleRecipe::kBlock},
                                        {"block1d", ScaleRecipe::kBlock1d}};
  return words;
}
const Words<MainloopSum>& sums() {
  static const Words<MainloopSum> words{{"promoted", MainloopSum::kPromoted},
                                        {"fast", MainloopSum::kFast}};
  return words;
}
const Words<Schedule>& schedules() {
  static const Words<Schedule> words{{"cooperative", Schedule::kCooperative},
                                     {"pingpong", Schedule::kPingpong},
                                     {"streamed", Schedule::kStreamed}};
  return words;
}
const Words<Grouping>& groupings() {
  static const Words<Grouping> words{
      {"none", Grouping::kNone}, {"grouped", Grouping::kRows}, {"fused", Grouping::kProducts}};
  return words;
}
const Words<bool>& answers() {
  static const Words<bool> words{{"no", false}, {"yes", true}};
  return words;
}

template <typename Value>
std::string word_of(const Words<Value>& words, Value value) {
  for (const auto& [word, meaning] : words) {
    if (meaning == value) return std::string(word);
  }
  return "?";
}

template <typename Value>
bool read_word(const Words<Value>& words, std::string_view text, Value& to) {
  for (const auto& [word, meaning] : words) {
    if (word != text) continue;
    to = meaning;
    return true;
  }
  return false;
}

// Numbers with "x" between them.
template <std::size_t count>
bool read_numbers(std::string_view text, const std::array<int*, count>& numbers) {
  const char* at = text.data();
  const char* const end = text.data() + text.size();
  for (std::size_t i = 0; i < count; ++i) {
    if (i > 0) {
      if (at == end || *at != 'x') return false;
      ++at;
    }
    const auto [stop, status] = std::from_chars(at, end, *numbers[i]);
    if (status != std::errc()) return false;
    at = stop;
  }
  return at == end;
}

// Whether the value is one of the field's; false with `is_known` unset for no field's name.
bool read(std::string_view field, std::string_view value, GemmConfig& c, bool& is_known) {
  is_known = true;
  if (field == "a") return read_word(types(), value, c.a);
  if (field == "b") return read_word(types(), value, c.b);
  if (field == "d") return read_word(types(), value, c.d);
  if (field == "recipe") return read_word(recipes(), value, c.recipe);
  if (field == "sum") return read_word(sums(), value, c.sum);
  if (field == "tile") return read_numbers<3>(value, {&c.tile_m, &c.tile_n, &c.tile_k});
  if (field == "cluster") return read_numbers<2>(value, {&c.cluster_m, &c.cluster_n});
  if (field == "stages") return read_numbers<1>(value, {&c.stages});
  if (field == "unroll") return read_numbers<1>(value, {&c.unroll_k});
  if (field == "schedule") return read_word(schedules(), value, c.schedule);
  if (field == "raster") return read_numbers<1>(value, {&c.raster_group_m});
  if (field == "splits") return read_numbers<1>(value, {&c.num_splits});
  if (field == "grouping") return read_word(groupings(), value, c.grouping);
  if (field == "accumulate") return read_word(answers(), value, c.accumulates);
  if (field == "bias") return read_word(answers(), value, c.has_bias);
  is_known = false;
  return false;
}

}  // namespace

std::vector<NameField> fields_of(const GemmConfig& c) {
  return {{"a", word_of(types(), c.a)},
          {"b", word_of(types(), c.b)},
          {"d", word_of(types(), c.d)},
          {"recipe", word_of(recipes(), c.recipe)},
          {"sum", word_of(sums(), c.sum)},
          {"tile", fmt::format("{}x{}x{}", c.tile_m, c.tile_n, c.tile_k)},
          {"cluster", fmt::format("{}x{}", c.cluster_m, c.cluster_n)},
          {"stages", std::to_string(c.stages)},
          {"unroll", std::to_string(c.unroll_k)},
          {"schedule", word_of(schedules(), c.schedule)},
          {"raster", std::to_string(c.raster_group_m)},
          {"splits", std::to_string(c.num_splits)},
          {"grouping", word_of(groupings(), c.grouping)},
          {"accumulate", word_of(answers(), c.accumulates)},
          {"bias", word_of(answers(), c.has_bias)}};
}

Result<GemmConfig> config_of(std::span<const NameField> fields) {
  GemmConfig config;
  std::set<std::string_view> seen;
  for (const NameField& field : fields) {
    bool is_known = false;
    if (!seen.insert(field.field).second) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("kernel name: {} is given twice; leave one out.", field.field));
    }
    if (read(field.field, field.value, config, is_known)) continue;
    if (!is_known) {
      std::string known;
      for (const NameField& some : fields_of({})) {
        known += (known.empty() ? "" : ", ") + some.field;
      }
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("kernel name: \"{}\" is no field; these are {}.", field.field, known));
    }
    const std::vector<NameField> usual = fields_of({});
    const auto like = std::find_if(usual.begin(), usual.end(),
                                   [&](const NameField& one) { return one.field == field.field; });
    return Error(ErrorCode::kInvalidArgument,
                 fmt::format("kernel name: {} is \"{}\"; it must be written like {}.", field.field,
                             field.value, like->value));
  }
  // Types, numbers and recipes that the grammar does not have.
  return parse_kernel_name(kernel_name(config));
}

}  // namespace octavo
