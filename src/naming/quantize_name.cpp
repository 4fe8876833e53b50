// SPDX-License-Identifier: Apache-2.0
#include "naming/quantize_name.hpp"

#include <fmt/format.h>

#include <map>
#include <set>
#include <string>

namespace octavo {
namespace {

constexpr QuantizeStep kSteps[] = {
    QuantizeStep::kAmax,         QuantizeStep::kTensor,  QuantizeStep::kShortRow,
    QuantizeStep::kRow,          QuantizeStep::kLongRow, QuantizeStep::kBlock1x128,
    QuantizeStep::kBlock128x128, QuantizeStep::kGiven,   QuantizeStep::kDequantize};

const char* step_word(QuantizeStep step) {
  switch (step) {
    case QuantizeStep::kAmax: return "amax";
    case QuantizeStep::kTensor: return "tensor";
    case QuantizeStep::kShortRow: return "shortrow";
    case QuantizeStep::kRow: return "row";
    case QuantizeStep::kLongRow: return "longrow";
    case QuantizeStep::kBlock1x128: return "1x128";
    case QuantizeStep::kBlock128x128: return "128x128";
    case QuantizeStep::kGiven: return "given";
    case QuantizeStep::kDequantize: return "dequantize";
  }
  return "?";
}

const char* access_word(QuantizeAccess access) {
  return access == QuantizeAccess::kVectors ? "vectors" : "elements";
}

Error no_name(std::string_view name) {
  return {ErrorCode::kInvalidArgument,
          fmt::format("kernel name: \"{}\" is no kernel that quantizes; it must be as in "
                      "octavo_sm90_quantize_1x128_bf16_e4m3_vectors. octavo names catalogue lists "
                      "them.",
                      name.substr(0, 200))};
}

}  // namespace

std::string quantize_kernel_name(const QuantizeConfig& config) {
  const char* x = to_string(config.x);
  const char* q = to_string(config.q);
  const char* access = access_word(config.access);
  switch (config.step) {
    case QuantizeStep::kAmax: return fmt::format("octavo_sm90_amax_{}_{}", x, access);
    case QuantizeStep::kDequantize:
      return fmt::format("octavo_sm90_dequantize_{}_{}_{}", q, x, access);
    default:
      return fmt::format("octavo_sm90_quantize_{}_{}_{}_{}", step_word(config.step), x, q, access);
  }
}

const std::vector<QuantizeConfig>& quantize_configs() {
  static const std::vector<QuantizeConfig> configs = [] {
    std::vector<QuantizeConfig> all;
    for (const QuantizeStep step : kSteps) {
      for (const DType x : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const DType q : {DType::kE4M3, DType::kE5M2}) {
          if (step == QuantizeStep::kAmax && q != DType::kE4M3) continue;
          for (const QuantizeAccess access :
               {QuantizeAccess::kVectors, QuantizeAccess::kElements}) {
            all.push_back({step, x, q, access});
          }
        }
      }
    }
    return all;
  }();
  return configs;
}

Result<QuantizeConfig> parse_quantize_name(std::string_view name) {
  static const std::map<std::string, QuantizeConfig, std::less<>> by_name = [] {
    std::map<std::string, QuantizeConfig, std::less<>> names;
    for (const QuantizeConfig& config : quantize_configs()) {
      names.emplace(quantize_kernel_name(config), config);
    }
    return names;
  }();
  const auto found = by_name.find(name);
  if (found == by_name.end()) return no_name(name);
  return found->second;
}

std::vector<NameField> fields_of(const QuantizeConfig& config) {
  std::vector<NameField> fields{{"step", step_word(config.step)}, {"x", to_string(config.x)}};
  if (config.step != QuantizeStep::kAmax) fields.push_back({"q", to_string(config.q)});
  fields.push_back({"access", access_word(config.access)});
  return fields;
}

Result<QuantizeConfig> quantize_config_of(std::span<const NameField> fields) {
  std::map<std::string, std::string> wanted;
  for (const NameField& field : fields) {
    if (field.field != "step" && field.field != "x" && field.field != "q" &&
        field.field != "access") {
      return Error(
          ErrorCode::kInvalidArgument,
          fmt::format("kernel name: {} is no field; these are step, x, q and access. Leave "
                      "it out.",
                      field.field));
    }
    if (!wanted.emplace(field.field, field.value).second) {
      return Error(ErrorCode::kInvalidArgument,
                   fmt::format("kernel name: {} is given twice. Give it once.", field.field));
    }
  }
  // The first of them is QuantizeConfig's where nothing is said.
  for (const NameField& usual : fields_of(QuantizeConfig{})) {
    if (wanted["step"] != "amax" || usual.field != "q") wanted.emplace(usual.field, usual.value);
  }
  for (const QuantizeConfig& config : quantize_configs()) {
    std::map<std::string, std::string> has;
    for (const NameField& field : fields_of(config)) has[field.field] = field.value;
    if (has == wanted) return config;
  }
  return Error(ErrorCode::kInvalidArgument,
               "kernel name: no kernel that quantizes has these values; step is amax, tensor, "
               "shortrow, row, longrow, 1x128, 128x128, given or dequantize, x bf16, f16 or f32, q "
               "(not of amax) e4m3 or e5m2, access vectors or elements. Give some of them.");
}

}  // namespace octavo
