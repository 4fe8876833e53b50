// SPDX-License-Identifier: Apache-2.0
#include "cuda/plan/describe_plan.hpp"

#include <fmt/format.h>

#include <cstdint>

#include "naming/kernel_name.hpp"

namespace octavo::cuda {
namespace {

constexpr double kMegabyte = 1e6;

std::string operand_sentence(const char* name, const char* rows_name, const OperandPlan& plan,
                             const TensorView& view) {
  if (plan.path == OperandPath::kDirect) {
    return fmt::format("{}: read in place (K-major rows of 16-byte multiples)", name);
  }
  const auto row = static_cast<std::size_t>(view.rank - 2);
  std::string given;
  switch (plan.from) {
    case RepackFrom::kRows:
      given = fmt::format("K-major with row stride {} at address {} mod {}", view.strides[row],
                          reinterpret_cast<std::uintptr_t>(view.data) % kRepackAlignment,
                          kRepackAlignment);
      break;
    case RepackFrom::kColumns: given = fmt::format("{}-major", rows_name); break;
    case RepackFrom::kAny:
      given = fmt::format("strides [{}, {}]", view.strides[row], view.strides[row + 1]);
      break;
  }
  return fmt::format(
      "{}: repacked to K-major rows of 16-byte multiples ({} given): {:.1f} MB, about {:.0f} us",
      name, given, static_cast<double>(plan.bytes) / kMegabyte, plan.microseconds);
}

std::string scale_sentence(const char* name, const TensorView& scale, const ScalePlan& plan) {
  if (!plan.is_staged) return fmt::format("{}: read in place ({})", name, to_string(scale.dtype));
  const auto row = static_cast<std::size_t>(scale.rank - 2);
  return fmt::format(
      "{}: copied to f32 with neighbouring rows adjacent ({} with strides [{}, {}] given): {:.2f} "
      "MB, about {:.0f} us",
      name, to_string(scale.dtype), scale.strides[row], scale.strides[row + 1],
      static_cast<double>(plan.bytes) / kMegabyte, plan.microseconds);
}

}  // namespace

std::vector<std::string> describe(const GemmPlan& plan, const GemmProblem& problem) {
  if (plan.work == GemmWork::kNothing) return {"d: no element changes, nothing is launched"};
  if (plan.work == GemmWork::kEpilogue) {
    return {fmt::format("d: K = 0, written without a product: about {:.0f} us",
                        plan.finish_microseconds)};
  }
  std::vector<std::string> sentences;
  sentences.push_back(operand_sentence("a", "M", plan.a, problem.a));
  sentences.push_back(operand_sentence("b", "N", plan.b, problem.b));
  if (problem.a_scale.present()) {
    sentences.push_back(scale_sentence("a_scale", problem.a_scale, plan.a_scale));
  }
  if (problem.b_scale.present()) {
    sentences.push_back(scale_sentence("b_scale", problem.b_scale, plan.b_scale));
  }
  sentences.push_back(fmt::format("product: {}, about {:.0f} us", kernel_name(plan.config),
                                  plan.product_microseconds));
  if (plan.config.num_splits > 1) {
    sentences.push_back(fmt::format(
        "k: in {} parts, {}, added in ascending order inside the product", plan.config.num_splits,
        problem.num_splits == kAutomaticSplits ? "chosen here" : "as given"));
  }
  if (plan.output == OutputPath::kFinished) {
    sentences.push_back(fmt::format(
        "d: f32 sums in workspace ({:.1f} MB), then rounded to {} and written: about {:.0f} us",
        static_cast<double>(plan.sums_bytes) / kMegabyte, to_string(problem.d.dtype),
        plan.finish_microseconds));
  } else {
    sentences.push_back(
        fmt::format("d: written by the product{}", plan.stores_directly
                                                       ? ", element by element (rows that are not "
                                                         "multiples of 16 bytes)"
                                                       : ""));
  }
  sentences.push_back(fmt::format("workspace: {} bytes", plan.workspace_bytes()));
  return sentences;
}

}  // namespace octavo::cuda
