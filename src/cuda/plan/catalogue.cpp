// SPDX-License-Identifier: Apache-2.0
// And octavo/naming.hpp, which is about the same names.
#include "cuda/plan/catalogue.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <unordered_set>

#include "cuda/plan/gemm_plan.hpp"
#include "cuda/plan/grouped_plan.hpp"
#include "naming/kernel_name.hpp"
#include "naming/name_fields.hpp"
#include "naming/quantize_name.hpp"

namespace octavo {
namespace cuda {
namespace {

constexpr int kH200Multiprocessors = 132;
// N and K that every tile, cluster and number of splits has room in.
constexpr std::int64_t kExtent = 4096;
// Every tile of few rows, what is not for few, and that with bands for a longer K.
struct Size {
  std::int64_t m;
  std::int64_t k;
};
constexpr Size kSizes[] = {{8, kExtent},   {16, kExtent},      {32, kExtent},         {64, kExtent},
                           {128, kExtent}, {kExtent, kExtent}, {kExtent, 4 * kExtent}};
constexpr int kMaxSplits = 8;

// Aligned as an allocator's memory, and never followed.
MutableTensorView unplaced(DType dtype, std::initializer_list<std::int64_t> shape) {
  constexpr std::uintptr_t kAddress = 1U << 20U;
  return make_view(reinterpret_cast<void*>(kAddress),  // NOLINT(performance-no-int-to-ptr)
                   dtype, shape, {DeviceKind::kCuda, 0});
}

class Collector {
 public:
  // Everything that plans offer for products like this one, of any number of rows.
  void collect(GemmProblem like) {
    for (const auto& [m, k] : kSizes) {
      like.a = unplaced(like.a.dtype, {m, k});
      like.b = unplaced(like.b.dtype, {kExtent, k});
      like.d = unplaced(like.d.dtype, {m, kExtent});
      for (int splits = 1; splits <= kMaxSplits; ++splits) {
        like.num_splits = splits;
        add(gemm_candidates(like, kH200Multiprocessors));
      }
      add(fused_candidates(std::span(&like, 1), kH200Multiprocessors));
      GroupedGemmProblem groups;
      constexpr std::int64_t kGroups = 8;
      groups.a = unplaced(like.a.dtype, {kGroups * m, k});
      groups.b = unplaced(like.b.dtype, {kGroups, kExtent, k});
      groups.d = unplaced(like.d.dtype, {kGroups * m, kExtent});
      groups.recipe = like.recipe;
      groups.accumulation = like.accumulation;
      groups.output_mode = like.output_mode;
      groups.bias = like.bias;
      add(grouped_candidates(groups, kH200Multiprocessors));
    }
  }

  [[nodiscard]] std::vector<GemmConfig> take() { return std::move(configs_); }

 private:
  void add(const std::vector<GemmCandidate>& candidates) {
    for (const GemmCandidate& candidate : candidates) {
      if (names_.insert(kernel_name(candidate.config)).second) {
        configs_.push_back(candidate.config);
      }
    }
  }

  std::vector<GemmConfig> configs_;
  std::unordered_set<std::string> names_;
};

}  // namespace

std::vector<GemmConfig> planned_configs(DType a, DType b) {
  Collector collector;
  GemmProblem like;
  like.a.dtype = a;
  like.b.dtype = b;
  for (const ScaleRecipe recipe : {ScaleRecipe::kNone, ScaleRecipe::kTensor, ScaleRecipe::kRow,
                                   ScaleRecipe::kBlock, ScaleRecipe::kBlock1d}) {
    for (const Accumulation accumulation : {Accumulation::kPromoted, Accumulation::kFast}) {
      if (is_block_scaled(recipe) && accumulation == Accumulation::kFast) continue;
      for (const DType d : {DType::kBF16, DType::kF16, DType::kF32}) {
        for (const OutputMode mode : {OutputMode::kOverwrite, OutputMode::kAccumulate}) {
          for (const bool has_bias : {false, true}) {
            like.recipe = recipe;
            like.accumulation = accumulation;
            like.d.dtype = d;
            like.output_mode = mode;
            like.bias = has_bias ? TensorView(unplaced(DType::kF32, {kExtent})) : TensorView{};
            collector.collect(like);
          }
        }
      }
    }
  }
  return collector.take();
}

}  // namespace cuda

std::vector<NameField> kernel_name_fields(std::string_view name) {
  constexpr std::string_view kOfProducts = "octavo_sm90_gemm_";
  const Result<QuantizeConfig> quantize = parse_quantize_name(name);
  if (quantize.ok()) return fields_of(quantize.value());
  if (!name.starts_with(kOfProducts) && name.find("quantize_") != std::string_view::npos) {
    throw quantize.error();
  }
  return fields_of(parse_kernel_name(name).value());
}

std::string kernel_name_of(std::span<const NameField> fields) {
  const bool has_step = std::any_of(fields.begin(), fields.end(),
                                    [](const NameField& field) { return field.field == "step"; });
  if (has_step) return quantize_kernel_name(quantize_config_of(fields).value());
  return kernel_name(config_of(fields).value());
}

std::vector<std::string> kernel_catalogue() {
  std::vector<std::string> names;
  for (const DType a : {DType::kE4M3, DType::kE5M2}) {
    for (const DType b : {DType::kE4M3, DType::kE5M2}) {
      for (const GemmConfig& config : cuda::planned_configs(a, b)) {
        names.push_back(kernel_name(config));
      }
    }
  }
  for (const QuantizeConfig& config : quantize_configs()) {
    names.push_back(quantize_kernel_name(config));
  }
  return names;
}

}  // namespace octavo
